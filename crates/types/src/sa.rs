//! Security associations.

use crate::word::words;

/// How an SA wraps packets.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum SaMode {
    /// A new IP header in front (RFC 4301 section 3.2).
    #[default]
    Tunnel,
}

words!(SaMode { Tunnel = "tunnel" });

/// A flag of an SA, by iproute2's name.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub enum SaFlag {
    /// Do not copy the inner ECN field out, nor the outer one in.
    NoEcn,
    /// Never set DF on the outer IPv4 header.
    NoPmtuDisc,
    /// The tunnel may carry packets of the other address family, which it may in any case.
    AfUnspec,
}

words!(SaFlag { NoEcn = "noecn", NoPmtuDisc = "nopmtudisc", AfUnspec = "af-unspec" });
