//! `pm`: parse, run, exit.

fn main() {}
