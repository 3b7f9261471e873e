//! The same packets before another library, where it and we mean the same.
//!
//! It does not judge checksums, options, addresses or fragment fields, so it accepts more; it looks
//! into AH and into the payload of later fragments, and not behind mobility, HIP and Shim6 headers,
//! so those are left out.

use etherparse::IpSlice;
use proptest::prelude::*;
use wire::headers::{self, Headers};
use wire::{FragmentClass, Protocol, Upper, ipv4};

use crate::packets::any_packet;

fn compare(bytes: &[u8], ours: &Headers) -> Result<(), TestCaseError> {
    let is_later_v6 = ours.addresses.is_v6() && ours.fragment.class == FragmentClass::Later;
    if ours.protocol == Protocol::AH || (is_later_v6 && looks_into(ours.protocol)) {
        return Ok(());
    }
    let theirs = IpSlice::from_slice(bytes);
    prop_assert!(theirs.is_ok(), "we accept what it refuses: {:?}", theirs);
    let Ok(theirs) = theirs else { return Ok(()) };
    prop_assert_eq!(theirs.source_addr(), ours.addresses.source());
    prop_assert_eq!(theirs.destination_addr(), ours.addresses.destination());
    match &theirs {
        IpSlice::Ipv4(slice) => {
            let header = slice.header();
            prop_assert_eq!(header.ttl(), ours.hop_limit);
            prop_assert_eq!(header.dcp().value() << 2 | header.ecn().value(), ours.traffic_class);
            prop_assert_eq!(header.dont_fragment(), ours.dont_fragment);
            prop_assert_eq!(header.more_fragments(), ours.fragment.more);
            prop_assert_eq!(header.fragments_offset().byte_offset(), ours.fragment.offset);
            prop_assert_eq!(u32::from(header.identification()), ours.fragment.identification);
            prop_assert_eq!(header.total_len(), ours.total_length);
            prop_assert_eq!(!header.options().is_empty(), ours.has_options);
        }
        IpSlice::Ipv6(slice) => {
            prop_assert_eq!(slice.header().hop_limit(), ours.hop_limit);
            prop_assert_eq!(slice.header().traffic_class(), ours.traffic_class);
            prop_assert_eq!(slice.header().payload_length() + 40, ours.total_length);
        }
    }
    let is_fragment = ours.fragment.class != FragmentClass::Whole;
    if is_later_v6 {
        return Ok(());
    }
    let payload = theirs.payload();
    prop_assert_eq!(payload.fragmented, is_fragment);
    prop_assert_eq!(payload.ip_number.0, ours.protocol.0);
    prop_assert_eq!(payload.payload, ours.upper_bytes(bytes));
    match ours.upper {
        Upper::Ports { source, destination } if ours.protocol == Protocol::UDP => {
            let udp = etherparse::UdpHeaderSlice::from_slice(payload.payload);
            prop_assert_eq!(
                udp.map(|udp| (udp.source_port(), udp.destination_port())),
                Ok((source, destination))
            );
        }
        Upper::Ports { source, destination } if ours.protocol == Protocol::TCP => {
            // Its header may be longer than what is there, which is the receiver's to judge.
            if let Ok(tcp) = etherparse::TcpHeaderSlice::from_slice(payload.payload) {
                prop_assert_eq!((tcp.source_port(), tcp.destination_port()), (source, destination));
                let flags = [
                    tcp.fin(),
                    tcp.syn(),
                    tcp.rst(),
                    tcp.psh(),
                    tcp.ack(),
                    tcp.urg(),
                    tcp.ece(),
                    tcp.cwr(),
                ];
                let flags = (0..8).fold(0, |all, bit| all | u8::from(flags[bit]) << bit);
                prop_assert_eq!(flags, ours.tcp_flags.0);
            }
        }
        Upper::Icmp { kind, code, .. } if ours.protocol == Protocol::ICMPV6 => {
            let icmp = etherparse::Icmpv6Slice::from_slice(payload.payload);
            prop_assert_eq!(icmp.map(|icmp| (icmp.type_u8(), icmp.code_u8())), Ok((kind, code)));
        }
        _ => {}
    }
    Ok(())
}

fn looks_into(protocol: Protocol) -> bool {
    matches!(protocol, Protocol::ROUTING | Protocol::FRAGMENT | Protocol::DESTINATION_OPTIONS)
}

/// Whether an extension header that only we look behind is in the way. Only asked of packets that
/// we accept.
fn has_headers_it_does_not_know(bytes: &[u8]) -> bool {
    let unknown =
        |protocol| matches!(protocol, Protocol::MOBILITY | Protocol::HIP | Protocol::SHIM6);
    let (mut next, mut at) = (Protocol(bytes[6]), 40);
    loop {
        match next {
            Protocol::FRAGMENT => (next, at) = (Protocol(bytes[at]), at + 8),
            Protocol::HOP_BY_HOP | Protocol::ROUTING | Protocol::DESTINATION_OPTIONS
                if at + 1 < bytes.len() =>
            {
                (next, at) = (Protocol(bytes[at]), at + 8 * (usize::from(bytes[at + 1]) + 1));
            }
            other => return unknown(other),
        }
    }
}

proptest! {
    #![proptest_config(ProptestConfig::with_cases(4000))]

    #[test]
    fn agrees_on_what_is_in_a_packet(
        packet in any_packet(),
        change in prop::option::of((any::<prop::sample::Index>(), any::<u8>())),
    ) {
        let mut bytes = packet.bytes;
        if let Some((at, value)) = change {
            let at = at.index(bytes.len());
            bytes[at] = value;
            ipv4::fill_checksum(&mut bytes);
        }
        if let Ok(headers) = headers::parse(&bytes)
            && (!headers.addresses.is_v6() || !has_headers_it_does_not_know(&bytes))
        {
            compare(&bytes, &headers)?;
        }
    }
}
