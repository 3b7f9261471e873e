//! The exit codes of hitpath's programs.

use std::process::ExitCode;

/// The exit codes, which scripts may rely on. clap has 2 too if the command line cannot be
/// understood.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Exit {
    /// It was done, or the answer is yes.
    Done = 0,
    /// It was refused, failed, or the answer is no.
    Refused = 1,
    /// The command line, or the words of an iproute2 command, cannot be understood.
    Usage = 2,
    /// No daemon could be reached.
    Unreachable = 3,
}

impl From<Exit> for ExitCode {
    fn from(exit: Exit) -> Self {
        Self::from(exit as u8)
    }
}
