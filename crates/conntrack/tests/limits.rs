//! How many connections there may be: of a zone, a class, a source and a prefix.

mod gate;

use conntrack::{ClassLimits, LimitKind, New, Packet, ReachedLimit, Refused, SourceLimits};
use gate::{Gate, settings, udp};

const DATAGRAM: Packet = Packet::Datagram;

#[test]
fn classes_have_limits_of_their_own() {
    let mut gate = Gate::new(&settings(64));
    let limits = |connections, source| ClassLimits { connections, source };
    gate.table.limit_classes([(1, limits(5, 2)), (2, limits(0, 1))]);
    let commit = |gate: &Gate, class: u16, source: u32, port: u16| {
        let new = New { class, ..New::plain(0, udp(source, port)) };
        let foretold = gate.table.would_refuse(&new, gate.now);
        let made = gate.table.commit(&new, &DATAGRAM, 40, gate.now, &mut |_| {});
        assert_eq!(made.err(), foretold);
        made
    };
    let refused = |kind| Err(Refused::Limit(kind));
    // Class 0 is none.
    for port in 0..9 {
        commit(&gate, 0, 7, port).unwrap();
    }
    let first = commit(&gate, 1, 1, 1).unwrap();
    commit(&gate, 1, 1, 2).unwrap();
    assert_eq!(commit(&gate, 1, 1, 3), refused(LimitKind::ClassSource));
    for source in 2..5 {
        commit(&gate, 1, source, 1).unwrap();
    }
    assert_eq!(commit(&gate, 1, 9, 1), refused(LimitKind::Class));
    assert_eq!([0, 1, 2].map(|class| gate.table.connections_of(class)), [0, 5, 0]);
    // Those of another class are none of it, whatever its limits say to them.
    assert!(gate.table.set_class(first, 2));
    assert!(gate.table.set_class(first, 2));
    assert_eq!([0, 1, 2].map(|class| gate.table.connections_of(class)), [0, 4, 1]);
    commit(&gate, 1, 1, 3).unwrap();
    assert_eq!(commit(&gate, 2, 1, 4), refused(LimitKind::ClassSource));
    assert!(gate.table.set_helper(first, 3).is_some());
    assert!(gate.table.set_class(first, 2), "its generation is another one, and it the same");
    gate.table.limit_classes([]);
    commit(&gate, 2, 1, 4).unwrap();
    gate.wait(60);
    gate.expire();
    assert_eq!([0, 1, 2].map(|class| gate.table.connections_of(class)), [0; 3]);
}

#[test]
fn limits_hold_and_are_given_back() {
    let mut gate = Gate::new(&settings(64));
    gate.packet(udp(0x0101_0101, 60), &DATAGRAM);
    let limits = SourceLimits { source: 3, prefix: 5, ipv4_length: 24, ipv6_length: 64 };
    gate.table.limit_sources(limits);
    gate.table.limit_zone(0, 8);
    let commit = |gate: &Gate, source: u32, port: u16| {
        let new = New::plain(0, udp(source, port));
        let foretold = gate.table.would_refuse(&new, gate.now);
        let made = gate.table.commit(&new, &DATAGRAM, 40, gate.now, &mut |_| {});
        assert_eq!(made.err(), foretold);
        made
    };
    let refused = |kind| Err(Refused::Limit(kind));
    for port in 0..3 {
        commit(&gate, 0x0101_0101, port).unwrap();
    }
    assert_eq!(commit(&gate, 0x0101_0101, 3), refused(LimitKind::Source));
    commit(&gate, 0x0101_0102, 1).unwrap();
    commit(&gate, 0x0101_0102, 2).unwrap();
    assert_eq!(commit(&gate, 0x0101_0103, 1), refused(LimitKind::Prefix));
    for port in 0..3 {
        commit(&gate, 0x0202_0202, port).unwrap();
    }
    assert_eq!(commit(&gate, 0x0303_0303, 1), refused(LimitKind::Zone));
    assert_eq!(gate.table.counts().limit, 3);
    let reached = |kind, source: Option<&str>, connections| ReachedLimit {
        kind,
        of: 0,
        source: source.map(|source| source.parse().unwrap()),
        connections,
    };
    assert_eq!(
        gate.table.take_reached_limits().named,
        [
            (reached(LimitKind::Source, Some("1.1.1.1"), 3), 1),
            (reached(LimitKind::Prefix, Some("1.1.1.0/24"), 5), 1),
            (reached(LimitKind::Zone, None, 8), 1),
        ]
    );
    assert_eq!(gate.table.take_reached_limits().named, []);
    gate.table.limit_zone(0, 0);
    let (handle, _) = gate.lookup(&udp(0x0101_0101, 1)).unwrap();
    assert!(gate.table.remove(handle, gate.now, &mut |_| {}));
    commit(&gate, 0x0101_0101, 9).unwrap();
    assert_eq!(commit(&gate, 0x0101_0101, 10), refused(LimitKind::Source));
    gate.wait(60);
    gate.expire();
    for port in 0..3 {
        commit(&gate, 0x0101_0101, port).unwrap();
    }
}

#[test]
fn prefixes_of_other_lengths_leave_all_other_counts() {
    let gate = Gate::new(&settings(64));
    let of_length =
        |length| SourceLimits { source: 0, prefix: 3, ipv4_length: length, ipv6_length: 64 };
    gate.table.limit_classes([(7, ClassLimits { connections: 5, source: 0 })]);
    gate.table.limit_zone(0, 6);
    gate.table.limit_sources(of_length(24));
    let commit = |gate: &Gate, source: u32, port: u16, class| {
        let new = New { class, ..New::plain(0, udp(source, port)) };
        gate.table.commit(&new, &DATAGRAM, 40, gate.now, &mut |_| {}).map(|_| ())
    };
    let end = |gate: &Gate, source: u32, port: u16| {
        let (handle, _) = gate.lookup(&udp(source, port)).unwrap();
        assert!(gate.table.remove(handle, gate.now, &mut |_| {}));
    };
    for port in 0..3 {
        commit(&gate, 0x0101_0101, port, 7).unwrap();
    }
    gate.table.limit_sources(of_length(16));
    assert_eq!(gate.table.connections_of(7), 3);
    // The old ones count for no prefix, neither while they live nor when they end.
    for port in 3..5 {
        commit(&gate, 0x0101_0101, port, 7).unwrap();
    }
    assert_eq!(commit(&gate, 0x0909_0909, 1, 7), Err(Refused::Limit(LimitKind::Class)));
    end(&gate, 0x0101_0101, 0);
    end(&gate, 0x0101_0101, 1);
    commit(&gate, 0x0101_0101, 5, 0).unwrap();
    assert_eq!(commit(&gate, 0x0101_0202, 6, 0), Err(Refused::Limit(LimitKind::Prefix)));
    // Of the zone are the third of the old ones and the three of now.
    commit(&gate, 0x0202_0202, 7, 0).unwrap();
    commit(&gate, 0x0202_0202, 8, 0).unwrap();
    assert_eq!(commit(&gate, 0x0303_0303, 9, 0), Err(Refused::Limit(LimitKind::Zone)));
    assert_eq!(gate.table.connections_of(7), 3);
    end(&gate, 0x0101_0101, 5);
    end(&gate, 0x0202_0202, 8);
    commit(&gate, 0x0101_0202, 6, 0).unwrap();
    assert_eq!(commit(&gate, 0x0101_0303, 6, 0), Err(Refused::Limit(LimitKind::Prefix)));
}

/// However often these have changed.
#[test]
fn connections_count_for_the_prefixes_that_they_were_counted_for() {
    let gate = Gate::new(&settings(64));
    let limit = |length| {
        let lengths = (length, 64);
        let (ipv4_length, ipv6_length) = lengths;
        gate.table.limit_sources(SourceLimits { source: 0, prefix: 2, ipv4_length, ipv6_length });
    };
    let commit = |source: u32, port: u16| {
        let new = New::plain(0, udp(source, port));
        gate.table.commit(&new, &DATAGRAM, 40, gate.now, &mut |_| {})
    };
    let end = |handle| assert!(gate.table.remove(handle, gate.now, &mut |_| {}));
    let full = Err(Refused::Limit(LimitKind::Prefix));
    for round in 0..3 {
        let mut of_each = Vec::new();
        for length in 8..=32_u8 {
            limit(length);
            let port = 2 * u16::from(length);
            of_each.push((length, [port, port + 1].map(|port| commit(0x0101_0101, port).unwrap())));
            assert_eq!(commit(0x0101_0101, 1), full, "{length} in {round}");
        }
        for (length, [first, second]) in of_each {
            end(first);
            limit(length);
            let other = commit(0x0101_0101, 1).unwrap();
            assert_eq!(commit(0x0101_0101, 2), full, "{length} in {round}");
            limit(7);
            end(second);
            end(other);
        }
        assert_eq!(gate.table.counts().connections, 0);
    }
}
