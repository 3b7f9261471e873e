//! Routes.

use std::net::IpAddr;
use std::sync::Arc;

use wire::{IpPrefix, PortId, VrfId};

use crate::group::GroupId;
use crate::next_hop::NextHopId;

/// What a static route is asked to do with a packet.
#[derive(Clone, Debug, PartialEq, Eq, Hash)]
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
    /// By a next hop that is on the port's link though no prefix of the port's addresses holds it.
    Onlink {
        /// The port the next hop is on.
        port: PortId,
        /// The next hop's address, of the packet's family.
        address: IpAddr,
    },
    /// By one of several next hops: each flow by one, as [`crate::Group`] says.
    Multipath(Arc<[MemberSpec]>),
    /// As the table of another VRF says.
    Vrf {
        /// Which VRF.
        vrf: VrfId,
    },
    /// Drop silently.
    Blackhole,
    /// Drop and tell the sender: host unreachable, or ICMPv6 no route to destination.
    Unreachable,
    /// Drop and tell the sender: administratively prohibited.
    Prohibit,
}

/// One of the next hops that a static route is asked to use.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub struct MemberSpec {
    /// The port the next hop is on.
    pub port: PortId,
    /// The next hop's address, of the packet's family. `None` if the destination itself is on the
    /// port's link.
    pub address: Option<IpAddr>,
    /// Whether the next hop is on the port's link though no prefix of the port's addresses holds it.
    pub onlink: bool,
    /// From 1 to [`crate::MAX_WEIGHT`].
    pub weight: u16,
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
    /// By one of several next hops.
    Multipath {
        /// Which ones: they exist as long as the route does.
        group: GroupId,
    },
    /// As the table of another VRF says: see [`crate::Tables::leak_steps`].
    Vrf {
        /// Which one. It exists as long as the route does.
        vrf: VrfId,
    },
    /// Drop silently.
    Blackhole,
    /// Drop and tell the sender, as Linux does: host unreachable, or ICMPv6 no route to destination.
    Unreachable,
    /// The same, as a policy rule says and no route: network unreachable, or ICMPv6 no route to
    /// destination.
    NetworkUnreachable,
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
