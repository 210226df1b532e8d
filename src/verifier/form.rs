//! The forms that a task's verifier can have. Pure.

use crate::protocol::text::{TextError, checked_value};

/// What a verifier asks for.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Form<'a> {
    /// `skill:NAME`, `prompt:TEXT`: the report itself says that it was verified, and how.
    Attested,
    /// `verify-skill:NAME`: an LLM command line judges by the skill of this name, without the space around it.
    Skill(&'a str),
    /// `verify-prompt:TEXT`: an LLM command line judges by this criterion, without the space around it.
    Prompt(&'a str),
    /// Anything else is for `sh`; without the space around it.
    Shell(&'a str),
}

/// The forms with a name or text behind a prefix.
const PREFIXES: [(&str, &str); 4] =
    [("skill:", "NAME"), ("prompt:", "TEXT"), ("verify-skill:", "NAME"), ("verify-prompt:", "TEXT")];

/// Why a text is not planned as a verifier.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
pub enum FormError {
    /// There is nothing in it, as with a shell variable that is not set.
    #[error("the verifier is empty; leave it out if nothing is to be verified")]
    Empty,
    /// There is a prefix, and nothing behind it.
    #[error("the verifier is '{prefix}' and nothing more; it is written {prefix}{what}")]
    Bare {
        /// The prefix, with its colon.
        prefix: &'static str,
        /// What follows it.
        what: &'static str,
    },
    /// No record may hold it.
    #[error(transparent)]
    Text(#[from] TextError),
}

/// A verifier that is to be planned, as it is stored. (What the ledger has already is judged when it is asked.)
///
/// # Errors
/// Why it could verify nothing, or cannot be stored.
pub fn checked(verifier: &str) -> Result<String, FormError> {
    if verifier.trim().is_empty() {
        return Err(FormError::Empty);
    }
    let verifier = checked_value("the verifier", verifier)?;
    let is_bare = |(prefix, _): &(&str, _)| verifier.strip_prefix(prefix).is_some_and(|rest| rest.trim().is_empty());
    match PREFIXES.into_iter().find(is_bare) {
        Some((prefix, what)) => Err(FormError::Bare { prefix, what }),
        None => Ok(verifier),
    }
}

impl Form<'_> {
    /// The form of a verifier. The prefixes are lower case and stand at its very beginning.
    pub fn of(verifier: &str) -> Form<'_> {
        if verifier.starts_with("skill:") || verifier.starts_with("prompt:") {
            Form::Attested
        } else if let Some(name) = verifier.strip_prefix("verify-skill:") {
            Form::Skill(name.trim())
        } else if let Some(text) = verifier.strip_prefix("verify-prompt:") {
            Form::Prompt(text.trim())
        } else {
            Form::Shell(verifier.trim())
        }
    }

    /// Whether something is started for it, so that this machine must allow it.
    pub fn is_command(&self) -> bool {
        !matches!(self, Form::Attested)
    }
}

/// Whether a shell command is one word that a shell takes as it stands: a program's name or path.
pub fn is_plain_word(line: &str) -> bool {
    !line.is_empty() && line.chars().all(|c| c.is_alphanumeric() || "_./+-@%:,~".contains(c))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_form_is_in_the_prefix_and_anything_else_is_a_shell_command() {
        for (verifier, form) in [
            ("skill:review", Form::Attested),
            ("prompt:is it green?", Form::Attested),
            ("verify-skill: review ", Form::Skill("review")),
            ("verify-prompt:is it green?", Form::Prompt("is it green?")),
            ("verify-prompt: ", Form::Prompt("")),
            ("scripts/check.sh", Form::Shell("scripts/check.sh")),
            (" skill:review", Form::Shell("skill:review")),
            ("Skill:review", Form::Shell("Skill:review")),
            ("verify-skills:review", Form::Shell("verify-skills:review")),
            ("skill", Form::Shell("skill")),
            ("\n", Form::Shell("")),
        ] {
            assert_eq!(Form::of(verifier), form, "{verifier:?}");
            assert_eq!(form.is_command(), form != Form::Attested);
        }
    }

    #[test]
    fn what_could_verify_nothing_is_not_planned() {
        for nothing in ["", " ", "\t\n"] {
            assert_eq!(checked(nothing), Err(FormError::Empty), "{nothing:?}");
        }
        for (prefix, what) in PREFIXES {
            for rest in ["", " ", "\n"] {
                let found = checked(&format!("{prefix}{rest}"));
                assert_eq!(found, Err(FormError::Bare { prefix, what }), "{prefix:?}");
            }
            let whole = format!("{prefix} x");
            assert_eq!(checked(&whole), Ok(whole.clone()));
        }
        assert!(matches!(checked("a\u{1b}b"), Err(FormError::Text(_))));
        for verifier in ["skill", "skills:", " skill:", "Skill:", "scripts/check.sh", ":"] {
            assert_eq!(checked(verifier).as_deref(), Ok(verifier));
        }
    }

    #[test]
    fn only_a_name_or_path_is_a_plain_word() {
        for word in ["true", "scripts/check.sh", "./a-b_c+d.sh", "~/bin/check", "/usr/bin/env", "prüfe"] {
            assert!(is_plain_word(word), "{word}");
        }
        for line in ["", "cargo test -q", "a&&b", "a;b", "$HOME/x", "X=1", "a\nb", "a\tb", "#a", "'a'", "a|b", "(a)"] {
            assert!(!is_plain_word(line), "{line:?}");
        }
    }
}
