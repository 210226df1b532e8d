//! Taking the bytes of a commit object apart.
//!
//! The layout that git and pm write is read in one pass. Every other one (further headers, odd names, times that no
//! clock says) is left to gix's parser, which knows what ten years of git programs have written. A listing parses two
//! commits a task, and gix takes three times as long.
//!
//! What must never happen here: the quick way reads a commit otherwise than the thorough one.

use super::oid_of;
use crate::id::Oid;
use crate::store::{Commit, Signature, StoreError};

/// Takes the bytes of commit `id` apart.
///
/// # Errors
/// `Damaged` where they are no commit's.
pub(super) fn commit(id: Oid, content: &[u8], hash: gix::hash::Kind) -> Result<Commit, StoreError> {
    match plain(content, hash) {
        Some(commit) => Ok(commit),
        None => thorough(content, hash).map_err(|error| StoreError::Damaged { id, found: error.to_string() }),
    }
}

fn thorough(content: &[u8], hash: gix::hash::Kind) -> Result<Commit, gix::Error> {
    let commit = gix::objs::CommitRef::from_bytes(content, hash)?;
    let signature = |by: gix::actor::SignatureRef<'_>| {
        let gix::date::Time { seconds, offset } = by.time()?;
        Ok::<_, gix::Error>(Signature { name: by.name.to_vec(), email: by.email.to_vec(), seconds, offset })
    };
    let tree = commit.tree();
    Ok(Commit {
        tree: (!tree.is_empty_tree()).then(|| oid_of(&tree)),
        parents: commit.parents().map(|parent| oid_of(&parent)).collect(),
        author: signature(commit.author()?)?,
        committer: signature(commit.committer()?)?,
        message: commit.message.to_vec(),
    })
}

/// A commit that has tree, parents, author, committer, a blank line and a message, each just so; `None` for others.
fn plain(content: &[u8], hash: gix::hash::Kind) -> Option<Commit> {
    let mut rest = content;
    let mut header = |key: &[u8]| -> Option<&[u8]> {
        let line = rest.strip_prefix(key)?;
        let end = line.iter().position(|b| *b == b'\n')?;
        rest = &line[end + 1..];
        Some(&line[..end])
    };
    let tree = oid(header(b"tree ")?, hash)?;
    let mut parents = Vec::new();
    while let Some(parent) = header(b"parent ") {
        parents.push(oid(parent, hash)?);
    }
    let (author, committer) = (signature(header(b"author ")?)?, signature(header(b"committer ")?)?);
    let message = rest.strip_prefix(b"\n")?.to_vec();
    let tree = (tree.as_bytes() != gix::ObjectId::empty_tree(hash).as_bytes()).then_some(tree);
    Some(Commit { tree, parents, author, committer, message })
}

fn oid(hex: &[u8], hash: gix::hash::Kind) -> Option<Oid> {
    let id: Oid = std::str::from_utf8(hex).ok()?.parse().ok()?;
    (id.as_bytes().len() == hash.len_in_bytes()).then_some(id)
}

/// `Name <email> 1764446400 +0100`, with one space between the parts and none at the ends of name and email.
fn signature(line: &[u8]) -> Option<Signature> {
    let bracket = line.iter().position(|b| *b == b'<')?;
    let (name, rest) = (line[..bracket].strip_suffix(b" ")?, &line[bracket + 1..]);
    let bracket = rest.iter().position(|b| *b == b'>')?;
    let (email, time) = (&rest[..bracket], rest[bracket + 1..].strip_prefix(b" ")?);
    let space = time.iter().position(|b| *b == b' ')?;
    let (seconds, offset) = (&time[..space], &time[space + 1..]);
    let is_simple = |text: &[u8]| {
        let edges = [text.first(), text.last()];
        !edges.iter().any(|edge| edge.is_none_or(|b| !b.is_ascii_graphic()))
            && !text.iter().any(|b| b"<>\0".contains(b))
    };
    if !is_simple(name) || !is_simple(email) {
        return None;
    }
    let offset = match *offset {
        [sign @ (b'+' | b'-'), ref digits @ ..] if digits.len() == 4 => {
            let digits = i32::try_from(number(digits)?).ok()?;
            let offset = digits / 100 * 3600 + digits % 100 * 60;
            if sign == b'-' { -offset } else { offset }
        }
        _ => return None,
    };
    Some(Signature { name: name.to_vec(), email: email.to_vec(), seconds: number(seconds)?, offset })
}

/// A whole number of at most ten digits.
fn number(digits: &[u8]) -> Option<i64> {
    if digits.is_empty() || digits.len() > 10 {
        return None;
    }
    digits.iter().try_fold(0, |number, b| b.is_ascii_digit().then(|| number * 10 + i64::from(b - b'0')))
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    const HASH: gix::hash::Kind = gix::hash::Kind::Sha1;
    const COMMIT: &str = "tree 4b825dc642cb6eb9a060e54bf8d69288fbee4904\n\
                          parent 3c4e9cd789d88d8d89c1073707c3585e41b0e614\n\
                          author w1 <w1@example.com> 1764446400 +0130\n\
                          committer Ann Lee <ann@example.com> 1764446401 -0800\n\nheartbeat by w1\n";

    #[test]
    fn a_commit_as_git_writes_it_is_read_the_quick_way() {
        let commit = plain(COMMIT.as_bytes(), HASH).expect("plain");
        assert_eq!(commit.author.offset, 5400);
        assert_eq!(commit, thorough(COMMIT.as_bytes(), HASH).expect("a commit"));
        let odd = [
            ("author w1", "author  w1"),
            ("<w1@example.com>", "<w1@<example.com>"),
            ("+0130", "+01:30"),
            ("-0800", "-0800\nencoding latin1"),
            ("1764446400", "99999999999"),
        ];
        for (usual, odd) in odd {
            assert_eq!(plain(COMMIT.replacen(usual, odd, 1).as_bytes(), HASH), None, "{odd}");
        }
    }

    proptest! {
        #![proptest_config(ProptestConfig { cases: 2_000, failure_persistence: None, ..ProptestConfig::default() })]

        #[test]
        fn the_quick_way_reads_what_the_thorough_way_reads(
            at in 0..COMMIT.len(), gone in 0..4usize, new in "[ -~\n\u{1}é]{0,4}",
        ) {
            let mut content = COMMIT.as_bytes().to_vec();
            content.splice(at..(at + gone).min(COMMIT.len()), new.bytes());
            if let Some(commit) = plain(&content, HASH) {
                prop_assert_eq!(commit, thorough(&content, HASH).expect("what the quick way reads is a commit"));
            }
        }
    }
}
