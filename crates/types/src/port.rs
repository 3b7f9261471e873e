//! Ports.

use crate::word::words;

/// What a port's frames begin with.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum LinkKind {
    /// An Ethernet header; neighbours are resolved.
    #[default]
    Ethernet,
    /// The IP header itself; there are no neighbours.
    Ip,
}

words!(LinkKind { Ethernet = "ethernet", Ip = "ip" });
