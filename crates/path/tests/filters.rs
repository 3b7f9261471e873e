//! Filters of ports and VRFs, with packets on their way through a whole gateway.

mod fixture;

use fixture::*;
use flow::{Associativity, CacheMode, CacheSettings};
use packet::DropReason;
use tables::{
    Event, FieldsSelector, FilterAction, FilterHook, FilterMatch, FilterPlace, FilterSpec,
    FilterTarget, FilterVerdict, MarkBits, RejectWith, Selector, Tables, UpperSelector,
};
use wire::{IpRange, PortId, PortRange, Protocol, TcpFlags, VrfId, headers, ipv4};

const HERE: [&str; 2] = ["192.168.13.5", "fd13::5"];
const THERE: [&str; 2] = ["192.168.12.7", "fd12::7"];

const INGRESS: FilterHook = FilterHook::Ingress;
const EGRESS: FilterHook = FilterHook::Egress;
const MAIN: FilterTarget = FilterTarget::Vrf(VrfId::MAIN);

fn port(id: PortId) -> FilterTarget {
    FilterTarget::Port(id)
}

/// A rule for all packets.
fn rule(target: FilterTarget, hook: FilterHook, preference: u32) -> FilterSpec {
    let selector = |all| Selector {
        source: all,
        destination: all,
        protocol: None,
        upper: UpperSelector::Any,
        fields: FieldsSelector::ANY,
    };
    FilterSpec {
        place: FilterPlace { target, hook },
        preference,
        selects: FilterMatch {
            v4: Some(selector(IpRange::ALL_V4)),
            v6: Some(selector(IpRange::ALL_V6)),
            mark: MarkBits::default(),
        },
        action: FilterAction {
            verdict: FilterVerdict::Pass,
            reject_with: RejectWith::AdminProhibited,
            set_mark: None,
            log: false,
        },
    }
}

fn narrow(mut spec: FilterSpec, change: impl Fn(&mut Selector)) -> FilterSpec {
    spec.selects.v4.iter_mut().chain(&mut spec.selects.v6).for_each(change);
    spec
}

/// For packets of this protocol to this port alone.
fn to_port(spec: FilterSpec, protocol: Protocol, number: u16) -> FilterSpec {
    let destination = PortRange::new(number, number).unwrap();
    narrow(spec, |selector| {
        selector.protocol = Some(protocol);
        selector.upper = UpperSelector::Ports { source: PortRange::ALL, destination };
    })
}

fn marked(mut spec: FilterSpec, mark: u32) -> FilterSpec {
    spec.selects.mark = MarkBits { value: mark, mask: 0xf };
    spec
}

fn marking(mut spec: FilterSpec, mark: u32) -> FilterSpec {
    spec.action.set_mark = Some(MarkBits { value: mark, mask: 0xf });
    spec
}

fn dropping(mut spec: FilterSpec) -> FilterSpec {
    spec.action.verdict = FilterVerdict::Drop;
    spec
}

fn rejecting(mut spec: FilterSpec, with: RejectWith) -> FilterSpec {
    spec.action.verdict = FilterVerdict::Reject;
    spec.action.reject_with = with;
    spec
}

fn with_rules(mut tables: Tables, rules: &[FilterSpec]) -> Tables {
    rules.iter().for_each(|rule| tables.set_filter_rule(*rule).unwrap());
    tables
}

fn gateway(rules: &[FilterSpec]) -> Gateway {
    Gateway::new(with_rules(plain_tables(), rules))
}

/// Packets and bytes that a rule has decided.
fn counted(gateway: &Gateway, rule: &FilterSpec) -> (u64, u64) {
    let tables = gateway.publisher.current();
    tables.filter(rule.place).unwrap().rule(rule.preference).unwrap().counters.read()
}

fn tcp(ends: (&str, &str), header: wire::tcp::Header, payload: usize) -> Vec<u8> {
    let (source, destination) = (ip(ends.0), ip(ends.1));
    let mut segment = [header.to_bytes().as_slice(), &vec![7; payload]].concat();
    wire::tcp::fill_checksum(&addresses(source, destination), &mut segment);
    packet(source, destination, Protocol::TCP, 64, &segment)
}

fn syn() -> wire::tcp::Header {
    wire::tcp::Header {
        source: 40_000,
        destination: 22,
        sequence: 1000,
        header_length: 20,
        flags: TcpFlags(2),
        ..Default::default()
    }
}

#[test]
fn a_dropped_packet_is_dropped_in_silence_under_its_hook() {
    for (place, reason) in [
        ((port(LAN), INGRESS), DropReason::FilterIngress),
        ((MAIN, INGRESS), DropReason::FilterIngress),
        ((MAIN, EGRESS), DropReason::FilterEgress),
        ((port(WAN), EGRESS), DropReason::FilterEgress),
    ] {
        let drop = to_port(dropping(rule(place.0, place.1, 10)), Protocol::UDP, 53);
        let mut gateway = gateway(&[drop]);
        for (here, there) in HERE.into_iter().zip(THERE) {
            gateway.receive(LAN, &udp(here, there, (5000, 53), 10));
            assert_eq!(gateway.sent(WAN), []);
            gateway.receive(LAN, &udp(here, there, (5000, 54), 10));
            gateway.sent_one(WAN);
        }
        assert_eq!(gateway.drops(), [(reason.name(), 2)]);
        assert_eq!(gateway.sent(LAN), []);
        assert_eq!(counted(&gateway, &drop), (2, 38 + 58));
        gateway.assert_nothing_lost();
    }
}

#[test]
fn filters_of_other_places_do_not_see_a_packet() {
    let others = [(port(WAN), INGRESS), (port(LAN), EGRESS)];
    let mut gateway = gateway(&others.map(|(target, hook)| dropping(rule(target, hook, 1))));
    gateway.receive(LAN, &udp(HERE[0], THERE[0], (5000, 53), 10));
    gateway.sent_one(WAN);
    assert_eq!(gateway.drops(), []);
}

#[test]
fn the_sender_of_a_rejected_packet_is_told() {
    let kinds = [
        (RejectWith::AdminProhibited, [(3, 13), (1, 1)]),
        (RejectWith::Port, [(3, 3), (1, 4)]),
        (RejectWith::Host, [(3, 1), (1, 3)]),
        (RejectWith::Net, [(3, 0), (1, 0)]),
        // What is not TCP cannot be reset.
        (RejectWith::TcpReset, [(3, 13), (1, 1)]),
    ];
    for (with, messages) in kinds {
        for place in [(port(LAN), INGRESS), (MAIN, EGRESS), (port(WAN), EGRESS)] {
            let mut gateway = gateway(&[rejecting(rule(place.0, place.1, 10), with)]);
            // The message itself meets the filters after routing: let it pass.
            let own = narrow(rule(MAIN, EGRESS, 1), |selector| {
                let is_v6 = selector.source == IpRange::ALL_V6;
                selector.protocol = Some(if is_v6 { Protocol::ICMPV6 } else { Protocol::ICMP });
            });
            gateway.change(|tables| tables.set_filter_rule(own).unwrap());
            for (family, (kind, code)) in messages.into_iter().enumerate() {
                gateway.receive(LAN, &udp(HERE[family], THERE[family], (5000, 53), 10));
                let (mac, told) = gateway.sent_one(LAN);
                let upper = usize::from(headers::parse(&told).unwrap().upper_offset);
                assert_eq!((mac, told[upper], told[upper + 1]), (HOST_MAC, kind, code), "{with}");
                assert_eq!(gateway.sent(WAN), []);
            }
            gateway.assert_nothing_lost();
        }
    }
}

/// RFC 9293 section 3.10.7.1.
#[test]
fn a_rejected_connection_is_reset() {
    let reject = to_port(rule(port(LAN), INGRESS, 10), Protocol::TCP, 22);
    let reject = rejecting(reject, RejectWith::TcpReset);
    let mut gateway = gateway(&[reject]);
    for ends in HERE.into_iter().zip(THERE) {
        gateway.receive(LAN, &tcp(ends, syn(), 0));
        let (_, reset) = gateway.sent_one(LAN);
        let parsed = headers::parse(&reset).unwrap();
        assert_eq!(parsed.addresses, addresses(ip(ends.1), ip(ends.0)));
        assert_eq!(parsed.protocol, Protocol::TCP);
        let segment = &reset[usize::from(parsed.upper_offset)..];
        assert_eq!(segment[..4], [0, 22, 0x9c, 0x40]);
        assert_eq!((&segment[4..12], segment[13]), (&[0, 0, 0, 0, 0, 0, 3, 0xe9][..], 0x14));
        let sum = wire::checksum::upper(&parsed.addresses, Protocol::TCP, segment);
        assert_eq!(sum, 0, "the checksum of the reset");

        // One that acknowledges is answered with its number; a reset never is.
        let ack = wire::tcp::Header { flags: TcpFlags(0x10), acknowledgment: 77, ..syn() };
        gateway.receive(LAN, &tcp(ends, ack, 5));
        let (_, reset) = gateway.sent_one(LAN);
        let segment = &reset[usize::from(headers::parse(&reset).unwrap().upper_offset)..];
        assert_eq!((&segment[4..8], segment[13]), (&[0, 0, 0, 77][..], 4));
        let reset = wire::tcp::Header { flags: TcpFlags(4), ..syn() };
        gateway.receive(LAN, &tcp(ends, reset, 0));
        assert_eq!(gateway.sent(LAN), []);
    }
    assert_eq!(counted(&gateway, &reject).0, 6);
    assert_eq!(gateway.drops(), [("filter_ingress", 6)]);
    gateway.assert_nothing_lost();
}

/// RFC 1122 sections 3.2.2 and 4.2.3.10: nobody is told of what went to many, or came from none.
#[test]
fn what_is_rejected_on_its_way_to_many_is_not_answered() {
    for with in RejectWith::ALL {
        let mut gateway = gateway(&[rejecting(rule(port(LAN), INGRESS, 10), with)]);
        let ends = [
            (HERE[0], "192.168.13.255"),
            (HERE[0], "192.168.11.255"),
            (HERE[0], "224.0.0.9"),
            (HERE[0], "255.255.255.255"),
            ("192.168.13.255", THERE[0]),
            (HERE[1], "ff0e::9"),
        ];
        for ends in ends {
            for packet in [tcp(ends, syn(), 0), udp(ends.0, ends.1, (5000, 53), 10)] {
                gateway.receive(LAN, &packet);
                assert_eq!(gateway.sent(LAN), [], "{with} {ends:?}");
            }
        }
        assert_eq!(gateway.drops(), [("filter_ingress", 2 * ends.len() as u64)]);
        gateway.receive(LAN, &tcp((HERE[0], THERE[0]), syn(), 0));
        gateway.sent_one(LAN);
        gateway.assert_nothing_lost();
    }
}

/// The port's before the VRF's, and after routing the VRF's before the port's: each filter finds
/// the mark that the one before it has set.
#[test]
fn filters_are_met_in_order_and_pass_marks_on() {
    let rules = [
        marking(marked(rule(port(LAN), INGRESS, 10), 0), 1),
        marking(marked(rule(MAIN, INGRESS, 10), 1), 2),
        marking(marked(rule(MAIN, EGRESS, 10), 2), 3),
        dropping(marked(rule(port(WAN), EGRESS, 10), 3)),
    ];
    let mut gateway = gateway(&rules);
    for number in 1..=3 {
        gateway.receive(LAN, &udp(HERE[0], THERE[0], (5000, 53), 10));
        gateway.receive(LAN, &udp(HERE[1], THERE[1], (5000, 53), 10));
        for rule in &rules {
            assert_eq!(counted(&gateway, rule), (2 * number, number * (38 + 58)));
        }
    }
    assert_eq!(gateway.drops(), [("filter_egress", 6)]);
    // Another VRF's packets begin with mark 0, and bits outside the mask stay.
    let other = marking(marked(rule(port(LAN), INGRESS, 10), 0), 4);
    gateway.change(|tables| tables.set_filter_rule(other).unwrap());
    gateway.receive(LAN, &udp(HERE[0], THERE[0], (5000, 53), 10));
    gateway.sent_one(WAN);
}

#[test]
fn the_first_rule_decides_and_a_change_holds_for_the_next_packet() {
    let pass = to_port(rule(port(LAN), INGRESS, 10), Protocol::UDP, 53);
    let drop = dropping(rule(port(LAN), INGRESS, 20));
    let mut gateway = gateway(&[drop, pass]);
    let packet = udp(HERE[0], THERE[0], (5000, 53), 10);
    gateway.receive(LAN, &packet);
    gateway.sent_one(WAN);
    gateway.change(|tables| tables.remove_filter_rule(pass.place, 10).unwrap());
    gateway.receive(LAN, &packet);
    assert_eq!((gateway.sent(WAN).len(), counted(&gateway, &drop).0), (0, 1));
    gateway.change(|tables| {
        // Another action: the counters stay.
        tables.set_filter_rule(rule(port(LAN), INGRESS, 20)).unwrap();
    });
    gateway.receive(LAN, &packet);
    gateway.sent_one(WAN);
    assert_eq!(counted(&gateway, &drop).0, 2);
    gateway.change(|tables| tables.remove_filter_rule(drop.place, 20).unwrap());
    gateway.receive(LAN, &packet);
    gateway.sent_one(WAN);
}

#[test]
fn counters_are_exact_with_and_without_the_cache() {
    for mode in [CacheMode::On, CacheMode::Off, CacheMode::Auto] {
        let cache = CacheSettings { mode, buckets: 64, associativity: Associativity::Four };
        let count = to_port(rule(port(LAN), INGRESS, 10), Protocol::UDP, 53);
        let rest = rule(port(LAN), INGRESS, 20);
        let tables = with_rules(plain_tables(), &[count, rest]);
        let mut gateway = Gateway::with_caches(tables, [cache; 4], 3);
        let (mut packets, mut bytes) = (0, 0);
        for number in 0..300_u16 {
            let payload = usize::from(number % 7);
            let to = 53 + number % 3;
            let packet = udp(HERE[0], THERE[0], (5000 + number % 11, to), payload);
            if to == 53 {
                (packets, bytes) = (packets + 1, bytes + packet.len() as u64);
            }
            gateway.receive(LAN, &packet);
            gateway.sent_one(WAN);
        }
        assert_eq!(counted(&gateway, &count), (packets, bytes), "{mode:?}");
        assert_eq!(counted(&gateway, &rest).0, 300 - packets, "{mode:?}");
    }
}

const OUTER: (&str, &str) = ("192.168.11.2", "192.168.11.1");

#[test]
fn what_was_decrypted_meets_the_filters_of_its_vrf_alone_on_the_way_in() {
    let inner = udp(THERE[0], HERE[0], (53, 5000), 100);
    let peer = peer_outbound(0x1002, false);
    let outer = |inner: &[u8]| seal(&peer, OUTER.1, OUTER.0, inner);
    let udp_of = |target, hook| to_port(rule(target, hook, 10), Protocol::UDP, 5000);
    for (place, passes) in
        [((port(WAN), INGRESS), true), ((MAIN, INGRESS), false), ((port(LAN), EGRESS), false)]
    {
        let drop = dropping(udp_of(place.0, place.1));
        let mut gateway = Gateway::new(with_rules(tunnel_tables(OUTER, false), &[drop]));
        gateway.receive(WAN, &outer(&inner));
        assert_eq!(gateway.sent(LAN).len(), usize::from(passes), "{place:?}");
        assert_eq!(counted(&gateway, &drop).0, u64::from(!passes));
        gateway.assert_nothing_lost();
    }
    // The outer packet meets the filters of the port and of the VRF.
    for target in [port(WAN), MAIN] {
        let drop = narrow(dropping(rule(target, INGRESS, 10)), |selector| {
            selector.protocol = Some(Protocol::ESP);
        });
        let mut gateway = Gateway::new(with_rules(tunnel_tables(OUTER, false), &[drop]));
        gateway.receive(WAN, &outer(&inner));
        assert_eq!(gateway.drops(), [("filter_ingress", 1)]);
    }
}

#[test]
fn what_is_encrypted_meets_no_filter_of_the_port_that_it_leaves_by() {
    for (place, passes) in
        [((port(WAN), EGRESS), true), ((MAIN, EGRESS), false), ((port(LAN), INGRESS), false)]
    {
        let drop = dropping(rule(place.0, place.1, 10));
        let mut gateway = Gateway::new(with_rules(tunnel_tables(OUTER, false), &[drop]));
        gateway.receive(LAN, &udp(HERE[0], THERE[0], (5000, 53), 100));
        assert_eq!(gateway.sent(WAN).len(), usize::from(passes), "{place:?}");
        gateway.assert_nothing_lost();
    }
}

#[test]
fn the_gateways_own_errors_meet_filters_after_routing() {
    let mut gateway = gateway(&[dropping(narrow(rule(port(LAN), EGRESS, 10), |selector| {
        selector.protocol = Some(Protocol::ICMP);
        selector.upper = UpperSelector::Any;
    }))]);
    let mut late = udp(HERE[0], THERE[0], (5000, 53), 10);
    late[8] = 1;
    ipv4::fill_checksum(&mut late);
    gateway.receive(LAN, &late);
    assert_eq!(gateway.sent(LAN), []);
    assert_eq!(gateway.drops(), [("hop_limit", 1), ("filter_egress", 1)]);
    gateway.assert_nothing_lost();
}

/// A fragment of an IPv4 packet: bytes from `start` to `end` behind the header.
fn fragment(whole: &[u8], start: usize, end: usize) -> Vec<u8> {
    let mut part = whole[..20].to_vec();
    part.extend_from_slice(&whole[20 + start..20 + end]);
    let length = part.len() as u16;
    part[2..4].copy_from_slice(&length.to_be_bytes());
    part[4..6].copy_from_slice(&[0x55, 0x66]);
    let more = if 20 + end < whole.len() { 0x2000 } else { 0 };
    part[6..8].copy_from_slice(&(more | (start / 8) as u16).to_be_bytes());
    ipv4::fill_checksum(&mut part);
    part
}

#[test]
fn later_fragments_are_filtered_by_the_ports_of_the_first() {
    let drop = to_port(dropping(rule(port(LAN), INGRESS, 10)), Protocol::UDP, 53);
    let mut gateway = gateway(&[drop]);
    for (to, sent) in [(53, 0), (54, 3)] {
        let whole = udp(HERE[0], THERE[0], (5000, to), 72);
        for (start, end) in [(0, 24), (24, 48), (48, 80)] {
            let mut part = fragment(&whole, start, end);
            part[5] = to as u8;
            ipv4::fill_checksum(&mut part);
            gateway.receive(LAN, &part);
        }
        assert_eq!(gateway.sent(WAN).len(), sent, "{:?}", gateway.drops());
    }
    assert_eq!(counted(&gateway, &drop), (3, 3 * 20 + 80));
    gateway.assert_nothing_lost();
}

#[test]
fn logged_packets_are_told_within_a_rate() {
    let mut spec = to_port(dropping(rule(port(LAN), INGRESS, 10)), Protocol::UDP, 53);
    spec.action.log = true;
    let mut gateway = gateway(&[spec]);
    let packet = udp(HERE[0], THERE[0], (5000, 53), 10);
    let told = |gateway: &mut Gateway| {
        let events = std::iter::from_fn(|| gateway.events.pop().ok());
        let told = events.filter_map(|event| match event {
            Event::Logged(packet) => Some(packet),
            _ => None,
        });
        told.collect::<Vec<_>>()
    };
    for _ in 0..1000 {
        gateway.receive(LAN, &packet);
    }
    gateway.receive(LAN, &udp(HERE[0], THERE[0], (5000, 54), 10));
    let first = told(&mut gateway);
    assert_eq!(first.len(), 10);
    assert_eq!(first[0].by, tables::LoggedBy::Rule { place: spec.place, preference: 10 });
    assert_eq!((first[0].verdict, first[0].length), (FilterVerdict::Drop, 38));
    assert_eq!(first[0].flow.addresses.source(), ip(HERE[0]));
    gateway.now = gateway.now + std::time::Duration::from_secs(1);
    gateway.receive(LAN, &packet);
    assert_eq!(told(&mut gateway).iter().map(|told| told.untold).collect::<Vec<_>>(), [990]);
    assert_eq!(counted(&gateway, &spec).0, 1001);
    assert_eq!(gateway.worker.statistics().events_lost.read(), 0);
}
