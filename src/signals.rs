//! Which signals this process was told to live through.
//!
//! Whoever starts a program under `nohup`, or in the background of a script, has it ignore SIGHUP, or SIGINT. A handler
//! would undo that: so none is put in the place of such a wish.

use std::fs;

/// Those of some signals that are not ignored now: for whoever is about to catch them. Elsewhere than on Linux nobody
/// tells, and all are.
pub fn heeded<const N: usize>(signals: [i32; N]) -> impl Iterator<Item = i32> {
    let status = fs::read_to_string("/proc/self/status").unwrap_or_default();
    let ignored = ignored(&status);
    signals.into_iter().filter(move |signal| ignored >> (signal - 1) & 1 == 0)
}

/// The ignored signals, a bit each, as the `status` of a process in `/proc` has them.
fn ignored(status: &str) -> u64 {
    let mask = status.lines().find_map(|line| line.strip_prefix("SigIgn:"));
    mask.and_then(|mask| u64::from_str_radix(mask.trim(), 16).ok()).unwrap_or(0)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn each_signal_has_its_bit_and_what_is_not_told_is_not_ignored() {
        let status = "Name:\tpm\nSigBlk:\t0000000000000004\nSigIgn:\t0000000000001003\nSigCgt:\t0000000000000008\n";
        assert_eq!(ignored(status), (1 << 12) | 0b11);
        for nothing in ["", "SigIgn:\n", "SigIgn:\tx\n", "Name:\tSigIgn: 1\n"] {
            assert_eq!(ignored(nothing), 0, "{nothing:?}");
        }
    }
}
