//! The seeds of the corpus `headers`: packet shapes with the verdict that each deserves.

use wire::{Mac, Malformed, Protocol, arp, esp, ethernet, ipv4, ipv6, ndp, tcp, udp};

/// One file of the corpus.
#[derive(Clone, Debug)]
pub struct Seed {
    /// The file's name.
    pub name: &'static str,
    /// Its contents: an IP packet, or a frame where the name says so.
    pub bytes: Vec<u8>,
    /// What [`wire::headers::parse`] says of it.
    pub verdict: Result<(), Malformed>,
}

/// Every seed, by family and then from plain to nasty.
pub fn all() -> Vec<Seed> {
    [v4_packets(), v4_fragments(), v6_packets(), v6_chains(), v6_fragments(), frames(), noise()]
        .concat()
}

fn good(name: &'static str, bytes: Vec<u8>) -> Seed {
    Seed { name, bytes, verdict: Ok(()) }
}

fn bad(name: &'static str, why: Malformed, bytes: Vec<u8>) -> Seed {
    Seed { name, bytes, verdict: Err(why) }
}

fn v4_packets() -> Vec<Seed> {
    let plain = v4(V4, &[], &udp(b"hello"));
    let with = |at: usize, value: u8| {
        let mut packet = plain.clone();
        packet[at] = value;
        ipv4::fill_checksum(&mut packet);
        packet
    };
    let cut = |length: usize| plain[..length].to_vec();
    let padded = [plain.as_slice(), &[0; 13]].concat();
    let protocol =
        |protocol: Protocol, payload: &[u8]| v4(ipv4::Header { protocol, ..V4 }, &[], payload);
    let from = |source: [u8; 4]| v4(ipv4::Header { source: source.into(), ..V4 }, &[], &udp(b""));
    let to = |destination: [u8; 4]| {
        v4(ipv4::Header { destination: destination.into(), ..V4 }, &[], &udp(b""))
    };
    let mut wrong_checksum = plain.clone();
    wrong_checksum[10] ^= 0xff;
    vec![
        good("v4-udp", plain.clone()),
        good("v4-udp-link-padding", padded),
        good("v4-tcp-syn", protocol(Protocol::TCP, &tcp_syn())),
        good("v4-icmp-echo", protocol(Protocol::ICMP, &[8, 0, 0xe5, 0xca, 0x12, 0x34, 0, 1])),
        good(
            "v4-icmp-unreachable",
            protocol(Protocol::ICMP, &[&[3, 1, 0, 0, 0, 0, 0, 0], plain.as_slice()].concat()),
        ),
        good("v4-esp", protocol(Protocol::ESP, &esp_packet())),
        good("v4-in-v4", protocol(Protocol::IPV4, &plain)),
        good("v4-unknown-protocol-empty", protocol(Protocol(253), &[])),
        good("v4-ttl-0", v4(ipv4::Header { ttl: 0, ..V4 }, &[], &udp(b""))),
        good("v4-to-multicast", to([224, 0, 0, 9])),
        good("v4-to-broadcast", to([255, 255, 255, 255])),
        good("v4-router-alert", v4(V4, &[148, 4, 0, 0], &udp(b""))),
        good("v4-loose-source-route", v4(V4, &[131, 7, 4, 192, 0, 2, 9, 0], &udp(b""))),
        good("v4-options-to-the-brim", v4(V4, &[1; 40], &udp(b""))),
        bad("v4-option-length-0", Malformed::Option, v4(V4, &[7, 0, 0, 0], &udp(b""))),
        bad("v4-option-length-1", Malformed::Option, v4(V4, &[1, 1, 7, 1], &udp(b""))),
        bad("v4-option-past-header", Malformed::Option, v4(V4, &[7, 39, 4, 0], &udp(b""))),
        bad("v4-header-length-4", Malformed::HeaderLength, with(0, 0x44)),
        bad("v4-header-length-past-packet", Malformed::HeaderLength, with(0, 0x4f)),
        bad("v4-total-length-0", Malformed::TotalLength, with(3, 0)),
        bad("v4-total-length-oversized", Malformed::TotalLength, with(2, 0xff)),
        bad("v4-truncated-payload", Malformed::TotalLength, cut(30)),
        bad("v4-truncated-header", Malformed::Truncated, cut(19)),
        bad("v4-one-byte", Malformed::Truncated, cut(1)),
        bad("v4-wrong-checksum", Malformed::HeaderChecksum, wrong_checksum),
        bad("v4-udp-truncated", Malformed::UpperTruncated, v4(V4, &[], &udp(b"")[..7])),
        bad(
            "v4-tcp-truncated",
            Malformed::UpperTruncated,
            protocol(Protocol::TCP, &tcp_syn()[..19]),
        ),
        bad("v4-from-multicast", Malformed::Source, from([224, 0, 0, 1])),
        bad("v4-from-broadcast", Malformed::Source, from([255; 4])),
        bad("v4-from-loopback", Malformed::Source, from([127, 0, 0, 1])),
        bad("v4-from-unspecified", Malformed::Source, from([0; 4])),
        bad("v4-from-class-e", Malformed::Source, from([240, 0, 0, 1])),
        bad("v4-to-loopback", Malformed::Destination, to([127, 0, 0, 1])),
        bad("v4-to-this-network", Malformed::Destination, to([0, 1, 2, 3])),
    ]
}

fn v4_fragments() -> Vec<Seed> {
    let fragment =
        |protocol: Protocol, fragment_offset: u16, more_fragments: bool, payload: &[u8]| {
            v4(ipv4::Header { protocol, fragment_offset, more_fragments, ..V4 }, &[], payload)
        };
    let mut reserved = v4(V4, &[], &udp(b""));
    reserved[6] |= 0x80;
    ipv4::fill_checksum(&mut reserved);
    vec![
        good("v4-first-fragment", fragment(Protocol::UDP, 0, true, &udp(&[0; 16]))),
        good("v4-later-fragment", fragment(Protocol::UDP, 24, true, &[0x11; 16])),
        good("v4-last-fragment", fragment(Protocol::TCP, 24, false, &[0x11; 3])),
        bad(
            "v4-fragment-past-65535",
            Malformed::Fragment,
            fragment(Protocol::UDP, 0xfff8, false, &[0; 64]),
        ),
        bad("v4-fragment-empty", Malformed::Fragment, fragment(Protocol::UDP, 8, false, &[])),
        bad("v4-fragment-ragged", Malformed::Fragment, fragment(Protocol::UDP, 8, true, &[0; 9])),
        bad(
            "v4-fragment-over-tcp-flags",
            Malformed::Fragment,
            fragment(Protocol::TCP, 8, true, &[0; 16]),
        ),
        bad(
            "v4-fragment-tiny-tcp",
            Malformed::UpperTruncated,
            fragment(Protocol::TCP, 0, true, &tcp_syn()[..8]),
        ),
        bad("v4-reserved-bit", Malformed::Fragment, reserved),
    ]
}

fn v6_packets() -> Vec<Seed> {
    let plain = v6(Protocol::UDP, &udp(b"hello"));
    let from = |source: [u16; 8], next_header: Protocol, payload: &[u8]| {
        with_payload(ipv6::Header { source: source.into(), next_header, ..V6 }, payload)
    };
    let to = |destination: [u16; 8]| {
        with_payload(
            ipv6::Header { destination: destination.into(), next_header: Protocol::UDP, ..V6 },
            &udp(b""),
        )
    };
    let mut too_long = plain.clone();
    too_long[4] = 0xff;
    let mut past_65535 = v6(Protocol::NONE, &[0; 65_496]);
    past_65535.truncate(100);
    vec![
        good("v6-udp", plain.clone()),
        good("v6-tcp-syn", v6(Protocol::TCP, &tcp_syn())),
        good("v6-esp", v6(Protocol::ESP, &esp_packet())),
        good("v6-echo", v6(Protocol::ICMPV6, &[128, 0, 0, 0, 0x12, 0x34, 0, 1])),
        good("v6-nothing", v6(Protocol::NONE, &[])),
        good("v6-in-v6", v6(Protocol::IPV6, &plain)),
        good("v6-neighbour-solicitation", solicitation(Some(Mac([2, 0, 0, 0, 0, 1])))),
        good("v6-duplicate-address-detection", solicitation(None)),
        bad("v6-truncated-header", Malformed::Truncated, plain[..39].to_vec()),
        bad("v6-truncated-payload", Malformed::TotalLength, plain[..52].to_vec()),
        bad("v6-payload-length-oversized", Malformed::TotalLength, too_long),
        bad("v6-longer-than-65535", Malformed::TotalLength, past_65535),
        bad("v6-udp-truncated", Malformed::UpperTruncated, v6(Protocol::UDP, &udp(b"")[..7])),
        bad(
            "v6-from-multicast",
            Malformed::Source,
            from([0xff02, 0, 0, 0, 0, 0, 0, 1], Protocol::UDP, &udp(b"")),
        ),
        bad(
            "v6-from-loopback",
            Malformed::Source,
            from([0, 0, 0, 0, 0, 0, 0, 1], Protocol::UDP, &udp(b"")),
        ),
        bad("v6-udp-from-unspecified", Malformed::Source, from([0; 8], Protocol::UDP, &udp(b""))),
        bad(
            "v6-from-mapped",
            Malformed::Source,
            from([0, 0, 0, 0, 0, 0xffff, 0x7f00, 1], Protocol::UDP, &udp(b"")),
        ),
        bad("v6-to-loopback", Malformed::Destination, to([0, 0, 0, 0, 0, 0, 0, 1])),
        bad("v6-to-unspecified", Malformed::Destination, to([0; 8])),
        bad("v6-to-interface-local", Malformed::Destination, to([0xff01, 0, 0, 0, 0, 0, 0, 1])),
    ]
}

fn v6_chains() -> Vec<Seed> {
    let options = |next: Protocol| [next.0, 0, 1, 4, 0, 0, 0, 0];
    let udp = udp(b"x");
    let chain = |kinds: &[Protocol]| {
        let mut bytes = Vec::new();
        for following in kinds[1..].iter().copied().chain([Protocol::UDP]) {
            bytes.extend(options(following));
        }
        v6(kinds[0], &[bytes.as_slice(), &udp].concat())
    };
    let destination = Protocol::DESTINATION_OPTIONS;
    let jumbogram = [[Protocol::UDP.0, 0, 0xc2, 4, 0, 1, 0, 0].as_slice(), &udp].concat();
    let mut jumbogram = v6(Protocol::HOP_BY_HOP, &jumbogram);
    ipv6::set_payload_length(&mut jumbogram, 0);
    let source_route = [
        Protocol::UDP.0,
        2,
        0,
        1,
        0,
        0,
        0,
        0,
        0x20,
        1,
        0xd,
        0xb8,
        0,
        0,
        0,
        0,
        0,
        0,
        0,
        0,
        0,
        0,
        0,
        9,
    ];
    let past = [[Protocol::UDP.0, 200, 1, 4, 0, 0, 0, 0].as_slice(), &udp].concat();
    vec![
        good("v6-hop-by-hop", chain(&[Protocol::HOP_BY_HOP])),
        good("v6-every-extension", chain(&EVERY_EXTENSION)),
        good("v6-eight-extensions", chain(&[destination; 8])),
        good("v6-routing-type-0", v6(Protocol::ROUTING, &[source_route.as_slice(), &udp].concat())),
        good("v6-mobility-alone", v6(Protocol::MOBILITY, &options(Protocol::NONE))),
        bad("v6-nine-extensions", Malformed::ExtensionChain, chain(&[destination; 9])),
        bad("v6-hundred-extensions", Malformed::ExtensionChain, chain(&[Protocol::ROUTING; 100])),
        bad("v6-hop-by-hop-twice", Malformed::ExtensionChain, chain(&[Protocol::HOP_BY_HOP; 2])),
        bad(
            "v6-hop-by-hop-late",
            Malformed::ExtensionChain,
            chain(&[destination, Protocol::HOP_BY_HOP]),
        ),
        bad("v6-jumbogram", Malformed::TotalLength, jumbogram),
        bad("v6-extension-past-packet", Malformed::ExtensionTruncated, v6(destination, &past)),
        bad(
            "v6-extension-missing",
            Malformed::ExtensionTruncated,
            v6(destination, &options(destination)[..7]),
        ),
        // An extension header that names itself for ever, and nothing else.
        bad(
            "v6-extension-loop",
            Malformed::ExtensionChain,
            v6(destination, &[destination.0, 0].repeat(400)),
        ),
    ]
}

const EVERY_EXTENSION: [Protocol; 7] = [
    Protocol::HOP_BY_HOP,
    Protocol::DESTINATION_OPTIONS,
    Protocol::ROUTING,
    Protocol::MOBILITY,
    Protocol::HIP,
    Protocol::SHIM6,
    Protocol::DESTINATION_OPTIONS,
];

fn v6_fragments() -> Vec<Seed> {
    let fragment = |next: Protocol, word: u16, payload: &[u8]| {
        let [high, low] = word.to_be_bytes();
        v6(Protocol::FRAGMENT, &[&[next.0, 0, high, low, 0, 0, 0x12, 0x34], payload].concat())
    };
    let twice = [[Protocol::UDP.0, 0, 0, 1, 0, 0, 0, 1].as_slice(), &udp(&[0; 8])].concat();
    let options_first = [[Protocol::UDP.0, 0, 1, 4, 0, 0, 0, 0].as_slice(), &udp(&[0; 8])].concat();
    vec![
        good("v6-atomic-fragment", fragment(Protocol::UDP, 0, &udp(b"odd"))),
        good("v6-first-fragment", fragment(Protocol::UDP, 1, &udp(&[0; 16]))),
        good(
            "v6-first-fragment-with-options",
            fragment(Protocol::DESTINATION_OPTIONS, 1, &options_first),
        ),
        good("v6-later-fragment", fragment(Protocol::UDP, 0x19, &[0x11; 16])),
        good(
            "v6-last-fragment-of-options",
            fragment(Protocol::DESTINATION_OPTIONS, 0x18, &[0xff; 3]),
        ),
        bad(
            "v6-fragment-past-65535",
            Malformed::Fragment,
            fragment(Protocol::UDP, 0xfff8, &[0; 16]),
        ),
        bad("v6-fragment-empty", Malformed::Fragment, fragment(Protocol::UDP, 0x18, &[])),
        bad("v6-fragment-ragged", Malformed::Fragment, fragment(Protocol::UDP, 0x19, &[0; 9])),
        bad(
            "v6-fragment-over-tcp-flags",
            Malformed::Fragment,
            fragment(Protocol::TCP, 9, &[0; 16]),
        ),
        bad(
            "v6-fragment-twice",
            Malformed::ExtensionChain,
            fragment(Protocol::FRAGMENT, 1, &twice),
        ),
        bad(
            "v6-fragment-of-hop-by-hop",
            Malformed::ExtensionChain,
            fragment(Protocol::HOP_BY_HOP, 0x18, &[0; 8]),
        ),
        bad(
            "v6-first-fragment-without-ports",
            Malformed::UpperTruncated,
            fragment(Protocol::TCP, 1, &[0; 8]),
        ),
        bad("v6-first-fragment-cut-chain", Malformed::ExtensionTruncated, {
            fragment(Protocol::DESTINATION_OPTIONS, 1, &[Protocol::UDP.0, 4, 1, 4, 0, 0, 0, 0])
        }),
    ]
}

/// A frame is not an IP packet, and a MAC address's first digit is not a version.
fn frames() -> Vec<Seed> {
    let frame = |ether_type, payload: &[u8]| {
        let header = ethernet::Header {
            destination: Mac::BROADCAST,
            source: Mac([2, 0, 0, 0, 0, 1]),
            ether_type,
        };
        [header.to_bytes().as_slice(), payload].concat()
    };
    let request =
        arp::Packet::request(Mac([2, 0, 0, 0, 0, 1]), [192, 0, 2, 1].into(), [192, 0, 2, 2].into());
    let tag = [&[0, 100, 8, 0], v4(V4, &[], &udp(b"")).as_slice()].concat();
    vec![
        bad("frame-arp", Malformed::Version, frame(ethernet::EtherType::ARP, &request.to_bytes())),
        bad(
            "frame-v4",
            Malformed::Version,
            frame(ethernet::EtherType::IPV4, &v4(V4, &[], &udp(b""))),
        ),
        bad(
            "frame-v6",
            Malformed::Version,
            frame(ethernet::EtherType::IPV6, &v6(Protocol::UDP, &udp(b""))),
        ),
        bad("frame-vlan", Malformed::Version, frame(ethernet::EtherType::VLAN, &tag)),
    ]
}

fn noise() -> Vec<Seed> {
    vec![
        bad("empty", Malformed::Truncated, vec![]),
        bad("zeros", Malformed::Version, vec![0; 64]),
        bad("ones", Malformed::Version, vec![0xff; 64]),
        bad("v4-then-zeros", Malformed::TotalLength, [&[0x45], [0; 63].as_slice()].concat()),
        good("v6-then-zeros-hop-limit", {
            let header = ipv6::Header { hop_limit: 0, next_header: Protocol(0xfd), ..V6 };
            with_payload(header, &[0; 24])
        }),
    ]
}

const V4: ipv4::Header = ipv4::Header {
    traffic_class: 0,
    total_length: 0,
    identification: 0x1234,
    dont_fragment: false,
    more_fragments: false,
    fragment_offset: 0,
    ttl: 64,
    protocol: Protocol::UDP,
    source: core::net::Ipv4Addr::new(192, 0, 2, 1),
    destination: core::net::Ipv4Addr::new(198, 51, 100, 1),
};

const V6: ipv6::Header = ipv6::Header {
    traffic_class: 0,
    flow_label: 0x12345,
    payload_length: 0,
    next_header: Protocol::NONE,
    hop_limit: 64,
    source: core::net::Ipv6Addr::new(0x2001, 0xdb8, 0, 0, 0, 0, 0, 1),
    destination: core::net::Ipv6Addr::new(0x2001, 0xdb8, 1, 0, 0, 0, 0, 1),
};

fn v4(header: ipv4::Header, options: &[u8], payload: &[u8]) -> Vec<u8> {
    let header_length = ipv4::HEADER_LENGTH + options.len();
    let header = ipv4::Header { total_length: (header_length + payload.len()) as u16, ..header };
    let mut packet = [&header.to_bytes(), options, payload].concat();
    packet[0] = 0x40 | (header_length / 4) as u8;
    ipv4::fill_checksum(&mut packet);
    packet
}

fn v6(next_header: Protocol, payload: &[u8]) -> Vec<u8> {
    with_payload(ipv6::Header { next_header, ..V6 }, payload)
}

fn with_payload(header: ipv6::Header, payload: &[u8]) -> Vec<u8> {
    [&ipv6::Header { payload_length: payload.len() as u16, ..header }.to_bytes(), payload].concat()
}

fn udp(payload: &[u8]) -> Vec<u8> {
    let length = (udp::HEADER_LENGTH + payload.len()) as u16;
    let header = udp::Header { source: 5000, destination: 53, length, checksum: 0 };
    [&header.to_bytes(), payload].concat()
}

fn tcp_syn() -> Vec<u8> {
    let header = tcp::Header {
        source: 40_000,
        destination: 443,
        sequence: 1,
        header_length: 24,
        flags: wire::TcpFlags::SYN,
        window: 0xffff,
        ..tcp::Header::default()
    };
    [header.to_bytes().as_slice(), &[2, 4, 5, 0xb4]].concat()
}

fn esp_packet() -> Vec<u8> {
    [esp::Header { spi: wire::Spi(0x1000), sequence: 1 }.to_bytes().as_slice(), &[0x5a; 40]]
        .concat()
}

fn solicitation(source_link: Option<Mac>) -> Vec<u8> {
    let target = V6.destination;
    let source = if source_link.is_some() { V6.source } else { core::net::Ipv6Addr::UNSPECIFIED };
    let mut packet = vec![0; ndp::MAX_PACKET];
    let message = ndp::Message::NeighbourSolicitation { target, source_link };
    let length = message.write_packet(source, ndp::solicited_node(target), &mut packet);
    packet.truncate(length.expect("the packet has room for the longest message"));
    packet
}
