//! Worker threads, and the process that they are in.

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

/// What happens to system calls that the gateway has no use for.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum Seccomp {
    /// They are refused, and logged by the system.
    #[default]
    On,
    /// They are made, and logged by the system.
    Log,
    /// They are made.
    Off,
}

words!(Seccomp { On = "on", Log = "log", Off = "off" });
