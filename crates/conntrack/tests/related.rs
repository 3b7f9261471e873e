//! ICMP errors and expected connections.

mod gate;

use std::time::Duration;

use conntrack::QuotedSequence::{Is, Missing, OnItsWay};
use conntrack::nat::Lease;
use conntrack::{
    CtState, Direction, Expectation, New, NotExpected, Packet, Refused, Settings, State, Tuple,
};
use gate::{EST, Gate, INV, NEW, REPLY, addresses, segment, settings, tcp, udp};
use types::{Addresses, Protocol};
use wire::checksum;

const DATAGRAM: Packet = Packet::Datagram;
const RELATED: CtState = CtState(0x24);
const RELATED_REPLY: CtState = CtState(0x2c);

#[test]
fn an_error_belongs_to_the_connection_that_it_quotes() {
    let mut gate = Gate::new(&settings(16));
    let tuple = udp(0x0b00_0001, 4000);
    gate.packet(tuple, &DATAGRAM);
    let ask = |gate: &Gate, outer: Addresses, quoted: &Tuple| {
        gate.table.related(0, &outer, quoted, Missing, gate.now).ct_state
    };
    let router = 0x0c0c_0c0c;
    // Some router on the way says that it did not arrive.
    assert_eq!(ask(&gate, addresses(router, 0x0b00_0001), &tuple), RELATED_REPLY);
    // To somebody else: forged, whoever says it.
    assert_eq!(ask(&gate, addresses(router, 0x0b00_0002), &tuple), INV);
    assert_eq!(ask(&gate, addresses(0x0a00_0001, 0x0a00_0001), &tuple), INV);
    // About an answer that nobody has sent.
    let back = tuple.reversed();
    assert_eq!(ask(&gate, addresses(router, 0x0a00_0001), &back), INV);
    gate.packet(back, &DATAGRAM);
    assert_eq!(ask(&gate, addresses(router, 0x0a00_0001), &back), RELATED);
    // About nothing, in another zone, about a dead one.
    assert_eq!(ask(&gate, addresses(router, 0x0b00_0001), &udp(0x0b00_0001, 4001)), INV);
    let outer = addresses(router, 0x0b00_0001);
    assert_eq!(gate.table.related(1, &outer, &tuple, Missing, gate.now).ct_state, INV);
    gate.wait(31);
    assert_eq!(ask(&gate, addresses(router, 0x0b00_0001), &tuple), INV);
}

#[test]
fn an_error_about_tcp_quotes_data_on_its_way() {
    let mut gate = Gate::new(&settings(16));
    let tuple = tcp(0x0b00_0001, 4000);
    gate.packet(tuple, &segment("S", 1_000_000, 0, 0));
    gate.packet(tuple.reversed(), &segment("SA", 5000, 1_000_001, 0));
    gate.packet(tuple, &segment("A", 1_000_001, 5001, 1000));
    let outer = addresses(77, 0x0b00_0001);
    let ask = |sequence| gate.table.related(0, &outer, &tuple, sequence, gate.now).ct_state;
    assert_eq!(ask(Is(1_000_001)), RELATED_REPLY);
    assert_eq!(ask(OnItsWay), RELATED_REPLY);
    for wrong in [Missing, Is(0), Is(1_001_002), Is(900_000), Is(1 << 31)] {
        assert_eq!(ask(wrong), INV, "{wrong:?}");
    }
    // It ends nothing.
    assert_eq!(gate.connection(&tuple).unwrap().state, State::Established);
    assert_eq!(gate.packet(tuple, &segment("A", 1_001_001, 5001, 10)), EST);
}

#[test]
fn an_error_is_translated_outside_and_inside() {
    let mut gate = Gate::new(&settings(16));
    let original = udp(0x0b00_0001, 4000);
    let translated = original.with_source("192.0.2.1".parse().unwrap(), 6000).unwrap();
    gate.packet_to(&New::plain(0, original), &Lease::of(translated), &DATAGRAM);
    // The packet as it went out, in an error of some router to the translated address.
    let ip = |addresses: &Addresses, protocol: u8, length: usize| {
        let Addresses::V4 { source, destination } = addresses else { panic!() };
        let mut header = vec![0x45, 0, 0, length as u8, 0, 0, 0, 0, 9, protocol, 0, 0];
        header.extend(source.octets());
        header.extend(destination.octets());
        let sum = checksum::checksum(&header);
        header[10..12].copy_from_slice(&sum.to_be_bytes());
        header
    };
    let quoted_packet = |tuple: &Tuple| {
        let mut datagram = [tuple.source.to_be_bytes(), tuple.destination.to_be_bytes()].concat();
        datagram.extend([0, 12, 0, 0, 1, 2, 3, 4]);
        let sum = checksum::upper(&tuple.addresses, Protocol::UDP, &datagram);
        datagram[6..8].copy_from_slice(&sum.to_be_bytes());
        [ip(&tuple.addresses, 17, 32), datagram].concat()
    };
    let error = |outer: &Addresses, quoted: &Tuple| {
        let mut icmp = vec![3, 1, 0, 0, 0, 0, 0, 0];
        icmp.extend(quoted_packet(quoted));
        let sum = checksum::checksum(&icmp);
        icmp[2..4].copy_from_slice(&sum.to_be_bytes());
        [ip(outer, 1, 60), icmp].concat()
    };
    let outer = addresses(0x0c0c_0c0c, 0xc000_0201);
    let related = gate.table.related(0, &outer, &translated, Missing, gate.now);
    assert_eq!(related.ct_state, CtState(RELATED_REPLY.0 | CtState::DNAT.0));
    let (handle, direction) = related.connection.unwrap();
    assert_eq!(direction, Direction::Reply);
    let translation = gate.table.translation(handle, direction).unwrap();
    let mut packet = error(&outer, &translated);
    translation.apply_to_error(&mut packet, 20, 28, 48, None).unwrap();
    assert_eq!(packet, error(&addresses(0x0c0c_0c0c, 0x0b00_0001), &original));
    // An error that quotes addresses behind the translation is nobody's.
    let inside = gate.table.related(0, &addresses(9, 0x0b00_0001), &original, Missing, gate.now);
    assert_eq!(inside.ct_state, INV);
    // Shorter ones are translated as far as they are there, or left alone.
    for length in 0..packet.len() {
        let mut short = error(&outer, &translated);
        short.truncate(length);
        let copy = short.clone();
        if translation.apply_to_error(&mut short, 20, 28, 48, None).is_err() {
            assert_eq!(short, copy);
            assert!(length < 48);
        }
    }
}

fn expectation(gate: &Gate, master: &Tuple, port: u16) -> Expectation {
    Expectation {
        zone: 0,
        master: gate.lookup(master).unwrap().0,
        protocol: Protocol::TCP,
        source: Some("10.0.0.1".parse().unwrap()),
        source_port: None,
        destination: master.addresses.source(),
        destination_port: port,
        translated: None,
        translated_source: None,
        helper: 0,
        is_permanent: false,
        until: gate.now + Duration::from_secs(300),
    }
}

#[test]
fn an_expected_connection_is_related_for_as_long_as_it_lives() {
    let mut gate = Gate::new(&settings(16));
    let control = tcp(0x0b00_0001, 4000);
    gate.packet(control, &segment("S", 1000, 0, 0));
    let expected = expectation(&gate, &control, 5050);
    // From any port of the server to 5050 of the client.
    let data = Tuple::new(addresses(0x0a00_0001, 0x0b00_0001), Protocol::TCP, 20, 5050);
    let syn = segment("S", 1, 0, 0);
    gate.commits = false;
    assert_eq!(gate.packet(data, &syn), NEW);
    gate.table.expect(expected, 1, gate.now).unwrap();
    // What was decided before is decided again.
    let related = CtState(NEW.0 | CtState::REL.0);
    assert_eq!(gate.packet(data, &syn), related);
    assert_eq!(gate.packet(data, &segment("A", 1, 1, 0)), INV);
    let stranger = Tuple::new(addresses(0x0a00_0002, 0x0b00_0001), Protocol::TCP, 20, 5050);
    assert_eq!(gate.packet(stranger, &syn), NEW);
    let tracked = gate.table.track(0, &data, &syn, gate.now);
    assert_eq!((tracked.expected, tracked.keep), (Some(expected.into()), false));
    gate.commits = true;
    let new = New { master: Some(expected.master.index), ..New::plain(0, data) };
    assert_eq!(gate.packet_as(&new, &syn), related);
    assert_eq!(gate.table.expectations(), []);
    // One that was found to be expected before, and comes behind it.
    let late = Tuple { source: 21, ..data };
    let commit = |new: &New| gate.table.commit(new, &syn, 60, gate.now, &mut |_| {});
    let new = New { master: new.master, ..New::plain(0, late) };
    assert_eq!(commit(&new), Err(Refused::NotExpected));
    assert_eq!(gate.table.lookup(0, &late, gate.now), None);
    assert_eq!(gate.connection(&data).unwrap().master, Some(expected.master.index));
    let reply = gate.packet(data.reversed(), &segment("SA", 7, 2, 0));
    assert_eq!(reply, CtState(REPLY.0 | CtState::REL.0));
    assert_eq!(gate.packet(data, &segment("A", 2, 8, 0)), CtState(EST.0 | CtState::REL.0));
    // A mark of the master changes nothing, nor does its end: but who comes to its place is another one.
    let index = expected.master.index;
    let master = gate.table.connection(index, gate.now).unwrap().handle;
    let master = gate.table.set_mark(master, 7, u32::MAX).unwrap();
    assert_eq!(gate.connection(&data).unwrap().master, Some(index));
    gate.wait(1);
    assert!(gate.table.remove(master, gate.now, &mut |_| {}));
    let at_its_place = (1000..1100).find(|port| {
        let tuple = Tuple { source: *port, ..stranger };
        gate.packet(tuple, &syn);
        gate.lookup(&tuple).unwrap().0.index == index
    });
    assert!(at_its_place.is_some());
    assert_eq!(gate.connection(&data).unwrap().master, None);
}

/// In a full table, an expected connection takes the place of another than its master, and nobody's if it is
/// expected no more.
#[test]
fn room_is_made_for_who_is_expected_and_not_by_its_master() {
    let mut gate = Gate::new(&settings(2));
    let (control, other) = (tcp(0x0b00_0001, 4000), tcp(0x0b00_0002, 4000));
    let syn = segment("S", 1, 0, 0);
    gate.packet(control, &syn);
    gate.packet(other, &syn);
    let expected = expectation(&gate, &control, 5050);
    gate.table.expect(expected, 2, gate.now).unwrap();
    let new_from = |source| {
        let addresses = addresses(0x0a00_0001, 0x0b00_0001);
        let data = Tuple::new(addresses, Protocol::TCP, source, 5050);
        New { master: Some(expected.master.index), ..New::plain(0, data) }
    };
    let commit = |gate: &Gate, new: &New| gate.table.commit(new, &syn, 60, gate.now, &mut |_| {});
    // The master is as old as the other, and the hand may stand before it.
    let data = commit(&gate, &new_from(20)).unwrap();
    assert!(gate.lookup(&control).is_some() && gate.lookup(&other).is_none());
    assert_eq!(commit(&gate, &new_from(21)), Err(Refused::NotExpected));
    assert!(gate.lookup(&control).is_some());
    assert_eq!(gate.table.lookup(0, &new_from(20).original, gate.now).unwrap().0, data);
    // Where only its master could go, there is no room.
    let established = new_from(20).original;
    gate.packet(established.reversed(), &segment("SA", 7, 2, 0));
    gate.packet(established, &segment("A", 2, 8, 0));
    gate.table.expect(expected, 2, gate.now).unwrap();
    assert_eq!(gate.table.would_refuse(&new_from(21), gate.now), Some(Refused::Full));
    assert_eq!(commit(&gate, &new_from(21)), Err(Refused::Full));
    assert_eq!(gate.table.would_refuse(&New::plain(0, other), gate.now), None);
    assert!(gate.lookup(&control).is_some());
}

#[test]
fn expectations_are_bounded_and_end() {
    let mut gate = Gate::new(&Settings { expectations: 4, ..settings(16) });
    let controls: Vec<Tuple> = (1..=6).map(|at| tcp(at, 4000)).collect();
    for control in &controls {
        gate.packet(*control, &segment("S", 1000, 0, 0));
        gate.packet(control.reversed(), &segment("SA", 5000, 1001, 0));
        gate.packet(*control, &segment("A", 1001, 5001, 0));
    }
    let add = |gate: &Gate, at: usize, port: u16, most: usize| {
        gate.table.expect(expectation(gate, &controls[at], port), most, gate.now)
    };
    // The oldest one of the same master makes room.
    for port in 1000..1010 {
        add(&gate, 0, port, 2).unwrap();
    }
    let ports: Vec<u16> =
        gate.table.expectations().iter().map(|expected| expected.destination_port).collect();
    assert_eq!(ports.len(), 2);
    assert!(ports.contains(&1008) && ports.contains(&1009));
    add(&gate, 1, 1, 2).unwrap();
    add(&gate, 2, 1, 2).unwrap();
    assert_eq!(add(&gate, 3, 1, 2), Err(NotExpected::Full));
    // Nobody takes over what another connection expects.
    let mut stolen = expectation(&gate, &controls[1], 1);
    stolen.master = gate.lookup(&controls[2]).unwrap().0;
    stolen.source = None;
    assert_eq!(gate.table.expect(stolen, 2, gate.now), Err(NotExpected::Clash));
    // They end with their master, by time, and make room when they have.
    let (handle, _) = gate.lookup(&controls[1]).unwrap();
    let ghost = expectation(&gate, &controls[1], 9);
    assert!(gate.table.remove(handle, gate.now, &mut |_| {}));
    assert_eq!(gate.table.expect(ghost, 2, gate.now), Err(NotExpected::NoMaster));
    assert_eq!(gate.table.expectations().len(), 3);
    add(&gate, 3, 1, 2).unwrap();
    gate.wait(100);
    let late = Tuple::new(addresses(0x0a00_0001, 4), Protocol::TCP, 20, 1);
    let syn = segment("S", 1, 0, 0);
    gate.commits = false;
    assert_eq!(gate.packet(late, &syn), CtState(NEW.0 | CtState::REL.0));
    gate.wait(202);
    assert_eq!(gate.packet(late, &syn), NEW);
    add(&gate, 4, 7, 2).unwrap();
    assert_eq!(gate.table.expectations().len(), 1);
}
