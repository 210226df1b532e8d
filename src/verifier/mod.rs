//! Whether a report proves its task: the verifier of the task is asked, in whichever of its forms.
//!
//! `form` tells the forms apart, `allow` is what this machine lets the ledger start, `attestation` reads what a report
//! says of itself, `printed` is what is kept of a command's output.
//!
//! What must never happen here: a command out of the ledger is started that this machine does not allow; a verifier
//! that did not say yes passes; a command runs on after its outcome is known; a wait without a bound.

pub mod allow;
pub mod attestation;
pub mod form;
pub mod printed;

pub use self::allow::NotAllowed;
