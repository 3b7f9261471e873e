//! Every parser and view of the `wire` crate on one input.

use wire::headers::{self, Headers, Malformed};
use wire::{
    Addresses, FragmentClass, Upper, arp, checksum, esp, ethernet, fragment, icmpv4, icmpv6, ipv4,
    ipv6, ndp, tcp, udp,
};

/// Reads `bytes` as an IP packet, as a frame and as every header, and checks what the crate
/// promises of the answers.
///
/// # Panics
/// Where a promise is broken.
pub fn examine(bytes: &[u8]) {
    examine_packet(bytes);
    if ethernet::Header::parse(bytes).is_some() {
        let behind = &bytes[ethernet::HEADER_LENGTH..];
        examine_packet(behind);
        examine_arp(behind);
    }
    examine_arp(bytes);
    examine_upper_headers(bytes);
}

fn examine_packet(bytes: &[u8]) {
    ipv4::options(bytes).for_each(drop);
    match headers::parse(bytes) {
        Ok(headers) => examine_parsed(bytes, &headers),
        // Whatever reads packets on its own has to stand what is refused.
        Err(_) => {
            let _ = (ipv4::source_routed(bytes), ipv6::source_routed(bytes));
            examine_fragmentation(bytes);
            examine_errors(bytes);
        }
    }
}

fn examine_parsed(bytes: &[u8], headers: &Headers) {
    let (start, end) = (usize::from(headers.upper_offset), usize::from(headers.total_length));
    assert!(start <= end && end <= bytes.len(), "{start} {end}");
    assert_eq!(headers.upper_bytes(bytes), &bytes[start..end]);
    let is_later = headers.fragment.class == FragmentClass::Later;
    assert_eq!(is_later, headers.fragment.offset != 0);
    assert!(
        !is_later || headers.upper == Upper::None,
        "fields were read out of a later fragment's payload"
    );

    let packet = &bytes[..end];
    assert_eq!(headers::parse(packet), Ok(*headers), "what the link added changes nothing");
    assert!(
        matches!(
            headers::parse(&packet[..end - 1]),
            Err(Malformed::Truncated | Malformed::HeaderLength | Malformed::TotalLength)
        ),
        "a packet cut short is refused"
    );

    let upper = headers.upper_bytes(packet);
    if let Upper::Ports { source, destination } = headers.upper {
        assert_eq!(upper[..2], source.to_be_bytes());
        assert_eq!(upper[2..4], destination.to_be_bytes());
    }
    let _ = ndp::parse(headers, upper);
    examine_rewrites(packet, headers);
    examine_fragmentation(packet);
    examine_errors(packet);
}

/// What is rewritten in place still parses, to what was written.
fn examine_rewrites(packet: &[u8], headers: &Headers) {
    let mut copy = packet.to_vec();
    let hop_limit = headers.hop_limit.saturating_sub(1);
    let traffic_class = !headers.traffic_class;
    if headers.addresses.is_v6() {
        ipv6::decrement_hop_limit(&mut copy);
        ipv6::set_traffic_class(&mut copy, traffic_class);
        assert!(!ipv4::source_routed(packet));
    } else {
        checksum::decrement_ttl_v4(&mut copy);
        ipv4::set_traffic_class(&mut copy, traffic_class);
        assert!(!ipv6::source_routed(packet));
        assert!(headers.has_options || !ipv4::source_routed(packet));
    }
    assert_eq!(headers::parse(&copy), Ok(Headers { hop_limit, traffic_class, ..*headers }));

    match headers.addresses {
        Addresses::V4 { .. } => ipv4::turn_around(&mut copy, 64),
        Addresses::V6 { .. } => ipv6::turn_around(&mut copy, 64),
    }
    match headers::parse(&copy) {
        Ok(back) => {
            assert_eq!(back.addresses.source(), headers.addresses.destination());
            assert_eq!(back.addresses.destination(), headers.addresses.source());
        }
        Err(why) => assert!(matches!(why, Malformed::Source | Malformed::Destination), "{why:?}"),
    }
}

/// The pieces are in order, inside, no longer than the MTU, and together the payload.
fn examine_fragmentation(packet: &[u8]) {
    for mtu in [ipv4::MIN_MTU, 576] {
        let Ok(plan) = fragment::plan(packet, mtu) else { continue };
        let mut out = [0; 65_535];
        let mut end = None;
        for piece in plan {
            let length = fragment::write(packet, &piece, &mut out)
                .expect("a piece of the packet's own plan");
            assert!(length == piece.total_length() && length <= usize::from(mtu));
            assert_eq!(checksum::sum(&out[..piece.header_length]), 0xffff);
            assert!(end.is_none_or(|end| end == piece.payload.start));
            end = Some(piece.payload.end);
        }
        assert_eq!(end, Some(usize::from(u16::from_be_bytes([packet[2], packet[3]]))));
    }
}

/// An error message about anything is short, and itself a packet that is not answered with an
/// error.
fn examine_errors(packet: &[u8]) {
    let mut out = [0; icmpv6::MAX_ERROR_PACKET];
    let from = [192, 0, 2, 254].into();
    if let Some(length) =
        icmpv4::write_error_packet(icmpv4::ErrorMessage::TimeExceeded, from, packet, &mut out)
    {
        assert!(length <= icmpv4::MAX_ERROR_PACKET);
        if let Ok(error) = headers::parse(&out[..length]) {
            assert!(icmpv4::is_right(error.upper_bytes(&out)));
            assert!(!icmpv4::may_answer_with_error(&error));
        }
    }
    let message = icmpv6::ErrorMessage::PacketTooBig { mtu: 1280 };
    let from = [0x20, 1, 0xd, 0xb8, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 1].into();
    if let Some(length) = icmpv6::write_error_packet(message, from, packet, &mut out) {
        assert!(length <= icmpv6::MAX_ERROR_PACKET);
        if let Ok(error) = headers::parse(&out[..length]) {
            assert!(checksum::upper_is_right(
                &error.addresses,
                error.protocol,
                error.upper_bytes(&out)
            ));
            assert!(!icmpv6::may_answer_with_error(message, &error));
        }
    }
}

fn examine_arp(bytes: &[u8]) {
    if let Ok(packet) = arp::Packet::parse(bytes) {
        assert_eq!(packet.to_bytes(), bytes[..arp::LENGTH]);
    }
}

/// Headers that are read are written as they were.
fn examine_upper_headers(bytes: &[u8]) {
    if let Some(header) = ethernet::Header::parse(bytes) {
        assert_eq!(header.to_bytes(), bytes[..ethernet::HEADER_LENGTH]);
    }
    if let Some(header) = udp::Header::parse(bytes) {
        assert_eq!(header.to_bytes(), bytes[..udp::HEADER_LENGTH]);
    }
    if let Some(header) = esp::Header::parse(bytes) {
        assert_eq!(header.to_bytes(), bytes[..esp::HEADER_LENGTH]);
    }
    if let Some(header) = tcp::Header::parse(bytes) {
        let written = header.to_bytes();
        assert_eq!(written[..12], bytes[..12]);
        // The four bits behind the header length are reserved and not kept.
        assert_eq!(written[12], bytes[12] & 0xf0);
        assert_eq!(written[13..], bytes[13..tcp::HEADER_LENGTH]);
    }
    let mut message = bytes.to_vec();
    let was_right = icmpv4::is_right(&message);
    if icmpv4::echo_reply(&mut message) {
        assert_eq!(icmpv4::is_right(&message), was_right);
    }
}
