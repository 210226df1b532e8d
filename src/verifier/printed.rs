//! What a verifier printed, in bounded memory, and the summary of it that is recorded. Pure.
//!
//! What must never happen here: memory grows with the output; a summary is no valid value of a record, or longer than
//! [`SUMMARY_MAX`]; something is left out without a word.

use std::collections::VecDeque;

use crate::protocol::text::{checked_value, stripped};

/// The longest summary, in bytes.
pub const SUMMARY_MAX: usize = 4096;

/// How much of the beginning and of the end of an output is kept, in bytes each: more than a summary holds, since
/// control characters are taken out of it.
const KEPT_MAX: usize = 64 << 10;

/// The output of one command: its beginning and its end.
#[derive(Debug, Clone, Default)]
pub struct Printed {
    /// The first bytes.
    head: Vec<u8>,
    /// The last bytes of what came after those.
    tail: VecDeque<u8>,
    /// How many bytes there were in all.
    total: u64,
}

impl Printed {
    /// Takes what was printed next.
    pub fn push(&mut self, bytes: &[u8]) {
        self.total += bytes.len() as u64;
        let (first, rest) = bytes.split_at(bytes.len().min(KEPT_MAX - self.head.len()));
        self.head.extend_from_slice(first);
        let rest = &rest[rest.len().saturating_sub(KEPT_MAX)..];
        let surplus = (self.tail.len() + rest.len()).saturating_sub(KEPT_MAX);
        self.tail.drain(..surplus);
        self.tail.extend(rest);
    }

    /// How many bytes between beginning and end were not kept.
    fn gap(&self) -> u64 {
        self.total - (self.head.len() + self.tail.len()) as u64
    }

    /// The last line that says anything, byte for byte and without its line end; `None` where there is none, or where
    /// its beginning was not kept.
    pub fn last_line(&self) -> Option<Vec<u8>> {
        let head: &[u8] = if self.gap() > 0 { &[] } else { &self.head };
        let kept: Vec<u8> = head.iter().chain(&self.tail).copied().collect();
        let mut end = kept.len();
        // Each round takes one line off the end.
        loop {
            let start = kept[..end].iter().rposition(|byte| *byte == b'\n').map(|at| at + 1);
            let line = &kept[start.unwrap_or(0)..end];
            match start {
                _ if !line.trim_ascii().is_empty() => {
                    let line = line.strip_suffix(b"\r").unwrap_or(line);
                    return (start.is_some() || self.gap() == 0).then(|| line.to_vec());
                }
                Some(start) => end = start - 1,
                None => return None,
            }
        }
    }

    /// The summary of it, below a foreword that is no longer than a line; `None` where there is nothing to say.
    pub fn summary(&self, foreword: &str) -> Option<String> {
        let gap = self.gap();
        if gap == 0 {
            let all: Vec<u8> = self.head.iter().chain(&self.tail).copied().collect();
            let text = clean(&all);
            return told(foreword, &Parts { head: &text, gap, tail: "" });
        }
        // Not in the middle of a character.
        let kept_head = &self.head[..whole_characters(&self.head)];
        let tail: Vec<u8> = self.tail.iter().copied().collect();
        let starts = tail.iter().take(4).position(|byte| byte & 0xc0 != 0x80).unwrap_or(0);
        let gap = gap + (self.head.len() - kept_head.len() + starts) as u64;
        told(foreword, &Parts { head: &clean(kept_head), gap, tail: &clean(&tail[starts..]) })
    }
}

/// The summary of a text that is all there; `None` where it says nothing.
pub fn summary_of(text: &str) -> Option<String> {
    told("", &Parts { head: &clean(text.as_bytes()), gap: 0, tail: "" })
}

/// A text without control characters, of which the middle may be missing.
struct Parts<'a> {
    head: &'a str,
    /// How many bytes are missing between the two.
    gap: u64,
    tail: &'a str,
}

impl Parts<'_> {
    /// The text in at most `most` bytes, which is at least [`SUMMARY_MAX`] / 2. What is cut out is cut out of the
    /// middle.
    fn cut(&self, most: usize) -> String {
        let kept = self.head.len() + self.tail.len();
        if self.gap == 0 && kept <= most {
            return [self.head, self.tail].concat();
        }
        let total = kept as u64 + self.gap;
        // No count is longer than the one of everything.
        let room = most - marker(total).len();
        let (first, last) = if self.gap > 0 { (self.head, self.tail) } else { (self.head, self.head) };
        let first = &first[..boundary_below(first, room / 2)];
        let last = &last[boundary_above(last, last.len().saturating_sub(room - first.len()))..];
        format!("{first}{}{last}", marker(total - (first.len() + last.len()) as u64))
    }
}

/// What stands for what is left out.
fn marker(bytes: u64) -> String {
    format!("\n[pm: {bytes} bytes are left out here]\n")
}

/// A summary as it is recorded.
fn told(foreword: &str, parts: &Parts<'_>) -> Option<String> {
    let said = match (foreword.is_empty(), parts.head.is_empty() && parts.tail.is_empty() && parts.gap == 0) {
        (true, _) => parts.cut(SUMMARY_MAX),
        (false, true) => foreword.to_owned(),
        (false, false) => format!("{foreword}\n{}", parts.cut(SUMMARY_MAX - foreword.len() - 1)),
    };
    checked_value("the summary", &said).ok()
}

/// Bytes as text that may be recorded, without newlines at the end.
fn clean(bytes: &[u8]) -> String {
    let mut text = stripped(&String::from_utf8_lossy(bytes));
    text.truncate(text.trim_end_matches('\n').len());
    text
}

/// The length of some bytes without a character at their end that is cut off.
fn whole_characters(bytes: &[u8]) -> usize {
    for back in 1..=bytes.len().min(3) {
        let at = bytes.len() - back;
        let length = match bytes[at] {
            0x80..=0xbf => continue,
            0xc2..=0xdf => 2,
            0xe0..=0xef => 3,
            0xf0..=0xf4 => 4,
            _ => 1,
        };
        return if length > back { at } else { bytes.len() };
    }
    bytes.len()
}

/// The last place at or before `at` where a character begins, or the text ends.
fn boundary_below(text: &str, at: usize) -> usize {
    (0..=at.min(text.len())).rev().find(|at| text.is_char_boundary(*at)).unwrap_or(0)
}

/// The first place at or after `at` where a character begins, or the text ends.
fn boundary_above(text: &str, at: usize) -> usize {
    (at..=text.len()).find(|at| text.is_char_boundary(*at)).unwrap_or(text.len())
}

#[cfg(test)]
mod tests {
    use super::*;

    fn printed(parts: &[&[u8]]) -> Printed {
        let mut printed = Printed::default();
        parts.iter().for_each(|part| printed.push(part));
        printed
    }

    /// The two sides of the marker, and the number in it.
    fn sides(summary: &str) -> (&str, u64, &str) {
        let (first, rest) = summary.split_once("\n[pm: ").expect("a marker");
        let (bytes, last) = rest.split_once(" bytes are left out here]\n").expect("a marker");
        (first, bytes.parse().expect("a number"), last)
    }

    /// What every summary must be.
    fn assert_recordable(summary: &str) {
        assert!(summary.len() <= SUMMARY_MAX, "{} bytes", summary.len());
        assert_eq!(checked_value("it", summary).as_deref(), Ok(summary));
    }

    #[test]
    fn what_fits_is_kept_and_what_says_nothing_is_none() {
        assert_eq!(printed(&[b"one\n", b"two\n\n"]).summary("").as_deref(), Some("one\ntwo"));
        assert_eq!(printed(&[b"one\r\ntwo\r\n"]).summary("timed out").as_deref(), Some("timed out\none\ntwo"));
        assert_eq!(printed(&[b"\n"]).summary("timed out").as_deref(), Some("timed out"));
        for nothing in [&b""[..], b"\n\n", b" \t\n", b"\x1b\x07\0"] {
            assert_eq!(printed(&[nothing]).summary(""), None, "{nothing:?}");
        }
    }

    #[test]
    fn control_characters_are_taken_out_and_wrong_bytes_are_replaced() {
        let summary = printed(&[b"\x1b[31mred\x1b[0m \xff\xc2\x9b!\0\ttab\t"]).summary("");
        assert_eq!(summary.as_deref(), Some("[31mred[0m \u{fffd}!\ttab "));
        assert_eq!(summary_of("a\u{1b}b\n").as_deref(), Some("ab"));
    }

    #[test]
    fn a_character_that_comes_in_two_parts_is_one() {
        assert_eq!(printed(&[b"\xc3", b"\xa4"]).summary("").as_deref(), Some("ä"));
    }

    #[test]
    fn around_the_limit_nothing_is_lost_before_it_and_all_is_accounted_for_behind_it() {
        for unit in ["x", "ä", "€", "🦀", "a€", "x\n"] {
            for length in (SUMMARY_MAX - 8..SUMMARY_MAX + 80).chain([2 * SUMMARY_MAX, KEPT_MAX, 2 * KEPT_MAX - 8]) {
                for lead in 0..unit.len() {
                    let text = "-".repeat(lead) + &unit.repeat((length - lead) / unit.len());
                    let text = text.trim_end_matches('\n');
                    let summary = printed(&[text.as_bytes()]).summary("").expect("something");
                    assert_recordable(&summary);
                    assert!(!summary.contains('\u{fffd}'));
                    if text.len() <= SUMMARY_MAX {
                        assert_eq!(summary, text);
                        continue;
                    }
                    let (first, missing, last) = sides(&summary);
                    assert!(text.starts_with(first) && text.ends_with(last));
                    assert_eq!((first.len() + last.len()) as u64 + missing, text.len() as u64);
                    assert!(summary.len() > SUMMARY_MAX - 16, "the room is used: {}", summary.len());
                    assert!(first.len().abs_diff(last.len()) <= 16, "{} and {}", first.len(), last.len());
                }
            }
        }
    }

    #[test]
    fn a_gap_is_counted_and_no_character_is_halved_at_it() {
        for unit in ["x", "ä", "€", "🦀"] {
            for lead in 0..4 {
                let text = "-".repeat(lead) + &unit.repeat(500_000 / unit.len());
                let mut printed = Printed::default();
                text.as_bytes().chunks(4093).for_each(|part| printed.push(part));
                assert!(printed.head.len() + printed.tail.len() <= 2 * KEPT_MAX);
                let summary = printed.summary("").expect("something");
                assert_recordable(&summary);
                assert!(!summary.contains('\u{fffd}'));
                let (first, missing, last) = sides(&summary);
                assert_eq!((first.len() + last.len()) as u64 + missing, text.len() as u64);
            }
        }
    }

    #[test]
    fn the_characters_at_a_gap_are_whole_also_where_nearly_everything_is_taken_out() {
        let noise = vec![0x1b; 2 * KEPT_MAX];
        let mut start = vec![0x1b; KEPT_MAX - 2];
        start.extend("€".bytes());
        let summary = printed(&[&start, &noise, &"ä".bytes().skip(1).collect::<Vec<u8>>(), b"\x1b", &noise, b"end"]);
        let summary = summary.summary("").expect("something");
        assert_recordable(&summary);
        let (first, missing, last) = sides(&summary);
        assert_eq!((first, last), ("", "end"));
        assert!(missing >= 2 * KEPT_MAX as u64);
    }

    #[test]
    fn a_foreword_stays_whole() {
        let summary = printed(&[&[b'x'; 10_000]]).summary("timed out after 5 s").expect("something");
        assert_recordable(&summary);
        assert!(summary.starts_with("timed out after 5 s\nxxx"), "{}", &summary[..60]);
        let many = printed(&[&[b'x'; 1 << 20]]).summary("timed out after 5 s").expect("something");
        assert_recordable(&many);
    }

    #[test]
    fn the_last_line_is_one_that_says_something_byte_for_byte() {
        for (text, line) in [
            (&b"one\ntwo"[..], Some(&b"two"[..])),
            (b"one\ntwo\r\n \n\r\n\n", Some(b"two")),
            (b"one\n two \n", Some(b" two ")),
            (b"\x1b[1mtwo\n", Some(b"\x1b[1mtwo")),
            (b"one", Some(b"one")),
            (b"\n \n", None),
            (b"", None),
        ] {
            assert_eq!(printed(&[text]).last_line().as_deref(), line, "{text:?}");
        }
    }

    #[test]
    fn a_last_line_whose_beginning_is_lost_is_none() {
        let long = vec![b'x'; 3 * KEPT_MAX];
        assert_eq!(printed(&[&long, b"\nlast\n"]).last_line().as_deref(), Some(&b"last"[..]));
        assert_eq!(printed(&[&long, b"last\n"]).last_line(), None);
        // The kept part begins exactly where a whole line could.
        let blank = vec![b'\n'; KEPT_MAX - 4];
        assert_eq!(printed(&[&long, b"last", &blank]).last_line(), None);
        assert_eq!(printed(&[b"first line\n", &long[..KEPT_MAX]]).last_line().map(|line| line.len()), Some(KEPT_MAX));
    }
}
