//! `git pm …`: the same program under the name that git looks for.

#![forbid(unsafe_code)]

fn main() -> std::process::ExitCode {
    pm::main("git pm")
}
