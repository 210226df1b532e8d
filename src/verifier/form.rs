//! The forms that a task's verifier can have. Pure.

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
    fn only_a_name_or_path_is_a_plain_word() {
        for word in ["true", "scripts/check.sh", "./a-b_c+d.sh", "~/bin/check", "/usr/bin/env", "prüfe"] {
            assert!(is_plain_word(word), "{word}");
        }
        for line in ["", "cargo test -q", "a&&b", "a;b", "$HOME/x", "X=1", "a\nb", "a\tb", "#a", "'a'", "a|b", "(a)"] {
            assert!(!is_plain_word(line), "{line:?}");
        }
    }
}
