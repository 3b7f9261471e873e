//! What was decided about a flow, in the form in which it is applied.

use core::fmt;
use std::net::IpAddr;

use packet::DropReason;
use tables::PolicySlot;
use wire::{Mac, PortId, SaSlot, Spi};

/// What happens to every packet of a flow. Plain data: it names policies and SAs, and holds none of
/// them.
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
    /// The largest packet in bytes that may go this way before it is encrypted: the port's MTU,
    /// less what the tunnel adds.
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
    Ethernet(EthernetHeader),
    /// An Ethernet header whose destination is not known yet: the packet waits until the next hop
    /// has answered.
    Unresolved(IpAddr),
}

/// An Ethernet header in two words, the second of 48 bits. It is made and copied without a detour
/// by memory: fourteen bytes written in parts and read as a whole would have to be waited for.
#[derive(Clone, Copy, PartialEq, Eq)]
pub struct EthernetHeader {
    pub(crate) first: u64,
    pub(crate) second: u64,
}

impl EthernetHeader {
    /// Its length in bytes.
    pub const LENGTH: usize = 14;

    /// Of an IP packet of the given family.
    #[inline(always)]
    pub(crate) fn new(destination: Mac, source: Mac, v6: bool) -> Self {
        let word = |Mac([a, b, c, d, e, f]): Mac| u64::from_le_bytes([a, b, c, d, e, f, 0, 0]);
        let (destination, source) = (word(destination), word(source));
        // The EtherTypes 0x86dd and 0x0800, as they lie in memory.
        let ether_type = if v6 { 0xdd86 } else { 0x0008 };
        Self { first: destination | source << 48, second: source >> 16 | ether_type << 32 }
    }

    /// Writes it to the first fourteen bytes of `room`.
    #[inline(always)]
    pub(crate) fn write(self, room: &mut [u8; Self::LENGTH]) {
        room[..8].copy_from_slice(&self.first.to_le_bytes());
        room[8..12].copy_from_slice(&(self.second as u32).to_le_bytes());
        room[12..].copy_from_slice(&((self.second >> 32) as u16).to_le_bytes());
    }

    /// As it goes on the wire.
    pub fn to_bytes(self) -> [u8; Self::LENGTH] {
        let mut bytes = [0; Self::LENGTH];
        self.write(&mut bytes);
        bytes
    }
}

/// The bytes.
impl fmt::Debug for EthernetHeader {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        self.to_bytes().fmt(f)
    }
}

impl Decision {
    /// Dropped in silence before any policy was consulted.
    pub const fn drop(reason: DropReason) -> Self {
        Self { verdict: Verdict::Drop(reason), inbound: None, outbound: None }
    }
}
