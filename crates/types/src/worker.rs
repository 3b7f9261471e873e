//! Worker threads.

use crate::word::words;

/// What a worker does while no packet comes.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum Idle {
    /// Waits in the kernel until one does.
    #[default]
    Sleep,
    /// Keeps polling.
    Poll,
}

words!(Idle { Sleep = "sleep", Poll = "poll" });
