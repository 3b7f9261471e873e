//! What becomes of packets.

mod random;

use std::collections::HashMap;
use std::net::Ipv4Addr;
use std::time::Instant;

use conntrack::{CtState, Tuple};
use pipeline::text::{Command, ShownFields, parse_change, parse_criteria};
use pipeline::{
    Change, CtFields, DropReason, Exit, Fields, Flow, MOST_FLOWS, NatSpec, Outcome, Owner,
    Pipeline, Refused, Step, To, Trace, Track,
};
use random::{Called, Says};
use types::{
    Addresses, FlowKey, FragmentClass, Origin, PacketFields, PortId, Protocol, RejectWith, SaSlot,
    Upper, VrfId,
};

fn change(command: Command, text: &str) -> Change {
    parse_change(command, text, &Called).unwrap_or_else(|why| panic!("{text}: {why}"))
}

fn pipeline(flows: &[&str]) -> Pipeline {
    let mut pipeline = Pipeline::new();
    for flow in flows {
        let done = pipeline.apply(change(Command::Add, flow), Owner::User);
        done.unwrap_or_else(|why| panic!("{flow}: {why}"));
    }
    pipeline
}

/// A packet, written as a match.
fn packet(text: &str) -> Fields {
    let criteria = parse_criteria(text, &Called).unwrap_or_else(|why| panic!("{text}: {why}"));
    criteria.matches.example(criteria.vrf.unwrap_or_default())
}

fn says(state: CtState) -> Says {
    Says(CtFields { state: state | CtState::TRK, ..CtFields::default() })
}

/// Where a packet goes, by what connection tracking says.
fn ends(pipeline: &Pipeline, text: &str, state: CtState) -> (Vec<To>, Option<DropReason>) {
    let outcome = pipeline.evaluate(&packet(text), &mut says(state), &mut ());
    assert_eq!(outcome.ends.is_empty(), outcome.drop.is_some());
    (outcome.ends.iter().map(|end| end.to).collect(), outcome.drop)
}

fn to(port: u16) -> (Vec<To>, Option<DropReason>) {
    (vec![To::Port(PortId(port))], None)
}

fn dropped(why: DropReason) -> (Vec<To>, Option<DropReason>) {
    (Vec::new(), Some(why))
}

#[test]
fn prefixes_are_translated_both_ways() {
    let translator = pipeline(&[
        "ipv6,in_port=p1 actions=nptv6(src=fd01:203:405::/48->2001:db8:1::/48),NORMAL",
        "ipv6,in_port=p2 actions=nptv6(dst=2001:db8:1::/48->fd01:203:405::/48),NORMAL",
    ]);
    // The example of RFC 6296 section 3.6, and back.
    let (inside, outside) = ("fd01:203:405:1::1234", "2001:db8:1:d550::1234");
    let address = |text: &str| text.parse::<std::net::Ipv6Addr>().unwrap();
    let translated = |text: &str| {
        let outcome = translator.evaluate(&packet(text), &mut says(CtState::NEW), &mut ());
        assert_eq!(outcome.drop, None, "{text}");
        outcome.fields_of(&outcome.ends[0]).0.addresses().unwrap()
    };
    let out = translated(&format!("ipv6,in_port=p1,ipv6_src={inside},ipv6_dst=2001:db8:2::1"));
    assert_eq!(
        (out.source(), out.destination()),
        (address(outside).into(), address("2001:db8:2::1").into())
    );
    let back = translated(&format!("ipv6,in_port=p2,ipv6_dst={outside}"));
    assert_eq!(back.destination(), address(inside));
    let other = translated("ipv6,in_port=p1,ipv6_src=fd01:203:406::1");
    assert_eq!(other.source(), address("fd01:203:406::1"));
    let none = packet("ipv6,in_port=p1,ipv6_src=fd01:203:405:ffff::1");
    let outcome = translator.evaluate(&none, &mut says(CtState::NEW), &mut ());
    assert_eq!(outcome.drop, Some(DropReason::Rejected(RejectWith::Host)));
    for (wrong, says) in [
        ("ip actions=nptv6(src=fd00::/48->2001:db8::/48)", "add ipv6"),
        ("ipv6 actions=nptv6(src=fd00::/48->2001:db8::/56)", "different lengths"),
        ("ipv6 actions=nptv6(src=fd00::/96->2001:db8::/96)", "64 at most"),
        ("ipv6 actions=nptv6(src=10.0.0.0/8->11.0.0.0/8)", "no prefix of IPv6"),
        ("ipv6 actions=nptv6(fd00::/48->2001:db8::/48)", "whose prefix"),
        ("ipv6 actions=nptv6(src=fd00::/48)", "nptv6(src="),
        ("ipv6 actions=nptv6", "nptv6(src="),
    ] {
        let why = parse_change(Command::Add, wrong, &Called).unwrap_err().to_string();
        assert!(why.contains(says), "{wrong}: {why}");
    }
}

#[test]
fn the_published_firewall_lets_the_inside_open_connections() {
    let firewall = pipeline(&[
        "table=0, priority=1 actions=drop",
        "table=0, priority=10,arp actions=NORMAL",
        "table=0, priority=100,ct_state=-trk,ip actions=ct(table=1)",
        "table=1, ct_state=+new+trk,ip,in_port=p1 actions=ct(commit),output:p2",
        "table=1, ct_state=+new+trk,ip,in_port=p2 actions=drop",
        "table=1, ct_state=+est+trk,ip,in_port=p1 actions=output:p2",
        "table=1, ct_state=+est+trk,ip,in_port=p2 actions=output:p1",
    ]);
    let (inside, outside) = ("in_port=p1,udp,tp_dst=53", "in_port=p2,udp,tp_src=53");
    assert_eq!(ends(&firewall, inside, CtState::NEW), to(2));
    assert_eq!(ends(&firewall, outside, CtState::NEW), dropped(DropReason::Explicit));
    assert_eq!(ends(&firewall, inside, CtState::EST), to(2));
    assert_eq!(ends(&firewall, outside, CtState::EST), to(1));
    assert_eq!(ends(&firewall, inside, CtState::INV), dropped(DropReason::TableMiss));
    assert_eq!(ends(&firewall, "in_port=p1,arp", CtState::NEW), (vec![To::Normal], None));
    assert_eq!(ends(&firewall, "in_port=p1,ipv6", CtState::NEW), dropped(DropReason::Explicit));
    let outcome = firewall.evaluate(&packet(inside), &mut says(CtState::NEW), &mut ());
    assert_eq!(outcome.commits.len(), 1);
    assert_eq!(outcome.commits[0].zone, 0);
    let numbers: Vec<u32> = outcome.matched.iter().map(|id| id.0).collect();
    assert_eq!(numbers, [2, 3]);
    // No flow reads optional fields, so that no key needs to have them.
    assert_eq!(outcome.reads, PacketFields::NONE);
    let established = firewall.evaluate(&packet(inside), &mut says(CtState::EST), &mut ());
    assert!(established.commits.is_empty());
}

#[test]
fn every_word_of_a_key_is_in_the_fields() {
    let addresses = Addresses::V4 {
        source: "10.0.0.1".parse().unwrap(),
        destination: "10.0.0.2".parse().unwrap(),
    };
    let fields = PacketFields::new(types::TcpFlags::SYN, types::Dscp::from_traffic_class(0xb8), 63);
    let mut key = FlowKey {
        vrf: VrfId(7),
        origin: Origin::Port(PortId(3)),
        addresses,
        protocol: Protocol::TCP,
        fragment: FragmentClass::First,
        upper: Upper::Ports { source: 1000, destination: 80 },
        fields,
    };
    let text = |key: &FlowKey| ShownFields(&Fields::of(key, 9), &Called).to_string();
    assert_eq!(
        text(&key),
        "pkt_mark=0x9,tcp,in_port=p3,nw_src=10.0.0.1,nw_dst=10.0.0.2,nw_tos=184,nw_ttl=63,\
         nw_frag=first,tp_src=1000,tp_dst=80,tcp_flags=syn"
    );
    assert_eq!(Fields::of(&key, 9).packet_fields(), fields);
    key.origin = Origin::Sa(SaSlot(9));
    key.protocol = Protocol::ICMP;
    key.fragment = FragmentClass::Whole;
    key.upper = Upper::Icmp { kind: 8, code: 0, identifier: 77 };
    key.fields = PacketFields::NONE;
    let shown =
        "pkt_mark=0x9,icmp,in_port=NONE,sa=reqid:7,nw_src=10.0.0.1,nw_dst=10.0.0.2,icmp_type=8";
    let mut fields = Fields::of(&key, 9);
    assert_eq!(fields.sa(), Some(0));
    fields.set_sa(Some(7));
    assert_eq!(ShownFields(&fields, &Called).to_string(), shown);
    assert_eq!(
        (fields.vrf(), fields.sa(), fields.in_port(), fields.addresses()),
        (VrfId(7), Some(7), None, Some(addresses))
    );
}

#[test]
fn decrypted_packets_are_told_apart() {
    let flows = pipeline(&[
        "priority=3,ip,sa=reqid:7 actions=output:p3",
        "priority=2,ip,sa=any actions=output:p2",
        "priority=1,ip,sa=none actions=output:p1",
    ]);
    for (text, port) in [("ip,sa=reqid:7", 3), ("ip,sa=reqid:5", 2), ("ip,sa=none", 1)] {
        assert_eq!(ends(&flows, text, CtState::NEW), to(port), "{text}");
    }
}

/// Connection tracking that translates.
struct Translates(Tuple);

impl Track for Translates {
    fn track(&mut self, zone: u16, _: bool, fields: &Fields, nat: Option<&NatSpec>) -> CtFields {
        assert_eq!(zone, 5);
        CtFields {
            state: CtState::EST | CtState::TRK | CtState::SNAT,
            mark: 0xf0,
            label: 1 << 100,
            original: fields.tuple(),
            translated: nat.map(|_| self.0),
        }
    }

    fn exit(&mut self, fields: &Fields) -> Exit {
        fields.exit()
    }
}

/// Connection tracking that must see the whole datagram first.
struct Waits;

impl Track for Waits {
    fn track(&mut self, _: u16, _: bool, _: &Fields, _: Option<&NatSpec>) -> CtFields {
        CtFields::default()
    }

    fn waits(&self) -> bool {
        true
    }

    fn exit(&mut self, fields: &Fields) -> Exit {
        fields.exit()
    }
}

#[test]
fn a_packet_of_which_more_must_come_matches_nothing_yet() {
    let flows = pipeline(&[
        "table=0,udp actions=NORMAL,ct(commit,table=1),NORMAL",
        "table=1,udp actions=NORMAL",
    ]);
    let outcome = flows.evaluate(&packet("udp"), &mut Waits, &mut ());
    assert!(outcome.ends.is_empty() && outcome.commits.is_empty() && outcome.matched.is_empty());
}

#[test]
fn a_tracked_packet_goes_on_beside_the_untracked_one() {
    let flows = pipeline(&[
        "table=0,udp actions=ct(table=1,zone=5,nat,commit,exec(set_field:0x3/0xf->ct_mark)),\
         output:p4,resubmit(,2)",
        "table=1,ct_state=+est+snat,udp,nw_src=192.0.2.1,tp_src=4000,ct_nw_src=10.0.0.1,\
         ct_tp_src=99,ct_zone=5,ct_mark=0xf3,ct_label=0x10000000000000000000000000 \
         actions=output:p3",
        "table=2,udp,ct_state=-trk,ct_mark=0,ct_zone=0 actions=output:p5",
    ]);
    let addresses = Addresses::V4 {
        source: "192.0.2.1".parse().unwrap(),
        destination: "10.0.0.2".parse().unwrap(),
    };
    let mut track = Translates(Tuple::new(addresses, Protocol::UDP, 4000, 53));
    let fields = packet("udp,in_port=p1,nw_src=10.0.0.1,nw_dst=10.0.0.2,tp_src=99,tp_dst=53");
    let outcome = flows.evaluate(&fields, &mut track, &mut ());
    let ports: Vec<To> = outcome.ends.iter().map(|end| end.to).collect();
    assert_eq!(ports, [3, 4, 5].map(|port| To::Port(PortId(port))));
    // The packet itself was translated, so both go on with the new address.
    for end in &outcome.ends {
        let (fields, _) = outcome.fields_of(end);
        assert_eq!(fields.addresses(), Some(addresses));
        assert_eq!(fields.ports(), (4000, 53));
    }
    let commit = &outcome.commits[0];
    assert_eq!((commit.mark, commit.label, commit.zone), ((3, 0xf), (0, 0), 5));
}

#[test]
fn registers_and_headers_are_written() {
    let flows = pipeline(&[
        "table=0,tcp actions=load:0x5->NXM_NX_REG0[4..7],set_field:0x1/0xf->reg1,\
         move:NXM_NX_REG0[0..7]->NXM_NX_REG2[8..15],mod_nw_src:192.0.2.9,mod_tp_dst:8080,\
         mod_nw_tos:184,set_field:7->pkt_mark,dec_ttl,goto_table:1",
        "table=1,tcp,reg0=0x50,reg1=1,reg2=0x5000,nw_src=192.0.2.9,tp_dst=8080,pkt_mark=7,nw_ttl=9 \
         actions=output:p2,mod_nw_ttl:1,dec_ttl,output:p3",
    ]);
    let outcome = flows.evaluate(
        &packet("in_port=p1,tcp,nw_src=10.0.0.1,nw_ttl=10,tp_dst=80"),
        &mut says(CtState::NEW),
        &mut (),
    );
    // What stands behind a dec_ttl at 1 is left out.
    assert_eq!(outcome.ends.len(), 1);
    assert!(outcome.ttl_exceeded);
    let shown = ShownFields(outcome.fields_of(&outcome.ends[0]).0, &Called).to_string();
    assert_eq!(
        shown,
        "pkt_mark=0x7,tcp,reg0=0x50,reg1=0x1,reg2=0x5000,in_port=p1,nw_src=192.0.2.9,\
         nw_tos=184,nw_ttl=9,tp_dst=8080"
    );
    assert_eq!(outcome.reads, PacketFields::HOP_LIMIT);
    assert_eq!(flows.reads(VrfId::MAIN), PacketFields::HOP_LIMIT);
    let spent = flows.evaluate(&packet("tcp,nw_ttl=1"), &mut says(CtState::NEW), &mut ());
    assert_eq!(spent.drop, Some(DropReason::TtlExceeded));
}

#[test]
fn a_resubmit_takes_another_port_for_one_lookup() {
    let flows = pipeline(&[
        "table=0,in_port=p1 actions=resubmit(p2,1),IN_PORT,output:p1,output:p9",
        "table=1,in_port=p2 actions=output:p2",
        "table=1,in_port=p1 actions=output:p8",
    ]);
    let (ends, drop) = ends(&flows, "in_port=p1,ip", CtState::NEW);
    // A packet is not sent where it came from, but by IN_PORT.
    assert_eq!(ends, [To::Port(PortId(2)), To::InPort, To::Port(PortId(9))]);
    assert_eq!(drop, None);
}

#[test]
fn a_vrf_has_its_own_flows_and_zone() {
    let flows = pipeline(&["vrf=\"blue 7\",ip actions=ct(commit,table=1)"]);
    assert!(flows.has(VrfId(7)) && !flows.has(VrfId::MAIN));
    let mut fields = packet("ip");
    let none = flows.evaluate(&fields, &mut says(CtState::NEW), &mut ());
    assert_eq!(none.drop, Some(DropReason::TableMiss));
    fields = packet("vrf=\"blue 7\",ip");
    let outcome = flows.evaluate(&fields, &mut says(CtState::NEW), &mut ());
    assert_eq!(outcome.commits[0].zone, 7);
}

/// Counts what happens.
#[derive(Default)]
struct Counted(HashMap<&'static str, usize>);

impl Trace for Counted {
    fn step(&mut self, step: &Step<'_>) {
        let what = match step {
            Step::Lookup { .. } => "lookup",
            Step::Action { .. } => "action",
            Step::Tracked { .. } => "ct",
            Step::SameAsInPort(_) => "same port",
        };
        *self.0.entry(what).or_default() += 1;
    }
}

#[test]
fn levels_and_resubmits_have_an_end() {
    // Leads back as long as connection tracking says new, so that adding it is not refused.
    let back = pipeline(&[
        "table=0,ip actions=ct(table=1)",
        "table=1,ct_state=+new,ip actions=resubmit(,0)",
    ]);
    let mut trace = Counted::default();
    let outcome = back.evaluate(&packet("ip"), &mut says(CtState::NEW), &mut trace);
    assert_eq!(outcome.drop, Some(DropReason::TooDeep));
    assert_eq!(trace.0["lookup"], 2 + 2 * 64);
    assert_eq!(outcome.matched.len(), 64);
    assert!(outcome.matched_more);
    assert_eq!(ends(&back, "ip", CtState::EST), dropped(DropReason::TableMiss));

    // Each table goes twice through the next one: 2^20 if nothing ends it.
    let mut flows = Vec::new();
    for table in 0..20 {
        let next = table + 1;
        flows.push(format!("table={table},ip actions=resubmit(,{next}),resubmit(,{next})"));
    }
    flows.push("table=20,ip actions=output:p1".to_owned());
    let flows: Vec<&str> = flows.iter().map(String::as_str).collect();
    let many = pipeline(&flows);
    let mut trace = Counted::default();
    let outcome = many.evaluate(&packet("ip"), &mut says(CtState::NEW), &mut trace);
    // Copies end it first, unless they go nowhere.
    assert_eq!(outcome.drop, Some(DropReason::TooManyOutputs));
    let mut none = many.clone();
    none.apply(change(Command::Add, "table=20,ip actions=drop"), Owner::User).unwrap();
    let mut trace = Counted::default();
    let outcome = none.evaluate(&packet("ip"), &mut says(CtState::NEW), &mut trace);
    assert_eq!(outcome.drop, Some(DropReason::TooManyResubmits));
    assert_eq!(trace.0["lookup"], 1 + 4096);
    assert!(outcome.ends.is_empty() && outcome.commits.is_empty());
}

fn refusal(pipeline: &mut Pipeline, text: &str) -> Refused {
    let before = format!("{pipeline:?}");
    let refused = pipeline.apply(change(Command::Add, text), Owner::User);
    assert_eq!(format!("{pipeline:?}"), before);
    refused.expect_err(text)
}

#[test]
fn a_circle_is_refused_when_it_is_added() {
    let mut empty = Pipeline::new();
    assert_eq!(refusal(&mut empty, "actions=resubmit(,0)"), Refused::Cycle(vec![0]));
    assert_eq!(refusal(&mut empty, "ip actions=ct(table=0)"), Refused::Cycle(vec![0]));
    let mut flows = pipeline(&["table=3,ip actions=resubmit(,1)", "table=3,arp actions=NORMAL"]);
    assert_eq!(refusal(&mut flows, "table=1 actions=goto_table:3"), Refused::Cycle(vec![1, 3]));
    assert_eq!(
        refusal(&mut flows, "table=1,tcp,tp_dst=80 actions=output:p1,goto_table:3"),
        Refused::Cycle(vec![1, 3])
    );
    // A field that changes on the way leads out.
    let step = change(Command::Add, "table=1,ip,reg0=0 actions=load:1->NXM_NX_REG0[],goto_table:3");
    flows.apply(step, Owner::User).unwrap();
    let way = change(Command::Add, "table=1,ip,reg0=1 actions=output:p1");
    flows.apply(way, Owner::User).unwrap();
    assert_eq!(ends(&flows, "ip", CtState::NEW), dropped(DropReason::TableMiss));
    // Changed actions can make a circle as well.
    let before = flows.clone();
    let modify = change(Command::ModifyStrict, "table=1,ip,reg0=1 actions=goto_table:3");
    assert_eq!(flows.apply(modify, Owner::User), Err(Refused::Cycle(vec![1, 3])));
    assert_eq!(format!("{flows:?}"), format!("{before:?}"));
}

/// Each set of flows is added one by one, so that the last would be refused, and at once.
#[test]
fn flows_that_packets_leave_in_the_end_are_no_circle() {
    let ways: [&[&str]; 11] = [
        // A later fragment has no ports.
        &["udp,tp_dst=53 actions=set_field:54->udp_dst,resubmit(,0)"],
        &["tcp,tp_src=53 actions=mod_tp_src:54,resubmit(,0)"],
        &["udp,tp_dst=0x35/0xfff0 actions=load:0x1000->NXM_OF_UDP_DST[],resubmit(,0)"],
        &["ip actions=dec_ttl,resubmit(,0)"],
        &[
            "ip actions=move:reg0[0..30]->reg0[1..31],load:1->reg0[0],resubmit(,1)",
            "table=1,ip,reg0=0xffffffff actions=drop",
            "table=1,ip,priority=1 actions=resubmit(,0)",
        ],
        // A connection that is new is not established.
        &[
            "table=1,ip,ct_state=+trk+new actions=resubmit(,2)",
            "table=2,ip,ct_state=+trk+est actions=resubmit(,1)",
        ],
        // One of which nothing was said has no mark.
        &[
            "table=1,ip,ct_mark=5 actions=resubmit(,2)",
            "table=2,ip,ct_state=-trk actions=resubmit(,1)",
        ],
        &[
            "table=1,ip,ct_state=+new actions=drop",
            "table=1,ip,ct_state=+est actions=drop",
            "table=1,ip,ct_state=+inv actions=drop",
            "table=1,ip,ct_state=+trk,priority=9 actions=resubmit(,1)",
        ],
        &["ip,nw_dst=192.0.2.1 actions=ct(commit,nat(dst=10.0.0.1),table=0)"],
        &["udp,tp_dst=53 actions=ct(commit,nat(dst=10.0.0.1:5353),table=0)"],
        // With another destination it may be routed elsewhere.
        &["ip,oif=p1 actions=set_field:10.0.0.1->nw_dst,resubmit(,0)"],
    ];
    for flows in ways {
        pipeline(flows);
        let flows = flows.iter().map(|text| match change(Command::Add, text) {
            Change::Add { flow, .. } => flow,
            other => panic!("{other:?}"),
        });
        Pipeline::new().replace(flows.collect(), Owner::User).unwrap();
    }
}

#[test]
fn circles_are_refused_by_what_is_in_them() {
    let ways: [(&[&str], &[u8]); 9] = [
        (&["udp,tp_dst=53 actions=set_field:53->udp_dst,resubmit(,0)"], &[0]),
        (&["udp,tp_dst=0x30/0xfff0 actions=load:0x31->NXM_OF_UDP_DST[],resubmit(,0)"], &[0]),
        (&["udp,ip_frag=later actions=resubmit(,0)"], &[0]),
        (&["ip,nw_ttl=7 actions=mod_nw_ttl:7,dec_ttl,mod_nw_ttl:7,resubmit(,0)"], &[0]),
        (
            &[
                "table=1,ip,ct_state=+est actions=resubmit(,2)",
                "table=2,ip,ct_state=-new actions=resubmit(,1)",
            ],
            &[2, 1],
        ),
        (&["ip actions=ct(commit,nat(dst=10.0.0.1),table=0)"], &[0]),
        (&["ip,nw_dst=10.0.0.1 actions=ct(commit,nat(dst=10.0.0.1),table=0)"], &[0]),
        (&["ip,oif=p1 actions=resubmit(,0)"], &[0]),
        // It leads to a circle that no packet came to before.
        (
            &[
                "table=1,reg0=5,ip actions=load:5->reg1,resubmit(,2)",
                "table=2,reg1=5,reg2=7,ip actions=resubmit(,2),resubmit(,1)",
            ],
            &[2],
        ),
    ];
    for (flows, tables) in ways {
        let (last, before) = flows.split_last().unwrap();
        assert_eq!(refusal(&mut pipeline(before), last), Refused::Cycle(tables.to_vec()), "{last}");
    }
    // By whichever of its flows it is closed.
    let flows = [
        "table=7,priority=9,tcp,tp_dst=80 actions=resubmit(,5)",
        "table=7,priority=5,tcp,tp_dst=23 actions=drop",
        "table=7,priority=1,ip actions=NORMAL",
        "table=6,priority=5,tcp actions=resubmit(,7)",
        "table=6,priority=1,ip actions=NORMAL",
        "table=5,ip actions=resubmit(,6)",
    ];
    for (at, tables) in [(0, [7, 5, 6]), (3, [6, 7, 5]), (5, [5, 6, 7])] {
        let mut before = flows.to_vec();
        let last = before.remove(at);
        assert_eq!(refusal(&mut pipeline(&before), last), Refused::Cycle(tables.to_vec()));
    }
    // What only leads to it is not told, if that is there that is in it.
    let flows = [
        "ip actions=resubmit(,4)",
        "table=4,ip actions=resubmit(,5)",
        "table=5,ip actions=resubmit(,4)",
    ];
    let flows = flows.map(|text| match change(Command::Add, text) {
        Change::Add { flow, .. } => flow,
        other => panic!("{other:?}"),
    });
    let refused = Pipeline::new().replace(flows.to_vec(), Owner::User);
    assert_eq!(refused, Err((1, Refused::Cycle(vec![4, 5]))));
}

/// More levels than a packet may be in are no circle, in whichever order the flows come.
#[test]
fn many_levels_are_no_circle() {
    let level = |at: u32| {
        let next = at + 1;
        format!("table=1,ip,reg0={at} actions=load:{next}->NXM_NX_REG0[],resubmit(,1)")
    };
    let levels: Vec<String> = (0..70).map(level).collect();
    let forth: Vec<&str> = levels.iter().map(String::as_str).collect();
    let back: Vec<&str> = forth.iter().rev().copied().collect();
    for flows in [forth, back] {
        let mut flows = pipeline(&flows);
        flows.apply(change(Command::Add, "ip actions=resubmit(,1)"), Owner::User).unwrap();
        assert_eq!(ends(&flows, "ip", CtState::NEW), dropped(DropReason::TooDeep));
    }
}

#[test]
fn flows_are_changed_as_by_ovs_ofctl() {
    let mut flows = pipeline(&[
        "cookie=1,table=0,priority=5,tcp,tp_dst=80 actions=output:p1",
        "cookie=2,table=0,priority=6,tcp actions=output:p2",
        "cookie=3,table=1,priority=6,udp actions=output:p1",
    ]);
    let ids =
        |flows: &Pipeline| -> Vec<u32> { flows.sorted().iter().map(|entry| entry.id.0).collect() };
    // The same match and priority replaces, and has a new number.
    let changed =
        flows.apply(change(Command::Add, "priority=6,tcp actions=drop"), Owner::User).unwrap();
    assert_eq!((changed.added[0].0, changed.removed[0].id.0), (3, 1));
    assert_eq!(ids(&flows), [3, 0, 2]);
    // A loose change takes all that ask for as much, and leaves numbers and counters.
    let loose = change(Command::Modify, "tcp actions=output:p7");
    let changed = flows.apply(loose, Owner::User).unwrap();
    assert_eq!(changed.modified.len(), 2);
    assert_eq!(ends(&flows, "tcp,tp_dst=80", CtState::NEW), to(7));
    assert_eq!(flows.sorted()[1].flow.cookie, 1);
    // A strict one takes one; if there is none it is added.
    let strict = change(Command::ModifyStrict, "priority=5,tcp,cookie=9 actions=output:p8");
    assert_eq!(flows.apply(strict, Owner::User).unwrap().added.len(), 1);
    assert_eq!(flows.len(), 4);
    let overlap = change(Command::Add, "check_overlap,priority=6,ip,nw_dst=10.0.0.1 actions=drop");
    let refused = flows.apply(overlap, Owner::User);
    assert!(matches!(refused, Err(Refused::Overlaps { table: 0, .. })), "{refused:?}");
    let apart = change(Command::Add, "check_overlap,priority=6,udp actions=drop");
    flows.apply(apart, Owner::User).unwrap();
    for (command, text, left) in [
        (Command::DeleteStrict, "priority=4,tcp", 5),
        (Command::DeleteStrict, "priority=5,tcp", 4),
        (Command::Delete, "out_port=p1", 3),
        (Command::Delete, "cookie=1/-1", 2),
        (Command::Delete, "table=1", 2),
        (Command::Delete, "", 0),
    ] {
        flows.apply(change(command, text), Owner::User).unwrap();
        assert_eq!(flows.len(), left, "{text}");
    }
    assert!(!flows.has(VrfId::MAIN));
}

#[test]
fn what_the_firewall_made_is_not_changed_by_hand() {
    let mut flows = Pipeline::new();
    let own = change(Command::Add, "priority=9,tcp actions=output:p2");
    flows.apply(own, Owner::Firewall).unwrap();
    for (command, text) in [
        (Command::Add, "priority=9,tcp actions=output:p1"),
        (Command::Modify, "ip actions=output:p1"),
        (Command::Delete, "ip"),
        (Command::DeleteStrict, "priority=9,tcp"),
        (Command::Delete, "table=0"),
        (Command::Delete, "out_port=p2"),
    ] {
        // A match of IPv4 names the flow of TCP as well.
        let refused = flows.apply(change(command, text), Owner::User);
        assert!(matches!(refused, Err(Refused::NotYours { .. })), "{text}: {refused:?}");
    }
    flows.apply(change(Command::Delete, ""), Owner::User).unwrap();
    assert_eq!(flows.len(), 1);
    // A whole table is emptied of what a user may remove; another table has nothing of anybody's.
    flows.apply(change(Command::Add, "udp actions=drop"), Owner::User).unwrap();
    for table in [1, 0] {
        let deleted = change(Command::Delete, &format!("table={table}"));
        flows.apply(deleted, Owner::User).unwrap();
    }
    assert_eq!(flows.len(), 1);
    flows.replace(Vec::new(), Owner::User).unwrap();
    assert_eq!(flows.len(), 1);
    flows.replace(Vec::new(), Owner::Firewall).unwrap();
    assert!(flows.is_empty());
}

/// What is there in the end is judged, and not what old and new flows would do together.
#[test]
fn flows_that_replace_others_are_judged_as_a_whole() {
    let flow = |text: &str| match change(Command::Add, text) {
        Change::Add { flow, .. } => flow,
        other => panic!("{other:?}"),
    };
    let flows = |texts: &[&str]| -> Vec<Flow> { texts.iter().map(|text| flow(text)).collect() };
    let mut pipeline = Pipeline::new();
    let up =
        ["ip actions=resubmit(,1)", "table=1,ip actions=resubmit(,2)", "table=2,ip actions=drop"];
    let down =
        ["ip actions=resubmit(,2)", "table=2,ip actions=resubmit(,1)", "table=1,ip actions=drop"];
    for texts in [up, down, up] {
        let changed = pipeline.replace(flows(&texts), Owner::User).unwrap();
        assert_eq!((pipeline.len(), changed.added.len()), (3, 3));
    }
    // A flow before the one that has packets leave the circle.
    let other = ["priority=5,ip actions=resubmit(,0)", "priority=10,ip actions=drop"];
    pipeline.replace(flows(&other), Owner::User).unwrap();
    let circle = ["priority=10,ip actions=drop", "priority=11,ip actions=resubmit(,0)"];
    let refused = pipeline.replace(flows(&circle), Owner::User);
    assert_eq!(refused, Err((1, Refused::Cycle(vec![0]))));
    assert_eq!(pipeline.len(), 2, "nothing is changed");
    // Of several with one match and priority the last counts, also if it is there already.
    let last = ["priority=10,ip actions=output:p1", "priority=10,ip actions=drop"];
    let kept = pipeline.find(&flow(last[1])).unwrap().id;
    let changed = pipeline.replace(flows(&last), Owner::User).unwrap();
    assert_eq!((changed.added.len(), changed.removed.len()), (0, 1));
    assert_eq!(pipeline.find(&flow(last[0])).unwrap().id, kept);
    // As many as there may be, and then as many others.
    let many = |first: u32| -> Vec<Flow> {
        let number =
            |number: u32| flow(&format!("ip,nw_src={} actions=drop", Ipv4Addr::from(number)));
        (first..first + MOST_FLOWS as u32).map(number).collect()
    };
    for first in [0, 1 << 24] {
        pipeline.replace(many(first), Owner::User).unwrap();
        assert_eq!(pipeline.len(), MOST_FLOWS);
    }
}

#[test]
fn a_hundred_thousand_flows_are_added_in_seconds() {
    let mut flows = Pipeline::new();
    let start = Instant::now();
    for number in 0..100_000_u32 {
        let address = Ipv4Addr::from_bits(0x0a00_0000 + number);
        let text = format!("ip,nw_dst={address} actions=output:p1");
        flows.apply(change(Command::Add, &text), Owner::User).unwrap();
    }
    assert_eq!(ends(&flows, "ip,nw_dst=10.1.134.159", CtState::NEW), to(1));
    assert!(start.elapsed().as_secs() < 60, "{:?}", start.elapsed());
}

/// An outcome is small enough to be made for every packet that is decided.
#[test]
fn outcomes_name_what_was_read() {
    let flows = pipeline(&["priority=1,tcp,tcp_flags=+syn-ack actions=output:p1", "ip actions=p2"]);
    let outcome: Outcome = flows.evaluate(&packet("udp"), &mut says(CtState::NEW), &mut ());
    assert_eq!(outcome.ends[0].to, To::Port(PortId(2)));
    assert_eq!(outcome.reads, PacketFields::NONE);
    let flags = flows.reads(VrfId::MAIN);
    assert_eq!(flags, PacketFields::from_bits(0x12));
}
