//! What the process tells whoever started it.

use std::process::ExitCode;

use thiserror::Error;

/// The exit codes, which scripts may rely on. clap itself answers 2 where the command line cannot
/// be understood.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Exit {
    /// It was done, or the answer is yes.
    Done = 0,
    /// It was refused, failed, or the answer is no.
    Refused = 1,
    /// The command line, or the words of an iproute2 command, cannot be understood.
    Usage = 2,
    /// No daemon could be reached.
    Unreachable = 3,
}

impl Exit {
    /// The code for an error: by the first of this module's errors in its chain.
    pub(crate) fn of(error: &anyhow::Error) -> Self {
        if error.is::<Unreachable>() {
            Self::Unreachable
        } else if error.is::<Usage>() {
            Self::Usage
        } else {
            Self::Refused
        }
    }
}

impl From<Exit> for ExitCode {
    fn from(exit: Exit) -> Self {
        Self::from(exit as u8)
    }
}

/// The daemon could not be reached, and what to do about it.
#[derive(Debug, Error)]
#[error("{0}")]
pub(crate) struct Unreachable(pub(crate) String);

/// The user's words could not be understood, and which would have been.
#[derive(Debug, Error)]
#[error("{0}")]
pub(crate) struct Usage(pub(crate) String);

#[cfg(test)]
mod tests {
    use anyhow::Context;

    use super::*;

    #[test]
    fn an_error_keeps_its_code_through_context() {
        let error = Err::<(), _>(Unreachable("no".into())).context("asking for ports").unwrap_err();
        assert_eq!(Exit::of(&error), Exit::Unreachable);
        let error = Err::<(), _>(Usage("no".into())).context("reading words").unwrap_err();
        assert_eq!(Exit::of(&error), Exit::Usage);
        assert_eq!(Exit::of(&anyhow::anyhow!("no")), Exit::Refused);
    }
}
