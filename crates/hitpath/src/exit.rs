//! Errors that have an exit code of their own.

use runtime::exit::Exit;
use thiserror::Error;

/// The exit code for an error: that of the first of this module's errors in its chain.
pub(crate) fn of(error: &anyhow::Error) -> Exit {
    if error.is::<Unreachable>() {
        Exit::Unreachable
    } else if error.is::<Usage>() {
        Exit::Usage
    } else {
        Exit::Refused
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
        assert_eq!(of(&error), Exit::Unreachable);
        let error = Err::<(), _>(Usage("no".into())).context("reading words").unwrap_err();
        assert_eq!(of(&error), Exit::Usage);
        assert_eq!(of(&anyhow::anyhow!("no")), Exit::Refused);
    }
}
