//! What a command printed, in bounded memory: the beginning and the end of it.

use std::collections::VecDeque;

use crate::protocol::text::{checked_value, stripped};

/// How much of the end of the output goes into a report as text, in bytes.
pub const TEXT_MAX: usize = 64 << 10;

/// The longest progress line, in characters.
const LINE_MAX: usize = 120;

/// How much of the end of the output the last line is looked for in, in bytes.
const LINE_WITHIN: usize = 4096;

/// The output of one command.
#[derive(Debug)]
pub struct Transcript {
    /// How much the log may hold, in bytes.
    log_limit: usize,
    /// The first bytes.
    head: Vec<u8>,
    /// The last bytes of what came after those.
    tail: VecDeque<u8>,
    /// How many bytes there were in all.
    total: u64,
}

impl Transcript {
    /// An empty one, whose log holds at most `log_limit` bytes.
    pub fn new(log_limit: usize) -> Transcript {
        Transcript { log_limit, head: Vec::new(), tail: VecDeque::new(), total: 0 }
    }

    fn head_max(&self) -> usize {
        self.log_limit / 2
    }

    fn tail_max(&self) -> usize {
        TEXT_MAX.max(self.log_limit - self.head_max())
    }

    /// Takes what was printed next.
    pub fn push(&mut self, bytes: &[u8]) {
        self.total += bytes.len() as u64;
        let (first, rest) = bytes.split_at(bytes.len().min(self.head_max() - self.head.len()));
        self.head.extend_from_slice(first);
        let rest = &rest[rest.len().saturating_sub(self.tail_max())..];
        let surplus = (self.tail.len() + rest.len()).saturating_sub(self.tail_max());
        self.tail.drain(..surplus);
        self.tail.extend(rest);
    }

    /// Whether there may be a log.
    pub fn has_log(&self) -> bool {
        self.log_limit > 0
    }

    /// How many bytes there were in all.
    pub fn total(&self) -> u64 {
        self.total
    }

    /// The last `most` of the bytes that are kept without a gap.
    fn end(&self, most: usize) -> Vec<u8> {
        let kept = self.head.len() + self.tail.len();
        let has_gap = self.total > kept as u64;
        let from_head = if has_gap { 0 } else { self.head.len().min(most.saturating_sub(self.tail.len())) };
        let from_tail = self.tail.len().min(most);
        let head = self.head[self.head.len() - from_head..].iter();
        head.chain(self.tail.iter().skip(self.tail.len() - from_tail)).copied().collect()
    }

    /// The end of the output as text, without control characters; and whether something stood before it.
    pub fn text(&self) -> (String, bool) {
        let mut end = self.end(TEXT_MAX);
        let is_cut = self.total > end.len() as u64;
        if is_cut {
            // Not in the middle of a character.
            let starts = end.iter().take(4).position(|byte| byte & 0xc0 != 0x80).unwrap_or(0);
            end.drain(..starts);
        }
        (stripped(&String::from_utf8_lossy(&end)), is_cut)
    }

    /// The log, byte for byte; where it was too long, its beginning and its end with a line in between that says so.
    /// With it how many bytes are missing.
    pub fn log(&self) -> (Vec<u8>, u64) {
        let tail_max = self.log_limit - self.head_max();
        let from_tail = self.tail.len().min(tail_max);
        let missing = self.total - (self.head.len() + from_tail) as u64;
        let mut log = self.head.clone();
        if missing > 0 {
            log.extend_from_slice(format!("\n[pm: {missing} bytes are left out here]\n").as_bytes());
        }
        log.extend(self.tail.iter().skip(self.tail.len() - from_tail));
        (log, missing)
    }

    /// The last line that says anything, made fit for a record.
    pub fn last_line(&self) -> Option<String> {
        let end = self.end(LINE_WITHIN);
        let text = String::from_utf8_lossy(&end);
        // A progress bar draws its line again and again, with a carriage return in between.
        let mut lines = text.rsplit(['\n', '\r']).map(stripped);
        let line = lines.find(|line| !line.trim().is_empty())?;
        let line: String = line.trim().chars().take(LINE_MAX).collect();
        checked_value("the progress", &line).ok()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn transcript(log_limit: usize, parts: &[&[u8]]) -> Transcript {
        let mut transcript = Transcript::new(log_limit);
        parts.iter().for_each(|part| transcript.push(part));
        transcript
    }

    #[test]
    fn what_fits_is_kept_byte_for_byte() {
        let transcript = transcript(10, &[b"ab\xff", b"", b"\x00cdefg"]);
        assert_eq!(transcript.log(), (b"ab\xff\x00cdefg".to_vec(), 0));
        assert_eq!(transcript.text(), ("ab\u{fffd}cdefg".to_owned(), false));
        assert_eq!(transcript.total(), 9);
    }

    #[test]
    fn of_what_does_not_fit_the_beginning_and_the_end_are_kept() {
        let transcript = transcript(6, &[b"abcdef", b"ghij"]);
        assert_eq!(transcript.log(), (b"abc\n[pm: 4 bytes are left out here]\nhij".to_vec(), 4));
        assert_eq!(transcript.text(), ("abcdefghij".to_owned(), false), "the text has a limit of its own");
    }

    #[test]
    fn the_text_is_the_end_and_begins_with_a_whole_character() {
        let many = "ä".repeat(TEXT_MAX);
        let transcript = transcript(0, &[b"x", many.as_bytes(), b"end"]);
        let (text, is_cut) = transcript.text();
        assert!(is_cut && text.starts_with('ä') && text.ends_with("äend"));
        assert!(text.len() <= TEXT_MAX && text.len() > TEXT_MAX - 4);
        assert_eq!(transcript.total(), 2 * TEXT_MAX as u64 + 4);
    }

    #[test]
    fn a_gap_is_never_bridged() {
        let long = vec![b'-'; 3 * TEXT_MAX];
        let transcript = transcript(8, &[b"head", &long, b"tail"]);
        let (text, is_cut) = transcript.text();
        assert!(is_cut && !text.contains("head") && text.len() == TEXT_MAX);
        assert_eq!(transcript.log().1, 3 * TEXT_MAX as u64);
    }

    #[test]
    fn the_last_line_is_one_that_says_something() {
        assert_eq!(transcript(0, &[b"one\ntwo\r\n \n\n"]).last_line().as_deref(), Some("two"));
        assert_eq!(transcript(0, &[b"\x1b[31mred\x1b[0m"]).last_line().as_deref(), Some("[31mred[0m"));
        assert_eq!(transcript(0, &[b"at 10%\rat 20%\r"]).last_line().as_deref(), Some("at 20%"));
        assert_eq!(transcript(0, &[b"\n"]).last_line(), None);
        assert_eq!(transcript(0, &[&vec![b'x'; 10_000]]).last_line().map(|line| line.len()), Some(LINE_MAX));
    }
}
