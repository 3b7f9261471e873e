//! Named timeout policies, each of some zones.

mod gate;

use std::collections::BTreeMap;
use std::time::Duration;

use conntrack::{Connections, Handle, MOST_POLICIES, New, Packet, State, TimeoutPolicy, Tuple};
use gate::{Gate, addresses, settings, udp};
use packet::Time;

const DATAGRAM: Packet = Packet::Datagram;

#[test]
fn a_zone_may_have_timeouts_of_its_own() {
    let mut gate = Gate::new(&settings(64));
    let policy = |name: &str, zones: &[u16], seconds: u64| TimeoutPolicy {
        name: name.into(),
        zones: zones.iter().copied().collect(),
        timeouts: BTreeMap::from([(State::UdpUnreplied, Duration::from_secs(seconds))]),
    };
    let usual = BTreeMap::from([(State::UdpUnreplied, Duration::from_secs(20))]);
    let made = |gate: &mut Gate, zone| {
        gate.packet_as(&New::plain(zone, udp(zone.into(), 1)), &DATAGRAM);
        gate.table.lookup(zone, &udp(zone.into(), 1), gate.now).unwrap().0
    };
    let left = |gate: &Gate, handle: Handle| {
        let connection = gate.table.connection(handle.index, gate.now).unwrap();
        let name = gate.table.policy_name(connection.policy);
        (name.as_deref().map(str::to_owned), connection.deadline.since(gate.now).as_secs())
    };
    let named = |name: &str, seconds| (Some(name.to_owned()), seconds);

    gate.table.set_timeouts(&usual, &[policy("voice", &[7, 9], 3)]);
    let (plain, voice) = (made(&mut gate, 1), made(&mut gate, 7));
    assert_eq!(left(&gate, plain), (None, 20));
    assert_eq!(left(&gate, voice), named("voice", 3));
    // Of another protocol it is as usual.
    let query = Tuple::icmp(addresses(1, 2), 8, 0, 5).unwrap();
    gate.packet_as(&New::plain(7, query), &DATAGRAM);
    let (query, _) = gate.table.lookup(7, &query, gate.now).unwrap();
    assert_eq!(left(&gate, query), named("voice", 30));

    // Connections that there are follow, and keep the decisions about them: it is the same connection.
    gate.table.set_timeouts(&usual, &[policy("games", &[1], 8), policy("voice", &[9], 4)]);
    assert_eq!(left(&gate, plain), named("games", 8));
    assert_eq!(left(&gate, voice), (None, 20));
    let other = made(&mut gate, 9);
    assert_eq!(left(&gate, other), named("voice", 4));
    gate.table.set_timeouts(&BTreeMap::new(), &[policy("voice", &[9], 2)]);
    assert_eq!(left(&gate, plain), (None, 30));
    assert_eq!(left(&gate, other), named("voice", 2));

    gate.wait(3);
    assert_eq!(gate.table.lookup(9, &udp(9, 1), gate.now), None);
    assert!(gate.table.lookup(7, &udp(7, 1), gate.now).is_some());
    // However many come and go, each has a number while it is there.
    for round in 0..3 {
        let all: Vec<_> = (0..MOST_POLICIES as u16)
            .map(|zone| policy(&format!("{round}-{zone}"), &[zone], 2 + u64::from(zone)))
            .collect();
        gate.table.set_timeouts(&usual, &all);
        for zone in [7, 60, MOST_POLICIES as u16 - 1] {
            let handle = made(&mut gate, zone);
            assert_eq!(left(&gate, handle), named(&format!("{round}-{zone}"), 2 + u64::from(zone)));
        }
    }
}

#[test]
fn connections_that_come_while_a_policy_changes_have_the_new_one() {
    const EACH: u16 = 2_000;
    let table = Connections::new(&settings(8_192), [3; 2], Time(0)).unwrap();
    let made = core::sync::atomic::AtomicU32::new(0);
    std::thread::scope(|scope| {
        for from in [1, 2] {
            let (table, made) = (&table, &made);
            scope.spawn(move || {
                for port in 0..EACH {
                    let new = New::plain(7, udp(from, port));
                    table.commit(&new, &DATAGRAM, 100, Time(0), &mut |_| {}).unwrap();
                    made.fetch_add(1, core::sync::atomic::Ordering::Relaxed);
                }
            });
        }
        let mut round = 0;
        while made.load(core::sync::atomic::Ordering::Relaxed) < 2 * u32::from(EACH) - 500 {
            round += 1;
            let name = format!("of round {round}").into();
            let zones = [7].into();
            let policy = TimeoutPolicy { name, zones, timeouts: BTreeMap::new() };
            table.set_timeouts(&BTreeMap::new(), &[policy]);
        }
        let (zones, timeouts) = ([7].into(), BTreeMap::new());
        let last = TimeoutPolicy { name: "last".into(), zones, timeouts };
        table.set_timeouts(&BTreeMap::new(), &[last]);
    });
    let policies = (0..8_192).filter_map(|index| Some(table.connection(index, Time(0))?.policy));
    let names: Vec<_> = policies.map(|policy| table.policy_name(policy)).collect();
    assert_eq!(names.len(), 2 * usize::from(EACH));
    assert!(names.iter().all(|name| name.as_deref() == Some("last")));
}
