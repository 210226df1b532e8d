//! The ledger below the command line: over a store in memory and over real repositories.
//!
//! `world` builds ledgers and stands between them and their store; every other file holds the tests of one topic.

mod batch;
mod cascades;
mod contests;
mod families;
mod frozen;
mod outlooks;
mod races;
mod reads;
mod simulation;
mod world;
