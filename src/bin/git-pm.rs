//! `git pm …`: the same program under the name that git looks for.

fn main() -> std::process::ExitCode {
    pm::main("git pm")
}
