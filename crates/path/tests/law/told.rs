//! What is told of each stage of match-action tables: lookups, actions, what connection tracking says,
//! translation, and the connection that a packet would open; in words, and as members of JSON.

use path::Step;
use wire::PortId;

use crate::packets::{Peers, Sending};
use crate::reference;
use crate::twin::Twin;
use crate::world::Act;
use crate::world::acts::WITHOUT_POLICIES;

const INSIDE: PortId = PortId(2);
const OUTSIDE: PortId = PortId(3);
/// Kinds of flows: what begins inside is let out; the same with its source translated.
const TRACKED: usize = 2;
const TRANSLATED: usize = 4;

/// Steps through tables, and what a packet would open: in words, and their members.
#[derive(Default)]
struct Told(Vec<[String; 2]>);

impl path::Trace for Told {
    fn step<'a>(&mut self, step: impl FnOnce() -> Step<'a>) {
        let step = step();
        if matches!(step, Step::Flow(..) | Step::Opens(_)) {
            self.0.push([step.to_string(), step.members().to_string()]);
        }
    }
}

fn gateway(kind: usize) -> Twin {
    let mut twin = reference();
    twin.publish(&[Act::SetFlows(WITHOUT_POLICIES, kind)]);
    twin
}

fn out() -> Sending {
    Sending::udp(INSIDE, "10.1.0.5", "10.3.0.5", 20).with_ports(1000, 53)
}

fn back() -> Sending {
    Sending::udp(OUTSIDE, "10.3.0.5", "10.1.0.5", 20).with_ports(53, 1000)
}

/// What is told of a packet. It comes then.
fn told(twin: &mut Twin, sending: &Sending) -> Vec<[String; 2]> {
    let packet = sending.packets(&mut Peers::default()).remove(0);
    let mut told = Told::default();
    twin.foretell(sending.port, &packet, &mut told);
    twin.receive(0, &[(sending.port, packet)]);
    told.0
}

#[track_caller]
fn assert_told(told: &[[String; 2]], wanted: &[[&str; 2]]) {
    let told: Vec<_> = told.iter().map(|step| step.each_ref().map(String::as_str)).collect();
    assert_eq!(told, wanted);
}

#[test]
fn a_connection_is_told_of_as_it_opens_and_is_answered() {
    let mut twin = gateway(TRACKED);
    let first = "vrf=red, table=0, priority=10,ct_state=-trk actions=ct(table=1)";
    let found = |table: u8, flow: &str, matches: &str, actions: &str| {
        let flow = format!(r#""table":{table},"matched":true,"flow":"{flow}","priority":10"#);
        format!(r#"{{{flow},"cookie":"0x0","match":"{matches}","actions":[{actions}]}}"#)
    };
    let lookup = [first, &found(0, first, "ct_state=-trk", r#""ct(table=1)""#)];
    let track = ["table 0: ct(table=1)", r#"{"table":0,"action":"ct(table=1)"}"#];
    let normal = ["table 1: NORMAL", r#"{"table":1,"action":"NORMAL"}"#];

    // Nobody has sent what this would answer.
    let unmatched = [
        "table 1: no flow matches",
        r#"{"table":1,"matched":false,"flow":"table 1: no flow matches"}"#,
    ];
    let new = [
        "zone 1: ct_state new|trk, ct_mark 0x0, connection udp 10.3.0.5:53 > 10.1.0.5:1000",
        r#"{"zone":1,"ct_state":"new|trk","ct_mark":0}"#,
    ];
    assert_told(&told(&mut twin, &back()), &[lookup, track, new, unmatched]);

    let new = [
        "zone 1: ct_state new|trk, ct_mark 0x0, connection udp 10.1.0.5:1000 > 10.3.0.5:53",
        r#"{"zone":1,"ct_state":"new|trk","ct_mark":0}"#,
    ];
    let second = "vrf=red, table=1, priority=10,ct_state=+new+trk,in_port=port2 \
                  actions=ct(commit),NORMAL";
    let matches = "ct_state=+new+trk,in_port=port2";
    let opens = [second, &found(1, second, matches, r#""ct(commit)","NORMAL""#)];
    let commit = ["table 1: ct(commit)", r#"{"table":1,"action":"ct(commit)"}"#];
    let opened = [
        "opens one in zone 1: udp 10.1.0.5:1000 > 10.3.0.5:53",
        r#"{"zone":1,"protocol":"udp","source":"10.1.0.5","destination":"10.3.0.5","expected":false,"decided_again":false,"ends_closed":false,"source_port":1000,"destination_port":53}"#,
    ];
    let wanted = [lookup, track, new, opens, commit, new, normal, opened];
    assert_told(&told(&mut twin, &out()), &wanted);

    // In the connection's own direction, whichever the packet has.
    let established = [
        "zone 1: ct_state est|rpl|trk, ct_mark 0x0, connection udp 10.1.0.5:1000 > 10.3.0.5:53",
        r#"{"zone":1,"ct_state":"est|rpl|trk","ct_mark":0}"#,
    ];
    let third = "vrf=red, table=1, priority=10,ct_state=+est+trk actions=NORMAL";
    let passes = [third, &found(1, third, "ct_state=+est+trk", r#""NORMAL""#)];
    assert_told(&told(&mut twin, &back()), &[lookup, track, established, passes, normal]);
}

#[test]
fn translation_is_told_of_before_and_after_it_is_known() {
    let mut twin = gateway(TRANSLATED);
    let first = told(&mut twin, &out());
    let port = twin.connections()[0].reply.destination;
    let opens = first.iter().position(|[text, _]| text.starts_with("opens")).unwrap();
    let opened = [
        format!(
            "opens one in zone 1: udp 10.1.0.5:1000 > 10.3.0.5:53; its source becomes one of \
             10.2.0.1/32, port 3000-3002; so the packet becomes udp 10.2.0.1:{port} > 10.3.0.5:53; \
             once it is there, the packet is decided again with it"
        ),
        format!(
            r#"{{"zone":1,"protocol":"udp","source":"10.1.0.5","destination":"10.3.0.5","expected":false,"decided_again":true,"ends_closed":false,"source_port":1000,"destination_port":53,"translated_source":"10.2.0.1/32","becomes_source":"10.2.0.1","becomes_destination":"10.3.0.5","becomes_source_port":{port},"becomes_destination_port":53}}"#
        ),
    ];
    assert_eq!(first[opens], opened);
    let last = |told: Vec<[String; 2]>| told.into_iter().next_back().unwrap();
    let again = told(&mut twin, &out());
    let translated = format!(
        "zone 1: ct_state new|trk|snat, ct_mark 0x0, connection udp 10.1.0.5:1000 > 10.3.0.5:53, \
         translated to udp 10.2.0.1:{port} > 10.3.0.5:53"
    );
    let members = r#"{"zone":1,"ct_state":"new|trk|snat","ct_mark":0}"#;
    let translated = [translated, members.to_owned()];
    // It met the same flows, translated, when it opened the connection.
    assert!(first[opens..].contains(&translated), "{first:#?}");
    assert!(again.contains(&translated), "{again:#?}");
    // It opens no other.
    assert_eq!(last(again)[0], "table 1: NORMAL");
}
