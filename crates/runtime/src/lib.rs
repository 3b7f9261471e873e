//! What hitpath's programs need of their process, and what no crate below may ask of it: which
//! processors there are, what time it is, standard output and standard error, and exit codes.
#![forbid(unsafe_code)]

pub mod affinity;
pub mod clock;
pub mod exit;
pub mod output;
