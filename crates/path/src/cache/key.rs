//! A flow's key as the words that the cache compares.
//!
//! The same words for equal [`FlowKey`]s, others for others.
//!
//! | word, from the end | bits | what |
//! |---|---|---|
//! | last | 0-31 | port or SA slot that the packet came by; of an error, the port it is about, plus 1 |
//! | last | 32-63 | [`PacketFields`]: the bits that some policy of the VRF reads |
//! | last but one | 0-1 | kind of upper-layer fields |
//! | last but one | 2-3 | fragment class |
//! | last but one | 4-5 | kind of origin |
//! | last but one | 6-7 | free |
//! | last but one | 8-15 | protocol |
//! | last but one | 16-31 | VRF |
//! | last but one | 32-63 | ports, ICMP fields or SPI |
//!
//! In front of these stand the addresses: one word of IPv4, four of IPv6.

use std::net::{IpAddr, Ipv4Addr, Ipv6Addr};

use tables::{PolicyHeader, Shown, V4_WORDS, V6_WORDS, upper_words};
use wire::common::Common;
use wire::{
    Addresses, FlowKey, FragmentClass, Headers, Origin, PacketFields, PortId, Protocol, SaSlot,
    Spi, Upper, VrfId,
};

use crate::batch::Arrival;
use crate::decide::KeyView;

/// Words of an IPv4 key.
pub(crate) const V4: usize = 3;
/// Words of an IPv6 key.
pub(crate) const V6: usize = 6;

/// What all packets of one arrival have in their keys.
#[derive(Clone, Copy)]
pub(crate) struct Prefix {
    class: u64,
    origin: u64,
}

impl Prefix {
    #[inline]
    pub(crate) fn new(arrival: Arrival) -> Self {
        let (from, origin) = match arrival.origin {
            Origin::Port(port) => (0, u64::from(port.0)),
            Origin::Sa(slot) => (1, u64::from(slot.0)),
            // A port is a number of 16 bits.
            Origin::Host => (2, 0),
            Origin::HostError(port) => (2, u64::from(port.0) + 1),
            Origin::HostProtected => (3, 0),
        };
        Self { class: u64::from(arrival.vrf.0) << 16 | from << 4, origin }
    }

    /// Of packets that came by another port of the same VRF, if these came by a port.
    #[inline(always)]
    pub(crate) fn by_port(self, port: PortId) -> Self {
        Self { origin: port.0.into(), ..self }
    }

    /// The last two words for a common packet, of whose optional fields this is read.
    #[inline(always)]
    pub(crate) fn of_common(self, common: &Common, fields: PacketFields) -> [u64; 2] {
        [common.class | self.class, self.origin | u64::from(fields.bits()) << 32]
    }

    /// The last two words for any packet, in a VRF whose policies read these bits.
    fn of(self, headers: &Headers, reads: PacketFields) -> [u64; 2] {
        let (kind, upper) = match headers.upper {
            Upper::None => (0, 0),
            Upper::Ports { source, destination } => {
                (1, u32::from(source) << 16 | u32::from(destination))
            }
            Upper::Icmp { kind, code, identifier } => {
                (2, u32::from(kind) << 24 | u32::from(code) << 16 | u32::from(identifier))
            }
            Upper::Spi(spi) => (3, spi.0),
        };
        let fragment = match headers.fragment.class {
            FragmentClass::Whole => 0,
            FragmentClass::First => 1,
            FragmentClass::Later => 2,
        };
        let class = u64::from(upper) << 32 | u64::from(headers.protocol.0) << 8;
        let fields = headers.fields() & reads;
        let origin = self.origin | u64::from(fields.bits()) << 32;
        [class | kind | fragment << 2 | self.class, origin]
    }
}

/// The words of a packet's key.
pub(crate) enum Words {
    V4([u64; V4]),
    V6([u64; V6]),
}

/// The key of any packet, in a VRF whose policies read these bits of its optional fields.
pub(crate) fn words(headers: &Headers, arrival: Arrival, reads: PacketFields) -> Words {
    let [class, origin] = Prefix::new(arrival).of(headers, reads);
    match headers.addresses {
        Addresses::V4 { source, destination } => {
            let addresses = u64::from(source.to_bits()) << 32 | u64::from(destination.to_bits());
            Words::V4([addresses, class, origin])
        }
        Addresses::V6 { source, destination } => {
            let ([a, b], [c, d]) = (halves(source), halves(destination));
            Words::V6([a, b, c, d, class, origin])
        }
    }
}

/// The flow that an IPv4 key names.
#[inline(always)]
pub(crate) fn flow_v4(key: &[u64; V4]) -> FlowKey {
    let [addresses, class, origin] = *key;
    let source = Ipv4Addr::from_bits((addresses >> 32) as u32);
    let destination = Ipv4Addr::from_bits(addresses as u32);
    flow(Addresses::V4 { source, destination }, class, origin)
}

/// The flow that an IPv6 key names.
#[inline(always)]
pub(crate) fn flow_v6(key: &[u64; V6]) -> FlowKey {
    let [a, b, c, d, class, origin] = *key;
    let address = |high, low| Ipv6Addr::from_bits(u128::from(high) << 64 | u128::from(low));
    flow(Addresses::V6 { source: address(a, b), destination: address(c, d) }, class, origin)
}

#[inline(always)]
fn flow(addresses: Addresses, class: u64, origin: u64) -> FlowKey {
    let upper = (class >> 32) as u32;
    FlowKey {
        vrf: VrfId((class >> 16) as u16),
        origin: self::origin(class, origin),
        addresses,
        protocol: Protocol((class >> 8) as u8),
        fragment: fragment(class),
        upper: match class & 3 {
            0 => Upper::None,
            1 => Upper::Ports { source: (upper >> 16) as u16, destination: upper as u16 },
            2 => Upper::Icmp {
                kind: (upper >> 24) as u8,
                code: (upper >> 16) as u8,
                identifier: upper as u16,
            },
            _ => Upper::Spi(Spi(upper)),
        },
        fields: PacketFields::from_bits((origin >> 32) as u32),
    }
}

/// A key's packet, as IPv4 policies see it.
#[inline(always)]
pub(crate) fn header_v4(key: &[u64; V4]) -> PolicyHeader<V4_WORDS> {
    let [addresses, class, origin] = *key;
    let [pair, rest] = policy_words(class, origin);
    PolicyHeader([(addresses >> 32) as u32, addresses as u32, pair, rest])
}

/// A key's packet, as IPv6 policies see it.
#[inline(always)]
pub(crate) fn header_v6(key: &[u64; V6]) -> PolicyHeader<V6_WORDS> {
    let [a, b, c, d, class, origin] = *key;
    let [pair, rest] = policy_words(class, origin);
    let high = |word: u64| (word >> 32) as u32;
    PolicyHeader([
        high(a),
        a as u32,
        high(b),
        b as u32,
        high(c),
        c as u32,
        high(d),
        d as u32,
        pair,
        rest,
    ])
}

#[inline(always)]
fn policy_words(class: u64, origin: u64) -> [u32; 2] {
    let upper = (class >> 32) as u32;
    let (shown, pair) = match class & 3 {
        1 => (Shown::Ports, ((upper >> 16) as u16, upper as u16)),
        2 => (Shown::Icmp, ((upper >> 24) as u16, (upper >> 16 & 0xff) as u16)),
        _ => (Shown::Nothing, (0, 0)),
    };
    upper_words(shown, pair, (class >> 8) as u8, (origin >> 32) as u32)
}

/// An IPv4 key, to be read in parts.
#[derive(Clone, Copy)]
pub(crate) struct ViewV4(pub [u64; V4]);

/// An IPv6 key, to be read in parts.
#[derive(Clone, Copy)]
pub(crate) struct ViewV6(pub [u64; V6]);

macro_rules! view {
    ($view:ident, $words:ident, $flow:ident) => {
        impl KeyView for $view {
            #[inline(always)]
            fn vrf(self) -> VrfId {
                VrfId(vrf(self.0[$words - 2]))
            }

            #[inline(always)]
            fn origin(self) -> Origin {
                origin(self.0[$words - 2], self.0[$words - 1])
            }

            #[inline(always)]
            fn source(self) -> IpAddr {
                $flow(&self.0).addresses.source()
            }

            #[inline(always)]
            fn destination(self) -> IpAddr {
                $flow(&self.0).addresses.destination()
            }

            #[inline(always)]
            fn fragment(self) -> FragmentClass {
                fragment(self.0[$words - 2])
            }

            #[inline(always)]
            fn esp(self) -> Option<Spi> {
                let class = self.0[$words - 2];
                let is_esp = class & 0xff03 == u64::from(Protocol::ESP.0) << 8 | 3;
                is_esp.then_some(Spi((class >> 32) as u32))
            }

            #[inline(always)]
            fn flow(self) -> FlowKey {
                $flow(&self.0)
            }
        }
    };
}

view!(ViewV4, V4, flow_v4);
view!(ViewV6, V6, flow_v6);

#[inline(always)]
fn origin(class: u64, origin: u64) -> Origin {
    match class >> 4 & 3 {
        0 => Origin::Port(PortId(origin as u16)),
        1 => Origin::Sa(SaSlot(origin as u32)),
        2 => match origin as u32 {
            0 => Origin::Host,
            port => Origin::HostError(PortId((port - 1) as u16)),
        },
        _ => Origin::HostProtected,
    }
}

#[inline(always)]
fn fragment(class: u64) -> FragmentClass {
    match class >> 2 & 3 {
        0 => FragmentClass::Whole,
        1 => FragmentClass::First,
        _ => FragmentClass::Later,
    }
}

/// The VRF in a key's last word but one.
#[inline(always)]
pub(crate) fn vrf(class: u64) -> u16 {
    (class >> 16) as u16
}

/// Whether a key is of whole packets with ports.
#[inline(always)]
pub(crate) fn has_ports<const WORDS: usize>(key: &[u64; WORDS]) -> bool {
    key[WORDS - 2] & 0xf == 1
}

/// The sum of a key's addresses, in 32 bits each, as checksums need it.
#[inline(always)]
pub(crate) fn address_sum<const WORDS: usize>(key: &[u64; WORDS]) -> u64 {
    key[..WORDS - 2].iter().map(|word| (word >> 32) + (word & 0xffff_ffff)).sum()
}

fn halves(address: Ipv6Addr) -> [u64; 2] {
    let bits = address.to_bits();
    [(bits >> 64) as u64, bits as u64]
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;
    use wire::TcpFlags;

    use super::*;

    fn few<T: Clone + core::fmt::Debug + 'static>(
        values: &[T],
    ) -> impl Strategy<Value = T> + use<T> {
        proptest::sample::select(values.to_vec())
    }

    fn flows() -> impl Strategy<Value = (Headers, Arrival, PacketFields)> {
        let upper = few(&[
            Upper::None,
            Upper::Ports { source: 1, destination: 2 },
            Upper::Ports { source: 0, destination: 258 },
            Upper::Icmp { kind: 0, code: 1, identifier: 2 },
            Upper::Spi(Spi(65_538)),
        ]);
        let addresses = few(&[
            Addresses::V4 { source: [0, 0, 0, 1].into(), destination: [0, 0, 0, 2].into() },
            Addresses::V4 { source: [0, 0, 0, 2].into(), destination: [0, 0, 0, 1].into() },
            Addresses::V6 { source: 1.into(), destination: 2.into() },
            Addresses::V6 { source: (1 << 64).into(), destination: 2.into() },
        ]);
        let origin = few(&[
            Origin::Port(PortId(0)),
            Origin::Port(PortId(1)),
            Origin::Sa(SaSlot(0)),
            Origin::Sa(SaSlot(1)),
            Origin::Host,
            Origin::HostError(PortId(0)),
            Origin::HostError(PortId(u16::MAX)),
            Origin::HostProtected,
        ]);
        let fragment = few(&[FragmentClass::Whole, FragmentClass::First, FragmentClass::Later]);
        let fields = (0u8..2, 0u8..8, 0u8..2);
        let reads = any::<u32>().prop_map(PacketFields::from_bits);
        (addresses, upper, origin, fragment, 0u16..2, 0u8..2, fields, reads).prop_map(
            |(addresses, upper, origin, class, vrf, protocol, (flags, traffic, ttl), reads)| {
                let mut headers = Headers {
                    addresses,
                    upper,
                    protocol: Protocol(protocol),
                    tcp_flags: TcpFlags(flags),
                    traffic_class: traffic,
                    hop_limit: ttl,
                    ..Headers::NONE
                };
                headers.fragment.class = class;
                (headers, Arrival::new(VrfId(vrf), origin), reads)
            },
        )
    }

    proptest! {
        /// The words say all that the key says, so they are equal only for equal keys.
        #[test]
        fn a_flow_survives_as_words((headers, arrival, reads) in flows()) {
            let key = headers.key(arrival.vrf, arrival.origin, reads);
            fn parts(key: impl KeyView) -> impl PartialEq + core::fmt::Debug {
                let addresses = (key.source(), key.destination());
                (key.vrf(), key.origin(), addresses, key.fragment(), key.esp(), key.flow())
            }
            let again = match words(&headers, arrival, reads) {
                Words::V4(words) => format!("{:?}", parts(ViewV4(words))),
                Words::V6(words) => format!("{:?}", parts(ViewV6(words))),
            };
            prop_assert_eq!(again, format!("{:?}", parts(key)));
        }
    }
}
