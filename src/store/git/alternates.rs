//! The list in `GIT_ALTERNATE_OBJECT_DIRECTORIES`: where a hook of a push finds what the repository had before.

use std::ffi::{OsStr, OsString};
use std::os::unix::ffi::{OsStrExt, OsStringExt};
use std::path::PathBuf;

/// The directories in such a list: separated by colons, and quoted like strings of C where a name holds one (git(1)).
pub(super) fn parse(list: &OsStr) -> Vec<PathBuf> {
    let mut rest = list.as_bytes();
    let mut found = Vec::new();
    while !rest.is_empty() {
        let (name, after) = match quoted(rest) {
            Some(taken) => taken,
            None => {
                let end = rest.iter().position(|byte| *byte == b':').unwrap_or(rest.len());
                (rest[..end].to_vec(), &rest[end..])
            }
        };
        if !name.is_empty() {
            found.push(PathBuf::from(OsString::from_vec(name)));
        }
        rest = after.strip_prefix(b":").unwrap_or(after);
    }
    found
}

/// Takes a quoted name off the front; `None` where there is none that is whole.
fn quoted(list: &[u8]) -> Option<(Vec<u8>, &[u8])> {
    let mut rest = list.strip_prefix(b"\"")?;
    let mut name = Vec::new();
    loop {
        let (&byte, after) = rest.split_first()?;
        rest = after;
        match byte {
            b'"' => break,
            b'\\' => {
                let (&escape, after) = rest.split_first()?;
                rest = after;
                name.push(match escape {
                    b'a' => 0x07,
                    b'b' => 0x08,
                    b't' => b'\t',
                    b'n' => b'\n',
                    b'v' => 0x0b,
                    b'f' => 0x0c,
                    b'r' => b'\r',
                    b'"' | b'\\' => escape,
                    b'0'..=b'3' => {
                        let (low, after) = rest.split_at_checked(2)?;
                        rest = after;
                        let digit = |c: u8| (b'0'..=b'7').contains(&c).then_some(c - b'0');
                        (digit(escape)? << 6) | (digit(low[0])? << 3) | digit(low[1])?
                    }
                    _ => return None,
                });
            }
            byte => name.push(byte),
        }
    }
    matches!(rest.first(), None | Some(b':')).then_some((name, rest))
}

#[cfg(test)]
mod tests {
    use super::*;

    fn check(list: &[u8], expected: &[&[u8]]) {
        let expected: Vec<PathBuf> = expected.iter().map(|name| PathBuf::from(OsStr::from_bytes(name))).collect();
        assert_eq!(parse(OsStr::from_bytes(list)), expected);
    }

    #[test]
    fn names_with_a_colon_are_read_as_git_quotes_them() {
        check(b"", &[]);
        check(b"/a/objects", &[b"/a/objects"]);
        check(b"/a::/b", &[b"/a", b"/b"]);
        check(b"\"/a:b/\\\"c\\\\\\303\\244\":/d", &[b"/a:b/\"c\\\xc3\xa4", b"/d"]);
        check(b"/x:\"/a\\tb\"", &[b"/x", b"/a\tb"]);
    }

    #[test]
    fn what_is_not_quoted_as_a_whole_is_taken_as_it_is() {
        check(b"\"a", &[b"\"a"]);
        check(b"\"a\"b:c", &[b"\"a\"b", b"c"]);
        check(b"\"a\\q\"", &[b"\"a\\q\""]);
        check(b"\"a\\4", &[b"\"a\\4"]);
    }
}
