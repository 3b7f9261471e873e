//! Random packets of every shape, with what is to be found in them.

use core::net::{Ipv4Addr, Ipv6Addr};

use proptest::collection::vec;
use proptest::prelude::*;
use proptest::sample::select;
use wire::headers::{Fragment, Headers};
use wire::{Addresses, FragmentClass, Protocol, Spi, TcpFlags, Upper, ipv4, ipv6};

/// A packet that [`wire::headers::parse`] accepts, and its answer.
#[derive(Clone, Debug)]
pub(crate) struct Built {
    pub(crate) bytes: Vec<u8>,
    pub(crate) headers: Headers,
}

/// IPv4 with and without options, IPv6 with up to eight extension headers, whole and in fragments,
/// over every protocol that has fields, with and without padding behind.
pub(crate) fn any_packet() -> impl Strategy<Value = Built> {
    (prop_oneof![any_v4(), any_v6()], vec(any::<u8>(), 0..20)).prop_map(|(mut built, padding)| {
        built.bytes.extend(padding);
        built
    })
}

fn any_v4() -> impl Strategy<Value = Built> {
    let options = select(vec![
        vec![],
        vec![],
        vec![1, 1, 1, 1],
        vec![148, 4, 0, 0],
        vec![7, 7, 4, 0, 0, 0, 0, 0],
        vec![131, 7, 4, 192, 0, 2, 9, 1],
        vec![1; 40],
    ]);
    // 1.0.0.0 to 126.255.255.255: hosts.
    let host = (1u32 << 24..127 << 24).prop_map(Ipv4Addr::from_bits);
    // And groups, and the limited broadcast address.
    let anyone = prop_oneof![(1u32 << 24..127 << 24), (128u32 << 24..240 << 24), Just(u32::MAX),]
        .prop_map(Ipv4Addr::from_bits);
    (any_upper(false), any_fragment(false), options, (host, anyone), any::<(u8, u8, bool)>())
        .prop_map(
            |(
                upper,
                fragment,
                options,
                (source, destination),
                (traffic_class, ttl, dont_fragment),
            )| {
                let upper = upper.of_fragment(&fragment);
                let header_length = ipv4::HEADER_LENGTH + options.len();
                let header = ipv4::Header {
                    traffic_class,
                    total_length: (header_length + upper.bytes.len()) as u16,
                    identification: fragment.identification as u16,
                    dont_fragment,
                    more_fragments: fragment.more,
                    fragment_offset: fragment.offset,
                    ttl,
                    protocol: upper.protocol,
                    source,
                    destination,
                };
                let mut bytes = [&header.to_bytes(), options.as_slice(), &upper.bytes].concat();
                bytes[0] = 0x40 | (header_length / 4) as u8;
                ipv4::fill_checksum(&mut bytes);
                let headers = Headers {
                    addresses: Addresses::V4 { source, destination },
                    protocol: upper.protocol,
                    upper: upper.fields,
                    tcp_flags: upper.tcp_flags(),
                    fragment: Fragment {
                        identification: fragment.identification & 0xffff,
                        ..fragment
                    },
                    hop_limit: ttl,
                    traffic_class,
                    dont_fragment,
                    has_options: !options.is_empty(),
                    upper_offset: header_length as u16,
                    fragment_header_offset: 0,
                    total_length: header.total_length,
                };
                Built { bytes, headers }
            },
        )
}

fn any_v6() -> impl Strategy<Value = Built> {
    let kinds = [
        Protocol::ROUTING,
        Protocol::DESTINATION_OPTIONS,
        Protocol::MOBILITY,
        Protocol::HIP,
        Protocol::SHIM6,
    ];
    let extension = (select(kinds.to_vec()), vec(any::<[u8; 8]>(), 1..4));
    let chain = (prop::option::of(vec(any::<[u8; 8]>(), 1..3)), vec(extension, 0..6), 0usize..8);
    // 2000::/3: hosts, and groups of global scope for a destination.
    let host = any::<u128>().prop_map(|bits| Ipv6Addr::from_bits(bits >> 3 | 1 << 125));
    let group = any::<u128>().prop_map(|bits| Ipv6Addr::from_bits(bits >> 16 | 0xff0e << 112));
    let fragment = prop::option::of(any_fragment(true));
    (
        any_upper(true),
        fragment,
        chain,
        (host.clone(), prop_oneof![host, group]),
        any::<(u8, u32, u8)>(),
    )
        .prop_map(
            |(
                upper,
                fragment,
                (hop_by_hop, extensions, fragment_at),
                (source, destination),
                numbers,
            )| {
                let (traffic_class, flow_label, hop_limit) = numbers;
                let upper = match &fragment {
                    Some(fragment) => upper.of_fragment(fragment),
                    None => upper,
                };
                let mut chain: Vec<(Protocol, Vec<u8>)> = Vec::new();
                chain.extend(hop_by_hop.map(|words| (Protocol::HOP_BY_HOP, words.concat())));
                let fixed = chain.len();
                chain.extend(extensions.into_iter().map(|(kind, words)| (kind, words.concat())));
                for (_, body) in &mut chain {
                    body[1] = (body.len() / 8 - 1) as u8;
                }
                let mut fragment_index = None;
                if let Some(fragment) = &fragment {
                    let word = (fragment.offset | u16::from(fragment.more)).to_be_bytes();
                    let header = [[0, 0], word]
                        .concat()
                        .into_iter()
                        .chain(fragment.identification.to_be_bytes())
                        .collect();
                    // Behind a later fragment's header is payload.
                    let at = match fragment.class {
                        FragmentClass::Later => chain.len(),
                        _ => (fixed + fragment_at).min(chain.len()),
                    };
                    chain.insert(at, (Protocol::FRAGMENT, header));
                    fragment_index = Some(at);
                }
                let has_options = chain.len() > usize::from(fragment.is_some());
                let mut payload = Vec::new();
                let mut fragment_header_offset = 0;
                for index in 0..chain.len() {
                    if fragment_index == Some(index) {
                        fragment_header_offset = (ipv6::HEADER_LENGTH + payload.len()) as u16;
                    }
                    let next = chain.get(index + 1).map_or(upper.protocol, |(kind, _)| *kind);
                    chain[index].1[0] = next.0;
                    payload.extend_from_slice(&chain[index].1);
                }
                let upper_offset = (ipv6::HEADER_LENGTH + payload.len()) as u16;
                payload.extend_from_slice(&upper.bytes);
                let header = ipv6::Header {
                    traffic_class,
                    flow_label,
                    payload_length: payload.len() as u16,
                    next_header: chain.first().map_or(upper.protocol, |(kind, _)| *kind),
                    hop_limit,
                    source,
                    destination,
                };
                // Of a first fragment, what follows its header is a multiple of 8 already:
                // extension headers are too.
                let bytes = [header.to_bytes().as_slice(), &payload].concat();
                let headers = Headers {
                    addresses: Addresses::V6 { source, destination },
                    protocol: upper.protocol,
                    upper: upper.fields,
                    tcp_flags: upper.tcp_flags(),
                    fragment: fragment.unwrap_or_default(),
                    hop_limit,
                    traffic_class,
                    dont_fragment: true,
                    has_options,
                    upper_offset,
                    fragment_header_offset,
                    total_length: bytes.len() as u16,
                };
                Built { bytes, headers }
            },
        )
}

fn any_fragment(v6: bool) -> impl Strategy<Value = Fragment> {
    (0..4, any::<u32>(), 2u16..7000, any::<bool>()).prop_map(
        move |(shape, identification, units, more)| {
            let identification = if v6 { identification } else { identification & 0xffff };
            let (class, offset, more) = match shape {
                0 => (FragmentClass::First, 0, true),
                1 => (FragmentClass::Later, units * 8, more),
                _ => (FragmentClass::Whole, 0, false),
            };
            Fragment { class, identification, offset, more }
        },
    )
}

#[derive(Clone, Debug)]
struct UpperPart {
    protocol: Protocol,
    fields: Upper,
    bytes: Vec<u8>,
}

impl UpperPart {
    /// Those of a header that is there.
    fn tcp_flags(&self) -> TcpFlags {
        match self.fields {
            Upper::Ports { .. } if self.protocol == Protocol::TCP => TcpFlags(self.bytes[13]),
            _ => TcpFlags::default(),
        }
    }

    fn of_fragment(mut self, fragment: &Fragment) -> Self {
        if fragment.class == FragmentClass::Later {
            self.fields = Upper::None;
        }
        if fragment.more || self.bytes.is_empty() {
            self.bytes.resize(self.bytes.len().next_multiple_of(8).max(8), 0);
        }
        self
    }
}

/// At least as long as the protocol's header.
fn any_upper(v6: bool) -> impl Strategy<Value = UpperPart> {
    let icmp = if v6 { Protocol::ICMPV6 } else { Protocol::ICMP };
    let protocols = vec![
        Protocol::TCP,
        Protocol::UDP,
        Protocol::UDP_LITE,
        Protocol::SCTP,
        Protocol::DCCP,
        Protocol::ESP,
        icmp,
        Protocol::AH,
        Protocol::IPV4,
        Protocol::IPV6,
        Protocol(253),
    ];
    (select(protocols), any::<[u8; 8]>(), vec(any::<u8>(), 0..120), any::<bool>()).prop_map(
        move |(protocol, first, rest, echo)| {
            let mut bytes = [first.as_slice(), &rest].concat();
            bytes.resize(bytes.len().max(20), 0);
            if protocol == icmp && echo {
                bytes[0] = if v6 { 128 } else { 8 };
            }
            let word = |at: usize| u16::from_be_bytes([bytes[at], bytes[at + 1]]);
            let fields = if protocol.has_ports() {
                Upper::Ports { source: word(0), destination: word(2) }
            } else if protocol == Protocol::ESP {
                Upper::Spi(Spi(u32::from(word(0)) << 16 | u32::from(word(2))))
            } else if protocol == icmp {
                let is_query = match v6 {
                    true => matches!(bytes[0], 128 | 129),
                    false => [0, 8, 13, 14, 15, 16, 17, 18].contains(&bytes[0]),
                };
                Upper::Icmp {
                    kind: bytes[0],
                    code: bytes[1],
                    identifier: if is_query { word(4) } else { 0 },
                }
            } else {
                Upper::None
            };
            UpperPart { protocol, fields, bytes }
        },
    )
}
