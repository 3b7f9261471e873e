//! What [`wire::headers::parse`] finds in packets written out octet by octet.

use core::net::{Ipv4Addr, Ipv6Addr};

use wire::headers::{self, Fragment, Headers};
use wire::{
    Addresses, FragmentClass, Origin, PacketFields, PortId, Protocol, Spi, TcpFlags, Upper, VrfId,
    ipv4,
};

const V4_DNS: [u8; 36] = [
    0x45, 0xb8, 0x00, 0x22, 0x9a, 0xbc, 0x40, 0x00, 0x3f, 0x11, 0x05, 0xfa, // to the checksum
    192, 168, 13, 5, 192, 168, 12, 7, // addresses
    0x13, 0x88, 0x00, 0x35, 0x00, 0x0e, 0x00, 0x00, 1, 2, 3, 4, 5, 6, // UDP
    0, 0, // padding of the link
];

#[test]
fn an_ipv4_packet_with_padding_behind() {
    let headers = headers::parse(&V4_DNS).unwrap();
    let expected = Headers {
        addresses: Addresses::V4 {
            source: Ipv4Addr::new(192, 168, 13, 5),
            destination: Ipv4Addr::new(192, 168, 12, 7),
        },
        protocol: Protocol::UDP,
        upper: Upper::Ports { source: 5000, destination: 53 },
        tcp_flags: TcpFlags(0),
        fragment: Fragment { identification: 0x9abc, ..Fragment::default() },
        hop_limit: 63,
        traffic_class: 0xb8,
        dont_fragment: true,
        has_options: false,
        upper_offset: 20,
        fragment_header_offset: 0,
        total_length: 34,
    };
    assert_eq!(headers, expected);
    assert_eq!(headers.upper_bytes(&V4_DNS), &V4_DNS[20..34]);
    let mut copy = V4_DNS;
    assert_eq!(headers.upper_bytes_mut(&mut copy), &V4_DNS[20..34]);
    assert_eq!(headers.upper_bytes(&V4_DNS[..33]), [], "not a part of what is not all there");

    let key = headers.key(VrfId(7), Origin::Port(PortId(3)), PacketFields::DSCP);
    assert_eq!((key.fields.dscp().to_string(), key.fields.hop_limit()), ("ef".to_owned(), 0));
    assert_eq!((key.vrf, key.origin), (VrfId(7), Origin::Port(PortId(3))));
    assert_eq!(
        (key.addresses, key.protocol, key.upper),
        (headers.addresses, headers.protocol, headers.upper)
    );
    assert_eq!(key.fragment, FragmentClass::Whole);
}

fn v6(next: u8, payload: &[u8]) -> Vec<u8> {
    let mut packet = vec![0x6a, 0xb1, 0x23, 0x45, 0, payload.len() as u8, next, 9];
    packet.extend(Ipv6Addr::new(0x2001, 0xdb8, 0, 0, 0, 0, 0, 1).octets());
    packet.extend(Ipv6Addr::new(0x2001, 0xdb8, 0, 0, 0, 0, 0, 2).octets());
    packet.extend(payload);
    packet
}

#[test]
fn an_ipv6_first_fragment_behind_hop_by_hop_options() {
    let packet = v6(
        0,
        &[
            44, 0, 5, 2, 0, 0, 1, 0, // hop-by-hop: router alert
            6, 0, 0, 1, 0xde, 0xad, 0xbe, 0xef, // fragment: first, more
            0x01, 0xbb, 0x9c, 0x40, 0, 0, 0, 1, 0, 0, 0, 0, 0x50, 2, 0, 0, 0, 0, 0, 0, 1, 2, 3,
            4, // TCP
        ],
    );
    let expected = Headers {
        addresses: Addresses::V6 {
            source: Ipv6Addr::new(0x2001, 0xdb8, 0, 0, 0, 0, 0, 1),
            destination: Ipv6Addr::new(0x2001, 0xdb8, 0, 0, 0, 0, 0, 2),
        },
        protocol: Protocol::TCP,
        upper: Upper::Ports { source: 443, destination: 40_000 },
        tcp_flags: TcpFlags::SYN,
        fragment: Fragment {
            class: FragmentClass::First,
            identification: 0xdead_beef,
            offset: 0,
            more: true,
        },
        hop_limit: 9,
        traffic_class: 0xab,
        dont_fragment: true,
        has_options: true,
        upper_offset: 56,
        fragment_header_offset: 48,
        total_length: 80,
    };
    assert_eq!(headers::parse(&packet), Ok(expected));
}

#[test]
fn a_later_fragment_has_no_ports() {
    let packet = v6(44, &[17, 0, 0, 0x18, 0, 0, 0, 1, 0x13, 0x88, 0, 0x35, 0, 8, 0, 0]);
    let headers = headers::parse(&packet).unwrap();
    assert_eq!((headers.protocol, headers.upper), (Protocol::UDP, Upper::None));
    assert_eq!(
        headers.fragment,
        Fragment { class: FragmentClass::Later, identification: 1, offset: 24, more: false }
    );
    assert!(!headers.has_options);
}

#[test]
fn an_atomic_fragment_is_whole() {
    let packet = v6(44, &[17, 0, 0, 0, 0, 0, 0, 9, 0x13, 0x88, 0, 0x35, 0, 8, 0, 0]);
    let headers = headers::parse(&packet).unwrap();
    assert_eq!(headers.upper, Upper::Ports { source: 5000, destination: 53 });
    assert_eq!(headers.fragment, Fragment { identification: 9, ..Fragment::default() });
    assert_eq!(headers.fragment_header_offset, 40);
}

#[test]
fn upper_fields_by_protocol() {
    let upper = |next: u8, payload: &[u8]| headers::parse(&v6(next, payload)).unwrap().upper;
    let eight = [128, 0, 0xab, 0xcd, 0x12, 0x34, 0x56, 0x78];
    let twelve = [eight.as_slice(), &[0; 4]].concat();
    let ports = Upper::Ports { source: 0x8000, destination: 0xabcd };
    for protocol in [17, 136] {
        assert_eq!(upper(protocol, &eight), ports, "protocol {protocol}");
    }
    for protocol in [33, 132] {
        assert_eq!(upper(protocol, &twelve), ports, "protocol {protocol}");
        assert!(headers::parse(&v6(protocol, &eight)).is_err(), "protocol {protocol}");
    }
    assert_eq!(upper(58, &eight), Upper::Icmp { kind: 128, code: 0, identifier: 0x1234 });
    assert_eq!(
        upper(58, &[1, 4, 0, 0, 0x12, 0x34, 0, 0]),
        Upper::Icmp { kind: 1, code: 4, identifier: 0 }
    );
    assert_eq!(upper(50, &eight), Upper::Spi(Spi(0x8000_abcd)));
    // The other family's ICMP has no meaning here, AH hides what it protects, and a tunnel's inside
    // is its own packet.
    for protocol in [1, 51, 4, 41, 47, 59, 253] {
        assert_eq!(upper(protocol, &eight), Upper::None, "protocol {protocol}");
    }
}

#[test]
fn mobility_is_a_protocol_when_nothing_follows() {
    let alone = headers::parse(&v6(135, &[59, 0, 5, 0, 0, 0, 0, 0])).unwrap();
    assert_eq!((alone.protocol, alone.upper_offset), (Protocol::MOBILITY, 40));
    let followed =
        headers::parse(&v6(135, &[17, 0, 5, 0, 0, 0, 0, 0, 0, 7, 0, 9, 0, 8, 0, 0])).unwrap();
    assert_eq!((followed.protocol, followed.upper_offset), (Protocol::UDP, 48));
}

#[test]
fn nothing_behind_options_is_no_next_header() {
    let headers = headers::parse(&v6(60, &[59, 0, 1, 4, 0, 0, 0, 0, 1, 2, 3])).unwrap();
    assert_eq!(
        (headers.protocol, headers.upper, headers.upper_offset),
        (Protocol::NONE, Upper::None, 48)
    );
}

#[test]
fn an_extension_header_ends_inside_the_packet() {
    // Over a protocol without fields, so that only the extension header can be too long.
    let options = |words: u8| v6(60, &[&[253, words, 1, 12], [0; 12].as_slice()].concat());
    assert_eq!(headers::parse(&options(1)).map(|headers| headers.upper_offset), Ok(56));
    assert_eq!(headers::parse(&options(2)), Err(headers::Malformed::ExtensionTruncated));
}

#[test]
fn a_fragment_may_reach_65535_and_no_further() {
    let v4 = |payload: usize| {
        let header = ipv4::Header {
            total_length: (20 + payload) as u16,
            fragment_offset: 65_504,
            protocol: Protocol::UDP,
            source: Ipv4Addr::new(192, 0, 2, 1),
            destination: Ipv4Addr::new(192, 0, 2, 2),
            ..ipv4::Header::default()
        };
        headers::parse(&[&header.to_bytes(), vec![0; payload].as_slice()].concat())
            .map(|headers| headers.fragment.offset)
    };
    assert_eq!(v4(11), Ok(65_504));
    assert_eq!(v4(12), Err(headers::Malformed::Fragment));

    let fragment =
        |payload: usize| [&[17, 0, 0xff, 0xf8, 0, 0, 0, 1], vec![0; payload].as_slice()].concat();
    let judged = |packet: &[u8]| headers::parse(packet).map(|headers| headers.fragment.offset);
    assert_eq!(judged(&v6(44, &fragment(7))), Ok(65_528));
    assert_eq!(judged(&v6(44, &fragment(8))), Err(headers::Malformed::Fragment));
    // Headers in front of the fragment header are part of the datagram.
    let behind_options = [&[44, 0, 1, 4, 0, 0, 0, 0], fragment(1).as_slice()].concat();
    assert_eq!(judged(&v6(60, &behind_options)), Err(headers::Malformed::Fragment));
}

#[test]
fn queries_of_ipv4_and_their_answers_have_an_identifier() {
    for (kind, identifier) in
        [(0, 0x1234), (8, 0x1234), (3, 0), (13, 0x1234), (18, 0x1234), (19, 0)]
    {
        let header = ipv4::Header {
            total_length: 28,
            protocol: Protocol::ICMP,
            source: Ipv4Addr::new(192, 0, 2, 1),
            destination: Ipv4Addr::new(192, 0, 2, 2),
            ..ipv4::Header::default()
        };
        let packet = [header.to_bytes().as_slice(), &[kind, 0, 0, 0, 0x12, 0x34, 0, 1]].concat();
        assert_eq!(
            headers::parse(&packet).unwrap().upper,
            Upper::Icmp { kind, code: 0, identifier }
        );
    }
}

#[test]
fn who_has_no_address_may_send_icmpv6_alone() {
    let mut solicitation = v6(58, &[135, 0, 0, 0, 0, 0, 0, 0]);
    solicitation[8..24].fill(0);
    assert!(headers::parse(&solicitation).is_ok());
    let mut datagram = v6(17, &[0, 7, 0, 9, 0, 8, 0, 0]);
    datagram[8..24].fill(0);
    assert_eq!(headers::parse(&datagram), Err(headers::Malformed::Source));
}
