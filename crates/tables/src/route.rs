//! Routes.

use std::net::IpAddr;

use wire::{IpPrefix, PortId};

use crate::next_hop::NextHopId;

/// What a static route is asked to do with a packet.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum RouteSpec {
    /// The destination is on the port's link.
    Connected {
        /// The port.
        port: PortId,
    },
    /// By a next hop.
    Via {
        /// The port the next hop is on.
        port: PortId,
        /// The next hop's address, of the packet's family.
        address: IpAddr,
    },
    /// Drop silently.
    Blackhole,
    /// Drop and tell the sender: host unreachable, or ICMPv6 address unreachable.
    Unreachable,
    /// Drop and tell the sender: administratively prohibited.
    Prohibit,
}

/// What a route in a FIB does with a packet: users' [`types::RouteKind`], with the next hop that is
/// needed to do it.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum RouteKind {
    /// An address of the gateway itself.
    Local,
    /// The subnet's broadcast address of a connected IPv4 prefix.
    Broadcast,
    /// The destination is on the link: [`crate::Tables::on_link_next_hop`] is its next hop.
    Connected {
        /// The port.
        port: PortId,
    },
    /// By a next hop, which exists as long as the route does.
    Via {
        /// Its port and address are in [`crate::NextHop`].
        next_hop: NextHopId,
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
