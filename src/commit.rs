//! A git commit in plain types: the one thing that `protocol` and `store` both speak of.
//!
//! It lives beside them, so that the codec can turn records into commits and the store can keep commits without
//! either knowing the other.

use crate::id::Oid;

/// Who wrote a commit and when. Bytes, since a foreign commit may hold anything.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Signature {
    /// The name, without angle brackets or newlines.
    pub name: Vec<u8>,
    /// The email address, without angle brackets or newlines.
    pub email: Vec<u8>,
    /// Seconds since 1970-01-01 UTC.
    pub seconds: i64,
    /// Offset from UTC in seconds, for display.
    pub offset: i32,
}

/// What a commit holds. Headers beyond these (signatures, an encoding) are not read and never written.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Commit {
    /// The tree; `None` is the well-known empty tree.
    pub tree: Option<Oid>,
    /// The parents, in git's order.
    pub parents: Vec<Oid>,
    /// Who did it, and when it happened.
    pub author: Signature,
    /// Through which identity, and when, it entered this chain.
    pub committer: Signature,
    /// The whole message.
    pub message: Vec<u8>,
}
