//! Selectors and packets in the form in which they are compared.

use std::net::IpAddr;

use types::FieldsSelector;
use wire::{FlowKey, IpRange, PacketFields, Upper};

use crate::policy::{Selector, UpperSelector};

/// A selector as the scan reads it. Ranges are a first value and how much more the last is, so that
/// one subtraction and one comparison judge them.
#[derive(Clone, Copy, Debug)]
pub(super) struct Compact<A> {
    source: Range<A>,
    destination: Range<A>,
    /// Of the source port or ICMP type, and of the destination port or ICMP code.
    pub(super) upper: [Range<u16>; 2],
    fields: FieldsSelector,
    /// [`PORTS`] or [`ICMP`] where the packet must show these fields, 0 where it need not.
    upper_mask: u8,
    upper_kind: u8,
    pub(super) protocol: u8,
    /// 0xff, or 0 for any.
    pub(super) protocol_mask: u8,
    /// Among the chunk's policies.
    pub(super) position: u16,
}

#[derive(Clone, Copy, Debug)]
pub(super) struct Range<T> {
    pub(super) first: T,
    pub(super) width: T,
}

pub(super) const PORTS: u8 = 1;
const ICMP: u8 = 2;

/// What a packet's key says, in the same form.
pub(super) struct Probe<A> {
    pub(super) source: A,
    pub(super) destination: A,
    pub(super) protocol: u8,
    /// [`PORTS`], [`ICMP`] or 0, and the two fields.
    pub(super) upper: (u8, u16, u16),
    fields: PacketFields,
}

pub(in crate::spd) trait Address: Copy {
    fn within(self, range: Range<Self>) -> bool;
    fn range(first: Self, last: Self) -> Range<Self>;
}

macro_rules! address {
    ($($type:ty),*) => {$(
        impl Address for $type {
            #[inline(always)]
            fn within(self, range: Range<Self>) -> bool {
                self.wrapping_sub(range.first) <= range.width
            }

            fn range(first: Self, last: Self) -> Range<Self> {
                Range { first, width: last - first }
            }
        }
    )*};
}

address!(u16, u32, u128);

impl<A: Address> Compact<A> {
    pub(super) fn new(
        source: (A, A),
        destination: (A, A),
        selector: &Selector,
        position: u16,
    ) -> Self {
        let all = (0, u16::MAX);
        let (upper_kind, a, b) = match selector.upper {
            // Where a TCP packet's ports are known, its flags are.
            UpperSelector::Any if selector.fields.asks_tcp_flags() => (PORTS, all, all),
            UpperSelector::Any => (0, all, all),
            UpperSelector::Ports { source, destination } => {
                (PORTS, (source.first(), source.last()), (destination.first(), destination.last()))
            }
            UpperSelector::Icmp { kind, code } => {
                (ICMP, (kind.0.into(), kind.1.into()), (code.0.into(), code.1.into()))
            }
        };
        Self {
            source: A::range(source.0, source.1),
            destination: A::range(destination.0, destination.1),
            upper: [u16::range(a.0, a.1), u16::range(b.0, b.1)],
            fields: selector.fields,
            upper_mask: if upper_kind == 0 { 0 } else { 0xff },
            upper_kind,
            protocol: selector.protocol.unwrap_or_default().0,
            protocol_mask: if selector.protocol.is_some() { 0xff } else { 0 },
            position,
        }
    }

    /// Every packet with these addresses.
    pub(super) fn of_addresses(source: (A, A), destination: (A, A)) -> Self {
        Self {
            source: A::range(source.0, source.1),
            destination: A::range(destination.0, destination.1),
            upper: [u16::range(0, u16::MAX); 2],
            fields: FieldsSelector::ANY,
            upper_mask: 0,
            upper_kind: 0,
            protocol: 0,
            protocol_mask: 0,
            position: 0,
        }
    }

    /// Whether it selects ports.
    pub(super) fn names_ports(&self) -> bool {
        self.upper_kind == PORTS
    }

    /// As [`Compact::matches`], for packets whose addresses are likely to match.
    #[inline(always)]
    pub(super) fn matches_all(&self, probe: &Probe<A>) -> bool {
        let (kind, a, b) = probe.upper;
        let protocol = (self.protocol ^ probe.protocol) & self.protocol_mask;
        let upper = (self.upper_kind ^ kind) & self.upper_mask;
        probe.source.within(self.source)
            & probe.destination.within(self.destination)
            & ((protocol | upper) == 0)
            & self.fields.matches(probe.fields)
            & a.within(self.upper[0])
            & b.within(self.upper[1])
    }

    #[inline(always)]
    pub(super) fn matches(&self, probe: &Probe<A>) -> bool {
        // No short cuts among the cheap comparisons: a branch that goes astray costs more than all
        // of them.
        let addresses =
            probe.source.within(self.source) & probe.destination.within(self.destination);
        let (kind, a, b) = probe.upper;
        let protocol = (self.protocol ^ probe.protocol) & self.protocol_mask;
        let upper = (self.upper_kind ^ kind) & self.upper_mask;
        addresses
            && ((protocol | upper) == 0)
                & self.fields.matches(probe.fields)
                & a.within(self.upper[0])
                & b.within(self.upper[1])
    }
}

impl<A> Probe<A> {
    /// Of a packet with these addresses, which are the key's.
    #[inline(always)]
    pub(super) fn new(source: A, destination: A, key: &FlowKey) -> Self {
        let (protocol, upper) = (key.protocol.0, key_fields(key.upper));
        Self { source, destination, protocol, upper, fields: key.fields }
    }
}

#[inline(always)]
pub(super) fn first_match<A: Address>(selectors: &[Compact<A>], probe: &Probe<A>) -> Option<u16> {
    selectors.iter().find(|selector| selector.matches(probe)).map(|selector| selector.position)
}

/// Without a jump by kind, which for mixed traffic would go astray.
#[inline(always)]
fn key_fields(upper: Upper) -> (u8, u16, u16) {
    let (ports, source, destination) = match upper {
        Upper::Ports { source, destination } => (PORTS, source, destination),
        _ => (0, 0, 0),
    };
    let (icmp, kind, code) = match upper {
        Upper::Icmp { kind, code, .. } => (ICMP, kind, code),
        _ => (0, 0, 0),
    };
    (ports | icmp, source | u16::from(kind), destination | u16::from(code))
}

pub(super) fn v4_bounds(range: &IpRange) -> Option<(u32, u32)> {
    match (range.first(), range.last()) {
        (IpAddr::V4(first), IpAddr::V4(last)) => Some((first.to_bits(), last.to_bits())),
        _ => None,
    }
}

pub(super) fn v6_bounds(range: &IpRange) -> (u128, u128) {
    let bits = |address| match address {
        IpAddr::V4(address) => address.to_ipv6_mapped().to_bits(),
        IpAddr::V6(address) => address.to_bits(),
    };
    (bits(range.first()), bits(range.last()))
}
