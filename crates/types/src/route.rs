//! Routes.

use crate::word::words;

/// What a route does, by iproute2's name.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Hash)]
pub enum RouteKind {
    /// Sends the packet on: by a next hop, or to a station on the link.
    #[default]
    Unicast,
    /// An address of the gateway itself. Made by the gateway, with each address of a port.
    Local,
    /// The broadcast address of a connected IPv4 prefix. Made by the gateway, with each address of
    /// a port.
    Broadcast,
    /// Drops silently.
    Blackhole,
    /// Drops, and tells the sender that the destination is unreachable.
    Unreachable,
    /// Drops, and tells the sender that it is prohibited.
    Prohibit,
}

words!(RouteKind {
    Unicast = "unicast",
    Local = "local",
    Broadcast = "broadcast",
    Blackhole = "blackhole",
    Unreachable = "unreachable",
    Prohibit = "prohibit",
});

impl RouteKind {
    /// Those that users may ask for; the others follow from the addresses of ports.
    pub const STATIC: [Self; 4] =
        [Self::Unicast, Self::Blackhole, Self::Unreachable, Self::Prohibit];
}
