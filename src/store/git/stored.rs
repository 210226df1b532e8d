//! Objects as pm stores them: wrapped as a zlib stream, not compressed (decision 10).
//!
//! Every reader of zlib reads them, git first of all. Read here, they need no decompressor, whose state is larger than
//! all the records that a process reads.
//!
//! What must never happen here: a stream is taken for one of these and is not, or its checksum is not asked.

use gix::objs::Kind;

/// What stands before the content: 32 KiB window, deflate, no dictionary, fastest (RFC 1950).
const HEADER: [u8; 2] = [0x78, 0x01];

/// Appends `content` as one zlib stream that only wraps it (decision 10). Written by hand, since the state of a real
/// compressor is larger than all the records that a process writes.
pub(super) fn wrap(content: &[u8], out: &mut Vec<u8>) {
    /// The most that one stored block holds.
    const BLOCK: usize = 0xffff;
    out.extend_from_slice(&HEADER);
    let mut blocks = content.chunks(BLOCK).peekable();
    while let Some(block) = blocks.next() {
        let len = block.len() as u16;
        out.push(u8::from(blocks.peek().is_none()));
        out.extend_from_slice(&len.to_le_bytes());
        out.extend_from_slice(&(!len).to_le_bytes());
        out.extend_from_slice(block);
    }
    if content.is_empty() {
        out.extend_from_slice(&[1, 0, 0, 0xff, 0xff]);
    }
    out.extend_from_slice(&adler32(content).to_be_bytes());
}

/// The checksum at the end of a zlib stream (RFC 1950).
fn adler32(content: &[u8]) -> u32 {
    const MODULUS: u32 = 65_521;
    /// So many bytes fit into the sums before they must be reduced.
    const RUN: usize = 5552;
    let (mut a, mut b) = (1u32, 0u32);
    for run in content.chunks(RUN) {
        for &byte in run {
            a += u32::from(byte);
            b += a;
        }
        (a, b) = (a % MODULUS, b % MODULUS);
    }
    b << 16 | a
}

/// The kind and content of a loose object that is wrapped in one block, as every commit of pm's is. `None` for any other
/// bytes: those are for a decompressor, which can also say what is wrong with them.
pub(super) fn unwrap(stream: &[u8]) -> Option<(Kind, &[u8])> {
    let (&[last, a, b, c, d], rest) = stream.strip_prefix(&HEADER)?.split_first_chunk()?;
    let (len, complement) = (u16::from_le_bytes([a, b]), u16::from_le_bytes([c, d]));
    let (content, checksum) = rest.split_last_chunk()?;
    let is_whole = last == 1 && complement == !len && content.len() == usize::from(len);
    if !is_whole || u32::from_be_bytes(*checksum) != adler32(content) {
        return None;
    }
    let (kind, size, header) = gix::objs::decode::loose_header(content).ok()?;
    let content = &content[header..];
    (u64::try_from(content.len()).ok()? == size).then_some((kind, content))
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    fn stream(content: &[u8]) -> Vec<u8> {
        let mut whole = gix::objs::encode::loose_header(Kind::Commit, content.len() as u64).to_vec();
        whole.extend_from_slice(content);
        let mut out = Vec::new();
        wrap(&whole, &mut out);
        out
    }

    #[test]
    fn what_needs_two_blocks_or_is_compressed_is_left_to_a_decompressor() {
        assert_eq!(unwrap(&stream(b"content")), Some((Kind::Commit, &b"content"[..])));
        assert_eq!(unwrap(&stream(b"")), Some((Kind::Commit, &b""[..])));
        assert_eq!(unwrap(&stream(&[b'x'; 70_000])), None);
        assert_eq!(unwrap(b""), None);
        assert_eq!(unwrap(&HEADER), None);
    }

    proptest! {
        #![proptest_config(ProptestConfig { cases: 2_000, failure_persistence: None, ..ProptestConfig::default() })]

        #[test]
        fn a_stream_is_read_as_it_was_written_or_not_at_all(
            content in proptest::collection::vec(any::<u8>(), 0..600), at in any::<prop::sample::Index>(), byte: u8, cut in 0..9usize,
        ) {
            let good = stream(&content);
            prop_assert_eq!(unwrap(&good), Some((Kind::Commit, &content[..])));
            let mut bad = good.clone();
            let at = at.index(bad.len());
            bad[at] = byte;
            bad.truncate(good.len() - cut);
            prop_assert_eq!(unwrap(&bad).is_some(), bad == good, "byte {} of {:?}", at, bad);
        }
    }
}
