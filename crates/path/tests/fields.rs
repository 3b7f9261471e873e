//! Policies that select by DSCP, TCP flags and TTL: what they match, and which flows are split for
//! them.

mod fixture;

use fixture::*;
use flow::{Associativity, CacheMode, CacheSettings, CacheTable};
use packet::DropReason;
use tables::{Action, Direction, FieldsSelector, PolicySpec, SaIdentity, SaSpec, Tables, Template};
use wire::{Protocol, Spi, TcpFlags, VrfId, fragment, headers, ipv4};

const OUTER: (&str, &str) = ("192.168.11.2", "192.168.11.1");
const INNER: (&str, &str) = ("192.168.13.5", "192.168.12.7");
const INNER_V6: (&str, &str) = ("fd13::5", "fd12::7");
const ON: CacheSettings =
    CacheSettings { mode: CacheMode::On, buckets: 1024, associativity: Associativity::Four };

/// EF and CS0, as a traffic class.
const EXPEDITED: u8 = 46 << 2;
const DEFAULT: u8 = 0;

fn dscp(text: &str) -> FieldsSelector {
    FieldsSelector::new(None, Some(text.parse().unwrap()), None)
}

fn flags(text: &str) -> FieldsSelector {
    FieldsSelector::new(Some(text.parse().unwrap()), None, None)
}

fn marked(mut packet: Vec<u8>, traffic_class: u8) -> Vec<u8> {
    if packet[0] >> 4 == 4 {
        packet[1] = traffic_class;
        ipv4::fill_checksum(&mut packet);
    } else {
        packet[0] = 0x60 | traffic_class >> 4;
        packet[1] = traffic_class << 4;
    }
    packet
}

fn tcp(ends: (&str, &str), flags: TcpFlags, payload: usize) -> Vec<u8> {
    let header = wire::tcp::Header {
        source: 40_000,
        destination: 22,
        header_length: 20,
        flags,
        ..Default::default()
    };
    let (source, destination) = (ip(ends.0), ip(ends.1));
    let mut segment = [header.to_bytes().as_slice(), &vec![7; payload]].concat();
    wire::tcp::fill_checksum(&addresses(source, destination), &mut segment);
    packet(source, destination, Protocol::TCP, 64, &segment)
}

/// A policy before those of [`everything`].
fn first(direction: Direction, v6: bool, fields: FieldsSelector, action: Action) -> PolicySpec {
    let all = if v6 { "::/0" } else { "0.0.0.0/0" };
    let mut spec = policy(direction, all, all, action);
    spec.priority = 1;
    spec.selector.fields = fields;
    if fields.asks_tcp_flags() {
        spec.selector.protocol = Some(Protocol::TCP);
    }
    spec
}

/// Everything passes in clear that no other policy takes.
fn everything(tables: &mut Tables) {
    for (direction, all) in [(Direction::Out, "0.0.0.0/0"), (Direction::Out, "::/0")] {
        let mut spec = policy(direction, all, all, Action::Bypass);
        spec.priority = 100;
        tables.add_policy(spec).unwrap();
    }
}

fn gateway() -> Gateway {
    let mut tables = plain_tables();
    everything(&mut tables);
    Gateway::with_caches(tables, [ON; 4], 3)
}

/// Whether a packet from the LAN leaves.
fn passes(gateway: &mut Gateway, packet: &[u8]) -> bool {
    gateway.receive(LAN, packet);
    let sent = gateway.sent(WAN).len();
    gateway.assert_nothing_lost();
    sent == 1
}

fn add(gateway: &mut Gateway, spec: PolicySpec) -> u32 {
    let mut index = 0;
    gateway.change(|tables| index = tables.add_policy(spec).unwrap());
    index
}

fn misses(gateway: &Gateway, table: CacheTable) -> u64 {
    let cache = gateway.cache(table);
    cache.missed_new.read() + cache.missed_stale.read() + cache.missed_evicted.read()
}

fn remove(gateway: &mut Gateway, index: u32) {
    gateway.change(|tables| drop(tables.remove_policy(index).unwrap()));
}

/// RFC 4301 section 4.1: traffic of different classes between the same ends by different SAs.
#[test]
fn each_class_has_its_own_sa() {
    let mut tables = plain_tables();
    let (me, remote) = OUTER;
    for (reqid, spi) in [(1, 0x1001), (2, 0x2001)] {
        for (source, destination, spi) in [(me, remote, spi), (remote, me, spi + 1)] {
            let identity = SaIdentity {
                vrf: VrfId::MAIN,
                inner: VrfId::MAIN,
                if_id: None,
                source: ip(source),
                destination: ip(destination),
                reqid,
            };
            let spec = SaSpec { identity, spi: Spi(spi), no_ecn: false, no_pmtu_discovery: false };
            tables.add_sa(spec, peer_outbound(spi, false), peer_inbound(spi, false)).unwrap();
        }
    }
    for (mine, theirs) in [("192.168.13.0/24", "192.168.12.0/24"), ("fd13::/64", "fd12::/64")] {
        for (priority, reqid, fields) in [(1, 2, dscp("ef")), (2, 1, FieldsSelector::ANY)] {
            let with = |source, destination| {
                Action::Protect(Template { reqid, ..template(source, destination) })
            };
            for (direction, from, to, action) in [
                (Direction::Out, mine, theirs, with(me, remote)),
                (Direction::In, theirs, mine, with(remote, me)),
            ] {
                let mut spec = policy(direction, from, to, action);
                (spec.priority, spec.selector.fields) = (priority, fields);
                tables.add_policy(spec).unwrap();
            }
        }
    }
    let mut gateway = Gateway::with_caches(tables, [ON; 4], 3);
    for inner in [INNER, INNER_V6] {
        let plain = udp(inner.0, inner.1, (5000, 53), 100);
        for class in [DEFAULT, EXPEDITED, 0x2a, EXPEDITED | 2, DEFAULT] {
            let spi = if class >> 2 == 46 { 0x2001 } else { 0x1001 };
            gateway.receive(LAN, &marked(plain.clone(), class));
            let sent = headers::parse(&gateway.sent_one(WAN).1).unwrap();
            assert_eq!(sent.upper, wire::Upper::Spi(Spi(spi)), "{class:#x}");
        }
        // What comes back is judged by the class of the inner packet, whatever the outer one's.
        let back = udp(inner.1, inner.0, (53, 5000), 100);
        for (class, spi, may_pass) in [
            (DEFAULT, 0x1002, true),
            (DEFAULT, 0x2002, false),
            (EXPEDITED, 0x2002, true),
            (EXPEDITED, 0x1002, false),
        ] {
            // A peer of its own each time, past what was sent before.
            let count = u32::from(class) * 4 + if inner == INNER { 1 } else { 1000 };
            let randomness = &mut <rand::rngs::StdRng as rand::SeedableRng>::from_seed([1; 32]);
            let peer = esp::OutboundSa::new(Spi(spi), &keys(false), count, randomness);
            let outer = seal(&peer, remote, me, &marked(back.clone(), class));
            let before = gateway.dropped(DropReason::PolicyWrongSelector);
            gateway.receive(WAN, &marked(outer, EXPEDITED ^ class));
            assert_eq!(gateway.sent(LAN).len(), usize::from(may_pass), "{:?}", gateway.drops());
            let dropped = gateway.dropped(DropReason::PolicyWrongSelector) - before;
            assert_eq!(dropped, u64::from(!may_pass));
        }
    }
    gateway.assert_nothing_lost();
}

/// A flow is one entry of the cache as long as no policy tells its packets apart.
#[test]
fn a_flow_splits_by_what_is_read_and_no_more() {
    let mut gateway = gateway();
    let packets = [
        (DEFAULT, 64),
        (EXPEDITED, 64),
        (0x20 << 2, 64),
        (0x20 << 2, 63),
        // ECN is no part of the DSCP.
        (0x20 << 2 | 1, 63),
    ];
    let missed = |gateway: &mut Gateway| {
        let table = CacheTable::V4Outbound;
        let before = misses(gateway, table);
        for _ in 0..2 {
            for (class, ttl) in packets {
                let mut packet = udp(INNER.0, INNER.1, (5000, 53), 20);
                packet[8] = ttl;
                assert!(passes(gateway, &marked(packet, class)));
            }
        }
        misses(gateway, table) - before
    };
    assert_eq!(missed(&mut gateway), 1);
    assert_eq!(missed(&mut gateway), 0);
    // One bit of the DSCP: two kinds.
    let one = add(&mut gateway, first(Direction::Out, false, dscp("0x20/0x20"), Action::Bypass));
    assert_eq!(missed(&mut gateway), 2);
    assert_eq!(missed(&mut gateway), 0);
    // All of it: EF and CS4 too.
    let all = add(&mut gateway, first(Direction::Out, false, dscp("af11"), Action::Bypass));
    assert_eq!(missed(&mut gateway), 3);
    let ttl = FieldsSelector::new(None, None, Some(1));
    let limit = add(&mut gateway, first(Direction::Out, false, ttl, Action::Bypass));
    assert_eq!(missed(&mut gateway), 4);
    // UDP has no flags, so nothing splits; all is decided anew, since the key means another thing.
    let tcp = add(&mut gateway, first(Direction::Out, false, flags("syn/syn"), Action::Bypass));
    assert_eq!(missed(&mut gateway), 4);
    for index in [tcp, limit, all, one] {
        remove(&mut gateway, index);
    }
    assert_eq!(missed(&mut gateway), 1);
}

#[test]
fn tcp_flags_are_those_of_tcp() {
    let mut gateway = gateway();
    // New connections are not let out, whatever else may be.
    for v6 in [false, true] {
        let discard = first(Direction::Out, v6, flags("syn/syn,ack"), Action::Discard);
        add(&mut gateway, discard);
        // No packet without a TCP header has "no SYN".
        add(&mut gateway, first(Direction::Out, v6, flags("none/syn,ack"), Action::Discard));
    }
    for ends in [INNER, INNER_V6] {
        for (flags, may_pass) in [
            (TcpFlags::SYN, false),
            (TcpFlags::SYN | TcpFlags::ACK, true),
            (TcpFlags::ACK | TcpFlags::PSH, true),
            (TcpFlags::RST, false),
            (TcpFlags::SYN | TcpFlags::ECE | TcpFlags::CWR, false),
        ] {
            for _ in 0..2 {
                let packet = tcp(ends, flags, 0);
                assert_eq!(passes(&mut gateway, &packet), may_pass, "{ends:?} {flags:?}");
            }
        }
        // Octet 13 of it is no flags.
        let others = [
            udp(ends.0, ends.1, (40_000, 22), 40),
            packet(ip(ends.0), ip(ends.1), Protocol::ESP, 64, &[2; 40]),
            packet(ip(ends.0), ip(ends.1), Protocol::SCTP, 64, &[2; 40]),
            packet(ip(ends.0), ip(ends.1), Protocol(253), 64, &[2; 40]),
            echo(ends.0, ends.1, 20),
        ];
        for packet in others {
            assert!(passes(&mut gateway, &packet), "{:?}", headers::parse(&packet));
        }
    }
}

/// A later fragment is what its datagram's first is, and has the first's flags as it has its ports.
/// Its DSCP and TTL are its own.
#[test]
fn later_fragments_have_the_flags_of_their_first() {
    let mut gateway = gateway();
    add(&mut gateway, first(Direction::Out, false, flags("syn/syn"), Action::Discard));
    let cut = |flags, identification: u8| -> Vec<Vec<u8>> {
        let mut whole = tcp(INNER, flags, 1200);
        whole[4] = identification;
        ipv4::fill_checksum(&mut whole);
        let pieces = fragment::plan(&whole, 576).unwrap();
        let write = |piece: fragment::Piece| {
            let mut out = vec![0; piece.total_length()];
            fragment::write(&whole, &piece, &mut out).unwrap();
            out
        };
        pieces.map(write).collect()
    };
    for (number, (flags, may_pass)) in
        [(TcpFlags::SYN, false), (TcpFlags::ACK, true)].into_iter().enumerate()
    {
        let fragments = cut(flags, number as u8);
        assert_eq!(fragments.len(), 3);
        for fragment in &fragments {
            assert_eq!(passes(&mut gateway, fragment), may_pass, "{flags:?}");
        }
        // Their own TTL and DSCP.
        let mut spec = first(Direction::Out, false, dscp("ef"), Action::Discard);
        spec.priority = 0;
        let index = add(&mut gateway, spec);
        assert!(!passes(&mut gateway, &marked(fragments[1].clone(), EXPEDITED)));
        assert_eq!(passes(&mut gateway, &fragments[1]), may_pass);
        remove(&mut gateway, index);
    }
    assert_eq!(gateway.dropped(DropReason::FragmentUnknown), 0);
    // Of an unknown first, they are dropped as before.
    assert!(!passes(&mut gateway, &cut(TcpFlags::ACK, 9)[1]));
    assert_eq!(gateway.dropped(DropReason::FragmentUnknown), 1);
}

/// The TTL as the packet came in, before it is counted down (RFC 5082 asks for such).
#[test]
fn the_ttl_is_that_of_arrival() {
    let mut gateway = Gateway::with_caches(plain_tables(), [ON; 4], 3);
    for v6 in [false, true] {
        let limit = FieldsSelector::new(None, None, Some(255));
        add(&mut gateway, first(Direction::Out, v6, limit, Action::Bypass));
    }
    for ends in [INNER, INNER_V6] {
        for (limit, may_pass) in [(255u8, true), (254, false), (64, false)] {
            let mut packet = udp(ends.0, ends.1, (5000, 179), 20);
            packet[if ends == INNER { 8 } else { 7 }] = limit;
            if ends == INNER {
                ipv4::fill_checksum(&mut packet);
            }
            assert_eq!(passes(&mut gateway, &packet), may_pass, "{ends:?} {limit}");
        }
    }
}

/// Packets that the straight parser does not know have the same fields.
#[test]
fn packets_with_options_have_fields_too() {
    let mut gateway = gateway();
    for v6 in [false, true] {
        add(&mut gateway, first(Direction::Out, v6, dscp("ef"), Action::Discard));
        add(&mut gateway, first(Direction::Out, v6, flags("syn/syn"), Action::Discard));
    }
    for ends in [INNER, INNER_V6] {
        for (class, flags, may_pass) in [
            (DEFAULT, TcpFlags::ACK, true),
            (EXPEDITED, TcpFlags::ACK, false),
            (DEFAULT, TcpFlags::SYN, false),
        ] {
            let mut packet = marked(tcp(ends, flags, 20), class);
            if ends == INNER {
                packet.splice(20..20, [1; 4]);
                packet[0] = 0x46;
                let length = packet.len() as u16;
                ipv4::set_total_length(&mut packet, length);
                ipv4::fill_checksum(&mut packet);
            } else {
                packet.splice(40..40, [Protocol::TCP.0, 0, 1, 4, 0, 0, 0, 0]);
                packet[6] = Protocol::DESTINATION_OPTIONS.0;
                let length = (packet.len() - 40) as u16;
                wire::ipv6::set_payload_length(&mut packet, length);
            }
            assert_eq!(passes(&mut gateway, &packet), may_pass, "{ends:?} {class:#x} {flags:?}");
        }
    }
}
