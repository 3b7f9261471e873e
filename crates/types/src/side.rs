//! On which side of the IPsec boundary a port is.

use crate::word::words;

/// On which side of the IPsec boundary a port is (RFC 4301 section 3.1).
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Hash)]
#[repr(u8)]
pub enum Side {
    /// Nobody says: packets are asked for both ways, and what only one of them allows passes where
    /// no other reading of the boundary forbids it.
    #[default]
    Unset,
    /// Inside: what comes by it owes no inbound policy, what leaves by it no outbound one.
    Protected,
    /// Outside: towards the tunnels' remote ends.
    Unprotected,
}

words!(Side { Unset = "unset", Protected = "protected", Unprotected = "unprotected" });

/// How strictly the route to a clear packet's source must lead back to the port that the packet
/// came by (RFC 3704).
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Hash)]
pub enum ReversePath {
    /// Not at all.
    #[default]
    Off,
    /// There is a route that leads somewhere (RFC 3704 section 2.4).
    Loose,
    /// One of the route's next hops is by the port (RFC 3704 section 2.3).
    Feasible,
    /// Every next hop of the route is by the port (RFC 3704 section 2.2).
    Strict,
}

words!(ReversePath { Off = "off", Loose = "loose", Feasible = "feasible", Strict = "strict" });

/// Whether a VRF is an IPsec gateway, and so forwards nothing across its boundary while it has no
/// policies.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Hash)]
pub enum Ipsec {
    /// A plain router until the first policy comes, which makes it [`Ipsec::Required`].
    #[default]
    Auto,
    /// A plain router, which takes no policies.
    Off,
    /// A gateway: without policies it is closed.
    Required,
}

words!(Ipsec { Auto = "auto", Off = "off", Required = "required" });

/// Whether IKE (UDP 500 and 4500) for the gateway's own addresses is asked policies.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Hash)]
pub enum Ike {
    /// Not: tunnels need a key daemon, and it must be reached before there are any.
    #[default]
    Bypass,
    /// As other packets for the gateway.
    Policy,
}

words!(Ike { Bypass = "bypass", Policy = "policy" });
