//! One ledger on several machines: what is where, who decides, and how it gets there (design, section 7).
//!
//! - [`reconcile`]: the decision about one task, pure. [`settle`]: carrying it out in this repository.
//! - [`remote`]: git on its way to the remote and back; [`report`]: what a push answered; `patience`: how long
//!   that may take.
//! - [`through`]: one record, written so that it counts everywhere; `relied`: what it relies on in other tasks; `sending`:
//!   what becomes of it; `repeated`: the same command again.
//! - [`run`]: all tasks at once, as they were `listed`; `many`: taking thousands over; `pushing`: what is ahead.
//! - [`delivery`]: a branch that moves with a record. [`lost`]: what lost. [`repair`]: ways out.
//!
//! Architecture invariant: nothing is force-pushed. A push names the value that it expects, and what it puts there
//! descends from that.

pub mod delivery;
mod listed;
pub mod lost;
mod many;
mod patience;
mod pushing;
pub mod reconcile;
mod relied;
pub mod remote;
pub mod repair;
mod repeated;
pub mod report;
pub mod run;
mod sending;
pub mod settle;
pub mod through;
