//! The outer header of tunnel mode (RFC 4301 section 5.1.2).

use std::net::IpAddr;

use tables::Sa;
use wire::{Protocol, ipv4, ipv6};

/// Explicit congestion notification, the low two bits of the traffic class (RFC 3168 section 5).
const ECN: u8 = 0b11;
const ECT_0: u8 = 0b10;
const ECT_1: u8 = 0b01;
const CONGESTION_EXPERIENCED: u8 = 0b11;

/// The largest inner packet in bytes whose outer packet is no larger than `mtu`.
pub(crate) fn inner_limit(sa: &Sa, mtu: u16) -> u16 {
    let room = usize::from(mtu).saturating_sub(outer_header(sa));
    let limit = sa.outbound.algorithm().max_payload(room);
    u16::try_from(limit).unwrap_or(u16::MAX)
}

/// The length of the outer packet of an inner one.
pub(crate) fn outer_length(sa: &Sa, length: usize) -> usize {
    outer_header(sa) + sa.outbound.algorithm().sealed_length(length)
}

fn outer_header(sa: &Sa) -> usize {
    match sa.spec.identity.destination {
        IpAddr::V4(_) => ipv4::HEADER_LENGTH,
        IpAddr::V6(_) => ipv6::HEADER_LENGTH,
    }
}

/// What the inner packet tells its outer header.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Inner {
    /// DSCP and ECN.
    pub traffic_class: u8,
    /// IPv4's don't-fragment bit, or that it is IPv6.
    pub dont_fragment: bool,
}

impl Inner {
    /// Of a well-formed IP packet.
    pub(crate) fn of(packet: &[u8]) -> Self {
        const DONT_FRAGMENT: u8 = 0x40;
        let Some(&[first, second, _, _, _, _, flags]) = packet.first_chunk() else {
            return Self { traffic_class: 0, dont_fragment: false };
        };
        match first >> 4 {
            4 => Self { traffic_class: second, dont_fragment: flags & DONT_FRAGMENT != 0 },
            _ => Self { traffic_class: first << 4 | second >> 4, dont_fragment: true },
        }
    }
}

/// An outer header, of either family.
pub(crate) enum Outer {
    V4([u8; ipv4::HEADER_LENGTH]),
    V6([u8; ipv6::HEADER_LENGTH]),
}

impl Outer {
    /// The header for an ESP packet of `length` bytes. DSCP and ECN are copied (RFC 4301 section
    /// 5.1.2.1, RFC 6040 section 4.1 normal mode), the DF bit too unless the SA says otherwise.
    #[inline]
    pub(crate) fn new(sa: &Sa, inner: Inner, length: usize, identification: u16) -> Self {
        let traffic_class =
            if sa.spec.no_ecn { inner.traffic_class & !ECN } else { inner.traffic_class };
        match (sa.spec.identity.source, sa.spec.identity.destination) {
            (IpAddr::V4(source), IpAddr::V4(destination)) => Self::V4(
                ipv4::Header {
                    traffic_class,
                    total_length: (ipv4::HEADER_LENGTH + length) as u16,
                    identification,
                    dont_fragment: inner.dont_fragment && !sa.spec.no_pmtu_discovery,
                    protocol: Protocol::ESP,
                    source,
                    destination,
                    ..ipv4::Header::default()
                }
                .to_bytes(),
            ),
            (IpAddr::V6(source), IpAddr::V6(destination)) => Self::V6(
                ipv6::Header {
                    traffic_class,
                    payload_length: length as u16,
                    next_header: Protocol::ESP,
                    source,
                    destination,
                    ..ipv6::Header::default()
                }
                .to_bytes(),
            ),
            (IpAddr::V4(_), IpAddr::V6(_)) | (IpAddr::V6(_), IpAddr::V4(_)) => {
                unreachable!("the SAD refuses tunnels whose ends are of two families")
            }
        }
    }

    pub(crate) fn bytes(&self) -> &[u8] {
        match self {
            Self::V4(header) => header,
            Self::V6(header) => header,
        }
    }
}

/// Carries congestion seen on the outer way into the decrypted packet (RFC 6040 section 4.2).
/// Returns false if the packet must be dropped: congestion experienced, and the inner packet's
/// ends do not know of ECN.
#[must_use]
pub(crate) fn propagate_congestion(inner: &mut [u8], outer_traffic_class: u8) -> bool {
    let outer = outer_traffic_class & ECN;
    let [first, second, ..] = *inner else { return true };
    let v6 = first >> 4 == 6;
    let traffic_class = if v6 { first << 4 | second >> 4 } else { second };
    match (outer, traffic_class & ECN) {
        (CONGESTION_EXPERIENCED, 0) => return false,
        (CONGESTION_EXPERIENCED, ECT_0 | ECT_1) | (ECT_1, ECT_0) => {}
        _ => return true,
    }
    let traffic_class = traffic_class & !ECN | outer;
    match v6 {
        true => ipv6::set_traffic_class(inner, traffic_class),
        false => ipv4::set_traffic_class(inner, traffic_class),
    }
    true
}
