//! Filters: where packets are filtered, and what becomes of them.

use crate::word::words;

/// When a filter sees packets.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
#[repr(u8)]
pub enum FilterHook {
    /// Before routing: what came by a port or was decrypted.
    Ingress,
    /// After routing and before encryption: what is forwarded, and what the gateway itself sends.
    Egress,
}

words!(FilterHook { Ingress = "ingress", Egress = "egress" });

/// What a filter's rule does to packets, in the words of tc's `action`.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum FilterVerdict {
    /// Goes on; no later rule of this filter is asked.
    Pass,
    /// Dropped in silence.
    Drop,
    /// Dropped, and the sender is told.
    Reject,
}

words!(FilterVerdict { Pass = "pass", Drop = "drop", Reject = "reject" });

/// How the sender of a rejected packet is told, in the words of iptables' `--reject-with`, for both
/// families.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Hash)]
#[repr(u8)]
pub enum RejectWith {
    /// Communication administratively prohibited.
    #[default]
    AdminProhibited,
    /// Port unreachable.
    Port,
    /// Host (IPv6: address) unreachable.
    Host,
    /// Network unreachable (IPv6: no route).
    Net,
    /// A TCP reset (RFC 9293 section 3.10.7.1). Packets that are not TCP are told as by
    /// [`RejectWith::AdminProhibited`].
    TcpReset,
}

words!(RejectWith {
    AdminProhibited = "icmp-admin-prohibited",
    Port = "icmp-port-unreachable",
    Host = "icmp-host-unreachable",
    Net = "icmp-net-unreachable",
    TcpReset = "tcp-reset",
});
