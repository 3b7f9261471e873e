//! Packets of connections that are refused behind the flows: what they say counts for nothing.

#[path = "fixture/built.rs"]
mod built;
mod fixture;
#[path = "fixture/flows.rs"]
mod flows;

use built::segment;
use conntrack::{Connection, State};
use fixture::*;
use flow::{CacheMode, CacheSettings};
use flows::TWICE;
use tables::{Action, Direction, PolicySpec, Tables};

const HERE: &str = "192.168.13.5";
const THERE: &str = "192.168.12.7";
const OUTSIDE: &str = "203.0.113.9";

const PLAIN: &str = "
    priority=1,actions=drop
    priority=10,ip,actions=ct(nat,table=1)
    table=1,priority=9,ct_state=+trk+est,ip,actions=NORMAL
    table=1,priority=8,ct_state=+trk+new,in_port=lan,ip,actions=ct(commit),NORMAL";

/// What leaves may do so, and what enters comes by a tunnel that is not there.
fn tables(flows: &str) -> Tables {
    let mut tables = flows::tables(flows);
    tables.add_policy(policy(Direction::Out, "0.0.0.0/0", "0.0.0.0/0", Action::Bypass)).unwrap();
    let protect = Action::Protect(template("192.168.11.2", "192.168.11.1"));
    let tunnel = PolicySpec { priority: 9, ..policy(Direction::In, THERE, HERE, protect) };
    tables.add_policy(tunnel).unwrap();
    tables
}

fn gateways(flows: &str) -> [Gateway; 2] {
    [CacheMode::On, CacheMode::Off].map(|mode| {
        let settings = CacheSettings { mode, ..CacheSettings::default() };
        Gateway::with_caches(tables(flows), [settings; 4], 7)
    })
}

fn connections(gateway: &Gateway) -> Vec<Connection> {
    let tables = gateway.publisher.current();
    let table = tables.connections().unwrap();
    let all = 0..table.settings().connections;
    all.filter_map(|index| table.connection(index, gateway.now)).collect()
}

#[test]
fn clear_packets_change_no_connection_that_they_may_not_send_to() {
    for mut gateway in gateways(PLAIN) {
        gateway.receive(LAN, &udp(HERE, THERE, (5000, 53), 10));
        gateway.receive(LAN, &segment((HERE, THERE), (4000, 80), 2, (1000, 0)));
        assert_eq!(gateway.sent(WAN).len(), 2);
        let before = connections(&gateway);
        // Again and again, so that the decision is kept.
        for times in 1..=4 {
            gateway.receive(WAN, &udp(THERE, HERE, (53, 5000), 10));
            gateway.receive(WAN, &segment((THERE, HERE), (80, 4000), 0x12, (9000, 1001)));
            gateway.receive(WAN, &segment((THERE, HERE), (80, 4000), 0x14, (0, 1001)));
            assert!(gateway.sent(LAN).is_empty());
            assert_eq!(gateway.drops(), [("policy_clear", 3 * times)]);
        }
        assert_eq!(connections(&gateway), before);
        let states: Vec<_> = before.iter().map(|it| (it.state, it.is_replied)).collect();
        assert!(states.contains(&(State::SynSent, false)), "{states:?}");
        assert!(states.contains(&(State::UdpUnreplied, false)), "{states:?}");
        // Those who may send are heard.
        gateway.change(|tables| {
            let mut clear = policy(Direction::In, "192.168.12.0/24", HERE, Action::Bypass);
            clear.priority = 1;
            tables.add_policy(clear).unwrap();
        });
        gateway.receive(WAN, &segment((THERE, HERE), (80, 4000), 0x12, (9000, 1001)));
        gateway.receive(WAN, &udp(THERE, HERE, (53, 5000), 10));
        assert_eq!(gateway.sent(LAN).len(), 2);
        assert!(connections(&gateway).iter().all(|it| it.is_replied));
        gateway.assert_nothing_lost();
    }
}

#[test]
fn neither_of_two_connections_changes() {
    for mut gateway in gateways(TWICE) {
        gateway.receive(LAN, &udp(HERE, THERE, (5000, 53), 10));
        assert_eq!(gateway.sent(WAN).len(), 1);
        let before = connections(&gateway);
        assert_eq!(before.len(), 2);
        gateway.change(|tables| {
            let mut all = policy(Direction::In, THERE, "0.0.0.0/0", Action::Discard);
            all.priority = 0;
            tables.add_policy(all).unwrap();
        });
        for _ in 0..4 {
            gateway.receive(WAN, &udp(THERE, OUTSIDE, (53, 5000), 20));
            assert!(gateway.sent(LAN).is_empty());
        }
        assert_eq!(gateway.drops(), [("policy_discard", 4)]);
        assert_eq!(connections(&gateway), before);
        gateway.assert_nothing_lost();
    }
}

/// Flows that write to connections of packets of either side, in the zone of the VRF and another one of
/// which the answer knows nothing.
const WRITING: &str = "
    priority=1,actions=drop
    priority=10,in_port=lan,ip,actions=ct(zone=2,table=1)
    table=1,priority=9,ct_state=+trk+est,ip,actions=NORMAL
    table=1,priority=8,ct_state=+trk+new,ip,actions=ct(commit,zone=2),NORMAL
    priority=10,in_port=wan,ip,actions=ct(zone=1,table=2)
    table=2,ip,actions=ct(zone=2,table=3)
    table=3,ct_state=+trk+est,udp,actions=ct(commit,zone=2,exec(set_field:7->ct_mark)),NORMAL
    table=3,ct_state=+trk+est,tcp,actions=ct(commit,zone=2,exec(set_field:7->ct_mark,set_field:9->ct_label)),NORMAL
    table=3,ct_state=+trk+inv,ip,actions=NORMAL";

/// The same in one zone, and helpers.
const HELPING: &str = "
    priority=1,actions=drop
    priority=10,ip,actions=ct(table=1)
    table=1,priority=8,in_port=lan,ct_state=+trk+new,ip,actions=ct(commit),NORMAL
    table=1,priority=9,in_port=wan,ct_state=+trk+est,udp,actions=ct(commit,alg=tftp,exec(set_field:7->ct_mark)),NORMAL
    table=1,priority=9,in_port=wan,ct_state=+trk+est,tcp,actions=ct(commit,alg=ftp,exec(set_field:7->ct_mark)),NORMAL
    table=1,ct_state=+trk+inv,ip,actions=NORMAL";

#[test]
fn neither_marks_nor_helpers_are_written_for_packets_that_are_refused() {
    let each = |(flows, zones)| gateways(flows).map(|gateway| (gateway, zones));
    for (mut gateway, zones) in [(WRITING, 2), (HELPING, 1)].into_iter().flat_map(each) {
        gateway.receive(LAN, &udp(HERE, THERE, (5000, 69), 10));
        gateway.receive(LAN, &segment((HERE, THERE), (4000, 80), 2, (1000, 0)));
        assert_eq!(gateway.sent(WAN).len(), 2);
        let before = connections(&gateway);
        for times in 1..=4 {
            gateway.receive(WAN, &udp(THERE, HERE, (69, 5000), 10));
            gateway.receive(WAN, &segment((THERE, HERE), (80, 4000), 0x12, (9000, 1001)));
            assert!(gateway.sent(LAN).is_empty());
            assert_eq!(gateway.drops(), [("policy_clear", 2 * times)]);
        }
        assert_eq!(connections(&gateway), before);
        assert!(before.iter().all(|it| !it.is_replied && (it.mark, it.helper) == (0, 0)));
        // What is invalid is counted all the same, in each zone.
        let invalid = flows::counts(&gateway).invalid;
        for _ in 0..4 {
            gateway.receive(WAN, &segment((THERE, HERE), (80, 4000), 0x14, (0, 77)));
        }
        assert_eq!(flows::counts(&gateway).invalid, invalid + 4 * zones);
        assert_eq!(connections(&gateway), before);
        // Who may send is heard.
        gateway.change(|tables| {
            let mut clear = policy(Direction::In, "192.168.12.0/24", HERE, Action::Bypass);
            clear.priority = 1;
            tables.add_policy(clear).unwrap();
        });
        gateway.receive(WAN, &udp(THERE, HERE, (69, 5000), 10));
        gateway.receive(WAN, &segment((THERE, HERE), (80, 4000), 0x12, (9000, 1001)));
        assert_eq!(gateway.sent(LAN).len(), 2);
        let after = connections(&gateway);
        assert!(after.iter().all(|it| it.is_replied && it.mark == 7), "{after:?}");
        gateway.assert_nothing_lost();
    }
}
