//! The rules, and nothing but the rules.
//!
//! Two functions carry the protocol: [`apply`](apply::apply) folds what is stored into a [`state::TaskState`],
//! and [`decide`](decide::decide) turns what is asked into drafts of new records. Whatever `decide` emits,
//! `apply` accepts; whatever `apply` refuses, no ref ever points at.
//!
//! Architecture invariant: nothing in here does I/O, reads a clock, or draws random numbers. What a rule needs
//! to know arrives as an argument. Nothing in here imports `store`.

pub mod apply;
pub mod codec;
pub mod decide;
pub mod graph;
pub mod intent;
pub mod lease;
pub mod record;
pub mod refusal;
pub mod select;
pub mod state;
pub mod sticky;
pub mod text;
pub mod view;
