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

/// Who made a route, by iproute2's name (`/etc/iproute2/rt_protos`) or number: a label, which
/// changes nothing of what the route does.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub struct RouteProtocol(u8);

/// A word that is no such name, and no number from 0 to 255.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct UnknownRouteProtocol;

impl RouteProtocol {
    /// The gateway itself, with an address of a port.
    pub const KERNEL: Self = Self(2);
    /// A command that says nothing else.
    pub const BOOT: Self = Self(3);
    /// An administrator.
    pub const STATIC: Self = Self(4);

    const NAMES: &'static [(u8, &'static str)] = &[
        (0, "unspec"),
        (1, "redirect"),
        (2, "kernel"),
        (3, "boot"),
        (4, "static"),
        (8, "gated"),
        (9, "ra"),
        (10, "mrt"),
        (11, "zebra"),
        (12, "bird"),
        (13, "dnrouted"),
        (14, "xorp"),
        (15, "ntk"),
        (16, "dhcp"),
        (17, "mrouted"),
        (18, "keepalived"),
        (42, "babel"),
        (84, "ovn"),
        (99, "openr"),
        (186, "bgp"),
        (187, "isis"),
        (188, "ospf"),
        (189, "rip"),
        (192, "eigrp"),
    ];
}

impl core::fmt::Display for RouteProtocol {
    fn fmt(&self, f: &mut core::fmt::Formatter<'_>) -> core::fmt::Result {
        match Self::NAMES.iter().find(|(number, _)| *number == self.0) {
            Some((_, name)) => f.write_str(name),
            None => self.0.fmt(f),
        }
    }
}

impl core::fmt::Display for UnknownRouteProtocol {
    fn fmt(&self, f: &mut core::fmt::Formatter<'_>) -> core::fmt::Result {
        f.write_str("expected a name, as in static or bgp, or a number from 0 to 255")
    }
}

impl core::error::Error for UnknownRouteProtocol {}

impl core::str::FromStr for RouteProtocol {
    type Err = UnknownRouteProtocol;

    fn from_str(text: &str) -> Result<Self, Self::Err> {
        if let Some((number, _)) = Self::NAMES.iter().find(|(_, name)| *name == text) {
            return Ok(Self(*number));
        }
        if text.starts_with('+') {
            return Err(UnknownRouteProtocol);
        }
        text.parse().map(Self).map_err(|_| UnknownRouteProtocol)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn protocols_are_names_or_numbers() {
        for (text, shown) in [("static", "static"), ("4", "static"), ("99", "openr"), ("77", "77")]
        {
            assert_eq!(text.parse::<RouteProtocol>().unwrap().to_string(), shown);
        }
        for wrong in ["", "256", "-1", "+4", "Static", "stat"] {
            assert_eq!(wrong.parse::<RouteProtocol>(), Err(UnknownRouteProtocol), "{wrong}");
        }
    }
}
