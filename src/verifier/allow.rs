//! Which commands of a ledger this machine runs: those that its own configuration names, and no other. Pure.
//!
//! What must never happen here: a value of the configuration is read as anything but the very command or `*`; what a
//! person is shown, and told to copy, differs from what would run.

/// The configuration key that holds what is allowed; several values.
pub const KEY: &str = "pm.allowVerifier";

/// The value that allows every command.
const ALL: &str = "*";

/// A command of the ledger that this machine does not run.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
#[error(
    "the verifier is a command out of the ledger, and this machine does not allow it; nothing was run. Whoever can \
     write to the ledger could run code here, so look at it first. To allow just this one: {}",
    line_to_add(verifier)
)]
pub struct NotAllowed {
    /// The command, as the ledger has it.
    pub verifier: String,
}

/// Checks that the values of [`KEY`] hold exactly this command, or `*`.
///
/// # Errors
/// `NotAllowed` where they do not.
pub fn permit(verifier: &str, allow: &[String]) -> Result<(), NotAllowed> {
    if allow.iter().any(|allowed| allowed == verifier || allowed == ALL) {
        return Ok(());
    }
    Err(NotAllowed { verifier: verifier.to_owned() })
}

/// The line for a shell that allows this command in the repository: printable, and on one line but for newlines at the
/// command's very end.
pub fn line_to_add(verifier: &str) -> String {
    format!("git config --add {KEY} {}", quoted(verifier))
}

/// A text as one word of a POSIX shell. Where a character of it does not show, `printf` makes the text.
fn quoted(text: &str) -> String {
    if !text.chars().any(is_hidden) {
        return format!("'{}'", text.replace('\'', r"'\''"));
    }
    // A command substitution loses the newlines at its end, so they follow it.
    let kept = text.trim_end_matches('\n');
    let mut format = String::new();
    for c in kept.chars() {
        match c {
            '\\' => format.push_str(r"\\"),
            '%' => format.push_str("%%"),
            '\'' => format.push_str(r"'\''"),
            c if is_hidden(c) => {
                c.encode_utf8(&mut [0; 4]).bytes().for_each(|byte| format.push_str(&format!("\\{byte:03o}")));
            }
            c => format.push(c),
        }
    }
    format!("\"$(printf '{format}'){}\"", &text[kept.len()..])
}

/// Whether a terminal shows nothing for a character, or shows others in another order because of it.
fn is_hidden(c: char) -> bool {
    c.is_control()
        || matches!(c, '\u{ad}' | '\u{61c}' | '\u{180e}' | '\u{200b}'..='\u{200f}' | '\u{2028}'..='\u{202e}')
        || matches!(c, '\u{2060}'..='\u{206f}' | '\u{feff}' | '\u{fff9}'..='\u{fffb}' | '\u{e0000}'..='\u{e007f}')
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn only_the_very_command_or_a_star_allows_it() {
        let allow = |values: &[&str]| values.iter().map(|value| (*value).to_owned()).collect::<Vec<_>>();
        let verifier = "scripts/check.sh";
        assert_eq!(permit(verifier, &allow(&["x", "scripts/check.sh"])), Ok(()));
        assert_eq!(permit(verifier, &allow(&["*"])), Ok(()));
        for values in [
            vec![],
            vec![""],
            vec!["scripts/*"],
            vec!["**"],
            vec![" *"],
            vec!["scripts/check.sh "],
            vec!["Scripts/check.sh"],
            vec!["scripts/check"],
            vec!["scripts/check.sh --all"],
        ] {
            assert_eq!(permit(verifier, &allow(&values)), Err(NotAllowed { verifier: verifier.to_owned() }));
        }
        assert!(permit("scripts/check.sh; rm x", &allow(&["scripts/check.sh"])).is_err());
    }

    #[test]
    fn the_message_holds_the_line_to_add_and_nothing_that_does_not_show() {
        for (verifier, line) in [
            ("cargo test -q", "git config --add pm.allowVerifier 'cargo test -q'"),
            ("echo 'a'", r"git config --add pm.allowVerifier 'echo '\''a'\'''"),
            ("a\nb%\\'", r#"git config --add pm.allowVerifier "$(printf 'a\012b%%\\'\''')""#),
            ("a\u{1b}[1m", r#"git config --add pm.allowVerifier "$(printf 'a\033[1m')""#),
            ("a\u{202e}b", r#"git config --add pm.allowVerifier "$(printf 'a\342\200\256b')""#),
            ("a\n\n", "git config --add pm.allowVerifier \"$(printf 'a')\n\n\""),
        ] {
            assert_eq!(line_to_add(verifier), line);
            let message = NotAllowed { verifier: verifier.to_owned() }.to_string();
            assert!(message.ends_with(line), "{message}");
            assert!(!message.chars().any(|c| is_hidden(c) && c != '\n'), "{message}");
        }
    }

    #[test]
    fn a_shell_reads_back_what_was_quoted() {
        for text in ["plain", "it's", "a\nb\n\n", "%d \\012 $x `y` \"z\" '\u{1b}\t!", "\u{202e}'", "\n", "-n", "ä\r\n"]
        {
            let script = format!("printf %s {}", quoted(text));
            let output = std::process::Command::new("sh").args(["-c", &script]).output().expect("a shell");
            assert_eq!(String::from_utf8_lossy(&output.stdout), text, "{script}");
        }
    }
}
