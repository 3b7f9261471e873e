//! What was decided about a flow, in the form in which it is applied.

use std::net::IpAddr;

use packet::DropReason;
use tables::PolicySlot;
use wire::{PortId, SaSlot, Spi};

/// What happens to every packet of a flow. Plain data: it names policies and SAs, and holds none of them.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Decision {
    /// What happens.
    pub verdict: Verdict,
    /// The `in` or `fwd` policy that admitted or refused the packet; it counts it.
    pub inbound: Option<PolicySlot>,
    /// The `out` policy that let it leave or refused it; it counts it.
    pub outbound: Option<PolicySlot>,
}

/// What happens to a packet.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Verdict {
    /// Dropped in silence.
    Drop(DropReason),
    /// Dropped, and the sender is told, within the rate limit.
    Refuse(DropReason, Refusal),
    /// Sent on in clear.
    Forward(Exit),
    /// Encrypted by the newest SA of the slot, and the outer packet sent on.
    Protect(SaSlot, Exit),
    /// ESP for the gateway: decrypted, and the inner packet handled anew.
    Decrypt(SaSlot, Spi),
    /// A fragment for the gateway: kept until its datagram is whole, which is then handled anew.
    Reassemble,
    /// For the gateway's own ICMP, or nobody there.
    Deliver,
}

/// What the sender of a refused packet is told.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Refusal {
    /// No route: network unreachable (ICMP), no route to destination (ICMPv6).
    NoRoute,
    /// Host unreachable (ICMP), address unreachable (ICMPv6).
    HostUnreachable,
    /// Communication administratively prohibited.
    Prohibited,
}

/// By which way a packet leaves.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Exit {
    /// The port.
    pub port: PortId,
    /// The largest packet in bytes that may go this way before it is encrypted: the port's MTU, less what the tunnel adds.
    pub limit: u16,
    /// What goes in front of it.
    pub link: LinkHeader,
}

/// What a packet gets in front on its way out.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum LinkHeader {
    /// Nothing: the link carries IP packets as they are.
    None,
    /// This Ethernet header.
    Ethernet([u8; 14]),
    /// An Ethernet header whose destination is not known yet: the packet waits until the next hop has answered.
    Unresolved(IpAddr),
}

impl Decision {
    /// Dropped in silence before any policy was consulted.
    pub const fn drop(reason: DropReason) -> Self {
        Self { verdict: Verdict::Drop(reason), inbound: None, outbound: None }
    }
}
