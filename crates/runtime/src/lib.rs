//! What hitpath's programs need of their process, and what no crate below may ask of it: which
//! processors there are, what time it is, standard output and standard error, log lines, exit codes,
//! and the pages of its heap.
//!
//! `unsafe` is confined to the private module `sys`, which makes one system call.
#![deny(unsafe_code)]

pub mod affinity;
pub mod claims;
pub mod clock;
pub mod exit;
pub mod heap;
pub mod log;
pub mod output;
pub mod privileges;
pub mod seccomp;
mod sys;
pub mod utc;
