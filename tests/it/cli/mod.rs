//! The command line, driven as a person or a script would: real processes, real repositories.
//!
//! What can be shown below the command line is shown there (`ledger`, `protocol`); here is what only whole processes
//! can show: arguments, environment, configuration, output, exit codes, and the file system going wrong.

mod arguments;
mod clocks;
mod coherence;
mod concurrency;
mod configuration;
mod damage;
mod disk;
mod doctor;
mod doctor_fix;
mod doctor_remote;
mod exit_codes;
mod fence;
mod graph;
mod graphs;
mod help;
mod hook;
mod hook_hostile;
mod hook_install;
mod identity;
mod init;
mod locks;
mod machines;
mod machines_answers;
mod machines_configuration;
mod machines_delivery;
mod machines_faults;
mod machines_graphs;
mod machines_repair;
mod machines_repeated;
mod machines_sweep;
mod machines_work;
mod names;
mod output;
mod plans;
mod poller;
mod poller_files;
mod prime;
mod readonly;
mod repositories;
mod shapes;
mod skills;
mod state_files;
mod sweep;
mod texts;
mod verifiers;
mod wait;
mod work;
mod work_leases;
mod work_places;
mod work_stops;
mod work_trees;
mod zombies;
