//! A hub: the repository that machines meet at, where a hook judges what is pushed before git moves a ref.
//!
//! [`push`] is the judgement, [`install`] puts the hook in place. Both stand beside `command` and use `ledger`.
//!
//! Architecture invariant: judging writes nothing, and whatever keeps pm from judging refuses the push.

pub mod install;
pub mod push;
