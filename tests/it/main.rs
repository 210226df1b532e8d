//! The integration tests: one binary.
//!
//! `cli` drives the programs as a person or script would; `ledger` sits below the command line, over a store in memory
//! and a real one; `poll` is about the poller's two files; `protocol` proves the rules; `servers` tries out the git
//! servers and the proxy that others stand on; `sync` is the decision about a task that two machines have; `tidy` holds
//! the house rules; `verifier` runs what judges reports. `support` is what they share.

mod cli;
mod ledger;
mod poll;
mod protocol;
mod servers;
mod support;
mod sync;
mod tidy;
mod verifier;
