//! `pm`: parse, run, exit.

fn main() -> std::process::ExitCode {
    pm::main("pm")
}
