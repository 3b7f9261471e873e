//! Routes.

use std::net::IpAddr;

use wire::{IpPrefix, PortId};

/// What a route does with a packet.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum RouteKind {
    /// An address of the gateway itself.
    Local,
    /// The subnet's broadcast address of a connected IPv4 prefix.
    Broadcast,
    /// The destination is on the link.
    Connected {
        /// The port.
        port: PortId,
    },
    /// By a next hop.
    Via {
        /// The port the next hop is on.
        port: PortId,
        /// The next hop, of the packet's family.
        next_hop: IpAddr,
    },
    /// Drop silently.
    Blackhole,
    /// Drop and tell the sender: host unreachable, or ICMPv6 address unreachable.
    Unreachable,
    /// Drop and tell the sender: administratively prohibited.
    Prohibit,
}

/// A route in a FIB.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub struct Route {
    /// Which destinations; no host bits.
    pub prefix: IpPrefix,
    /// What happens to packets to them.
    pub kind: RouteKind,
}
