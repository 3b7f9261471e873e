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

impl LinkKind {
    /// Bytes of the link header in front of each IP packet, without a VLAN tag.
    pub const fn header_length(self) -> usize {
        match self {
            Self::Ethernet => 14,
            Self::Ip => 0,
        }
    }
}

words!(LinkKind { Ethernet = "ethernet", Ip = "ip" });
