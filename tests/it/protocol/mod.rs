//! The protocol, proven from outside: the codec, the fold and the decisions.
//!
//! `arbitrary` draws records, `chain` builds chains; every other file holds the tests of one topic, through one
//! `check` helper. No test here touches a disk, but `git`, which asks the real git what it reads.

pub mod arbitrary;
pub mod chain;
mod codec;
mod critical_path;
mod decisions;
mod forgeries;
mod git;
pub mod golden;
mod graphs;
mod hostile;
mod properties;
mod tips;

use proptest::strategy::Strategy;
use proptest::test_runner::{Config, TestCaseResult, TestRunner};

/// How many cases every property gets; `PROPTEST_CASES` raises it.
const CASES: u32 = 10_000;

/// Proves a property, or panics with the smallest input that breaks it.
pub fn for_all<S: Strategy>(inputs: S, property: impl Fn(S::Value) -> TestCaseResult) {
    for_all_of(CASES, inputs, property);
}

/// As [`for_all`], over fewer cases: for properties whose cases take their time.
pub fn for_all_of<S: Strategy>(cases: u32, inputs: S, property: impl Fn(S::Value) -> TestCaseResult) {
    // No file of past failures: the tree has no place for it, and the smallest input is printed.
    let config = Config { cases: at_least(cases), failure_persistence: None, ..Config::default() };
    if let Err(failure) = TestRunner::new(config).run(&inputs, property) {
        panic!("{failure}");
    }
}

/// So many cases, or what `PROPTEST_CASES` asks for, if that is more.
pub fn at_least(cases: u32) -> u32 {
    // Without the variable, proptest says 256 itself.
    cases.max(std::env::var_os("PROPTEST_CASES").map_or(0, |_| Config::default().cases))
}
