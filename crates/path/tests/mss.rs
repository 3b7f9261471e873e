//! The MSS that SYNs announce, lowered by ports on their way.

mod fixture;

use fixture::*;
use flow::{Associativity, CacheMode, CacheSettings, CacheTable};
use packet::DropReason;
use tables::{MssClamp, PortSpec, Tables};
use wire::{FragmentClass, PortId, PortRange, Protocol, TcpFlags, fragment, headers};

const HERE: [&str; 2] = ["192.168.13.5", "fd13::5"];
const THERE: [&str; 2] = ["192.168.12.7", "fd12::7"];
/// What an IP and a TCP header take.
const HEADERS: [u16; 2] = [40, 60];
const SYN: u8 = TcpFlags::SYN.0;
const SYN_ACK: u8 = TcpFlags::SYN.0 | TcpFlags::ACK.0;
const ACK: u8 = TcpFlags::ACK.0;

/// A segment with such an MSS option, or none, behind a NOP so that its place is odd.
fn tcp(ends: (&str, &str), flags: u8, mss: Option<u16>, data: usize) -> Vec<u8> {
    let options = match mss {
        Some(mss) => [&[1, 2, 4][..], &mss.to_be_bytes(), &[1, 1, 1]].concat(),
        None => Vec::new(),
    };
    let header = wire::tcp::Header {
        source: 40_000,
        destination: 80,
        header_length: 20 + options.len() as u8,
        flags: TcpFlags(flags),
        ..wire::tcp::Header::default()
    };
    let mut segment = [&header.to_bytes()[..], &options, &vec![7; data]].concat();
    let (source, destination) = (ip(ends.0), ip(ends.1));
    wire::tcp::fill_checksum(&addresses(source, destination), &mut segment);
    packet(source, destination, Protocol::TCP, 64, &segment)
}

/// The MSS that a packet of [`tcp`] announces, whose checksum has to be right.
#[track_caller]
fn announced(packet: &[u8]) -> Option<u16> {
    let found = headers::parse(packet).unwrap();
    let segment = found.upper_bytes(packet);
    assert!(wire::tcp::is_right(&found.addresses, segment));
    let [1, 2, 4, high, low, 1, 1, 1, ..] = segment[20..] else { return None };
    Some(u16::from_be_bytes([high, low]))
}

fn change_port(tables: &mut Tables, id: PortId, change: impl FnOnce(&mut PortSpec)) {
    let mut spec = tables.port(id).unwrap().spec.clone();
    change(&mut spec);
    tables.update_port(id, spec).unwrap();
}

fn clamp(tables: &mut Tables, id: PortId, mss: MssClamp) {
    change_port(tables, id, |spec| spec.mss = mss);
}

/// What becomes of an MSS on the way from one port to the other.
#[track_caller]
fn through(gateway: &mut Gateway, from: PortId, packet: &[u8]) -> Option<u16> {
    gateway.receive(from, packet);
    let (_, sent) = gateway.sent_one(if from == LAN { WAN } else { LAN });
    announced(&sent)
}

fn ends(family: usize, from: PortId) -> (&'static str, &'static str) {
    match from {
        LAN => (HERE[family], THERE[family]),
        _ => (THERE[family], HERE[family]),
    }
}

#[test]
fn in_clear_both_ways_and_by_whichever_port_asks() {
    for asking in [LAN, WAN] {
        for (family, headers) in HEADERS.into_iter().enumerate() {
            let mut tables = plain_tables();
            change_port(&mut tables, WAN, |spec| spec.mtu = 1400);
            clamp(&mut tables, asking, MssClamp::Pmtu);
            let mut gateway = Gateway::new(tables);
            for (from, flags) in [(LAN, SYN), (WAN, SYN_ACK), (WAN, SYN), (LAN, SYN_ACK)] {
                let ends = ends(family, from);
                let mut mss = |mss| through(&mut gateway, from, &tcp(ends, flags, mss, 0));
                assert_eq!(mss(Some(1460)), Some(1400 - headers), "{from:?} {flags}");
                // It is never made larger, and never added.
                assert_eq!(mss(Some(1400 - headers)), Some(1400 - headers));
                assert_eq!(mss(Some(536)), Some(536));
                assert_eq!(mss(None), None);
            }
            // What is no SYN stays as it is.
            let other = tcp(ends(family, LAN), ACK, Some(1460), 10);
            assert_eq!(through(&mut gateway, LAN, &other), Some(1460));
            assert_eq!(gateway.worker.statistics().mss_clamped.read(), 4);
            gateway.assert_nothing_lost();
        }
    }
}

#[test]
fn a_number_is_the_most_whatever_the_mtu_and_the_least_of_both_ports_counts() {
    let mut tables = plain_tables();
    clamp(&mut tables, LAN, MssClamp::Most(1200));
    clamp(&mut tables, WAN, MssClamp::Most(1000));
    let mut gateway = Gateway::new(tables);
    let syn = tcp(ends(0, LAN), SYN, Some(1460), 0);
    assert_eq!(through(&mut gateway, LAN, &syn), Some(1000));
    gateway.change(|tables| clamp(tables, WAN, MssClamp::Pmtu));
    assert_eq!(through(&mut gateway, LAN, &syn), Some(1200));
    gateway.change(|tables| clamp(tables, LAN, MssClamp::Off));
    assert_eq!(through(&mut gateway, LAN, &syn), Some(1460));
    gateway.change(|tables| change_port(tables, LAN, |spec| spec.mtu = 1300));
    assert_eq!(through(&mut gateway, LAN, &syn), Some(1260));
    gateway.change(|tables| clamp(tables, WAN, MssClamp::Off));
    assert_eq!(through(&mut gateway, LAN, &syn), Some(1460));
}

/// A segment of the announced MSS fits the tunnel, and one byte more does not.
#[test]
fn through_a_tunnel_both_ways() {
    for outer in [("192.168.11.2", "192.168.11.1"), ("fd11::2", "fd11::1")] {
        for (cbc, asking) in [(false, LAN), (false, WAN), (true, WAN)] {
            for (family, headers) in HEADERS.into_iter().enumerate() {
                let mut tables = tunnel_tables(outer, cbc);
                clamp(&mut tables, asking, MssClamp::Pmtu);
                let mut gateway = Gateway::new(tables);
                let peer = peer_inbound(0x1001, cbc);
                gateway.receive(LAN, &tcp(ends(family, LAN), SYN, Some(1460), 0));
                let (_, sealed) = gateway.sent_one(WAN);
                let most = announced(&open(&peer, &sealed)).unwrap();
                assert!((1300..1460).contains(&most), "{most}");

                let peer = peer_outbound(0x1002, cbc);
                let answer = tcp(ends(family, WAN), SYN_ACK, Some(1460), 0);
                gateway.receive(WAN, &seal(&peer, outer.1, outer.0, &answer));
                assert_eq!(announced(&gateway.sent_one(LAN).1), Some(most));

                let data = |size: u16| {
                    let mut packet = tcp(ends(family, LAN), ACK, None, size.into());
                    assert_eq!(packet.len(), usize::from(size + headers));
                    if family == 0 {
                        wire::ipv4::Header {
                            total_length: packet.len() as u16,
                            dont_fragment: true,
                            ttl: 64,
                            protocol: Protocol::TCP,
                            source: v4(HERE[0]),
                            destination: v4(THERE[0]),
                            ..wire::ipv4::Header::default()
                        }
                        .to_bytes()
                        .swap_with_slice(&mut packet[..20]);
                    }
                    packet
                };
                gateway.receive(LAN, &data(most));
                assert!(gateway.sent_one(WAN).1.len() <= 1500);
                assert_eq!(gateway.dropped(DropReason::TooBig), 0);
                gateway.receive(LAN, &data(most + 1));
                assert_eq!(gateway.dropped(DropReason::TooBig), 1, "{most}");
            }
        }
    }
}

/// With the cache, SYNs are found beside the other packets of their flow, whose hits stay hits; and
/// what a port clamps to is in no decision.
#[test]
fn a_flow_whose_packets_are_cached_has_its_syns_clamped_and_a_new_clamp_costs_no_decision() {
    let large =
        CacheSettings { mode: CacheMode::On, buckets: 1 << 10, associativity: Associativity::Four };
    let mut tables = plain_tables();
    clamp(&mut tables, WAN, MssClamp::Most(1200));
    let mut gateway = Gateway::with_caches(tables, [large; 4], 7);
    let [syn, ack] = [SYN, ACK].map(|flags| tcp(ends(0, LAN), flags, Some(1460), 0));
    for (packet, mss) in [(&ack, 1460), (&syn, 1200), (&ack, 1460), (&syn, 1200)] {
        assert_eq!(through(&mut gateway, LAN, packet), Some(mss));
    }
    let hits = |gateway: &Gateway| gateway.cache(CacheTable::V4Outbound).hits.read();
    assert_eq!(hits(&gateway), 2);
    for (mss, wanted) in
        [(MssClamp::Most(900), 900), (MssClamp::Pmtu, 1460), (MssClamp::Most(1000), 1000)]
    {
        gateway.change(|tables| clamp(tables, WAN, mss));
        assert_eq!(through(&mut gateway, LAN, &syn), Some(wanted));
        assert_eq!(through(&mut gateway, LAN, &ack), Some(1460));
    }
    assert_eq!(hits(&gateway), 8);
}

/// The first fragment of a SYN has the option; a later one has the flags of its datagram in its key
/// and nothing to change.
#[test]
fn fragments_of_a_syn() {
    let mut tables = plain_tables();
    clamp(&mut tables, WAN, MssClamp::Most(1200));
    // So that later fragments get the first's ports and flags.
    let mut reads_ports =
        policy(tables::Direction::Out, "0.0.0.0/0", "0.0.0.0/0", tables::Action::Bypass);
    reads_ports.selector.protocol = Some(Protocol::TCP);
    let (source, destination) = (PortRange::ALL, PortRange::new(80, 80).unwrap());
    reads_ports.selector.upper = tables::UpperSelector::Ports { source, destination };
    tables.add_policy(reads_ports).unwrap();
    accept(&mut tables, tables::Direction::In);
    let mut gateway = Gateway::new(tables);
    // The data reads like an MSS option at the place where one would be.
    let mut whole = tcp(ends(0, LAN), SYN, Some(1460), 200);
    let (upper, data) = (20, 20 + 28);
    whole[data..].iter_mut().zip([1, 2, 4, 0xff, 0xff].into_iter().cycle()).for_each(|(to, is)| {
        *to = is;
    });
    wire::tcp::fill_checksum(&addresses(ip(HERE[0]), ip(THERE[0])), &mut whole[upper..]);
    let plan = fragment::plan(&whole, 100).unwrap();
    let mut joined = Vec::new();
    for piece in plan {
        let mut part = vec![0; piece.total_length()];
        fragment::write(&whole, &piece, &mut part).unwrap();
        gateway.receive(LAN, &part);
        let (_, sent) = gateway.sent_one(WAN);
        let is_first = joined.is_empty();
        let class = headers::parse(&sent).unwrap().fragment.class;
        assert_eq!(class == FragmentClass::First, is_first);
        joined.extend_from_slice(if is_first { &sent } else { &sent[20..] });
    }
    let segment = &joined[upper..];
    assert!(wire::tcp::is_right(&addresses(ip(HERE[0]), ip(THERE[0])), segment));
    assert_eq!(segment[20..25], [1, 2, 4, 0x04, 0xb0]);
    assert_eq!(segment[28..], whole[data..]);
}

/// By a route that leads out of the VRF.
#[test]
fn a_port_of_another_vrf_clamps_what_leaves_by_it() {
    let mut tables = plain_tables();
    let red = tables.add_vrf("red").unwrap();
    change_port(&mut tables, LAN, |spec| spec.vrf = red);
    for (host, mac) in HERE.into_iter().map(|host| (host, HOST_MAC)) {
        tables.set_neighbour(LAN, ip(host), mac).unwrap();
    }
    clamp(&mut tables, WAN, MssClamp::Most(1100));
    // A leak.
    tables
        .set_route(red, prefix("0.0.0.0/0"), tables::RouteSpec::Vrf { vrf: wire::VrfId::MAIN })
        .unwrap();
    let mut gateway = Gateway::new(tables);
    let syn = tcp(ends(0, LAN), SYN, Some(1460), 0);
    assert_eq!(through(&mut gateway, LAN, &syn), Some(1100));
    gateway.change(|tables| clamp(tables, WAN, MssClamp::Off));
    assert_eq!(through(&mut gateway, LAN, &syn), Some(1460));
}
