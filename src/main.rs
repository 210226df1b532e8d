//! `pm`: parse, run, exit.

#![forbid(unsafe_code)]

fn main() -> std::process::ExitCode {
    pm::main("pm")
}
