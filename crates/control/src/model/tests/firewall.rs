use std::collections::BTreeMap;
use std::net::IpAddr;

use ::conntrack::{CtState, New, Packet as Tracked, Tuple};
use pipeline::{
    CtFields, DropReason, Exit, Fields, FlowId, NatEnd, NatNew, NatSpec, Owner, To, Track,
};
use proptest::prelude::*;
use types::{
    Addresses, FlowKey, FragmentClass, Origin, PacketFields, PortId, Protocol, RejectWith, SaSlot,
    Upper, VrfId,
};

use super::*;
use crate::firewall::{Cookie, Seen};

/// Everything that a firewall may have.
pub(super) const SITE: &str = r#"
[[vrf]]
name = "red"
[[vrf]]
name = "blue"
[[port]]
name = "lan"
kind = "memory"
addresses = ["10.1.0.1/24", "2001:db8:1::1/64"]
[[port]]
name = "dmz"
kind = "memory"
addresses = ["10.3.0.1/24"]
[[port]]
name = "wan"
kind = "memory"
addresses = ["192.0.2.1/24", "2001:db8:2::1/64"]
[[port]]
name = "red1"
kind = "memory"
vrf = "red"
addresses = ["10.1.0.1/24"]
[[port]]
name = "blue1"
kind = "memory"
vrf = "blue"
[[route]]
to = "default"
via = "192.0.2.254"
"#;

pub(super) const FIREWALL: &str = r#"
[firewall]
log = "default"
log-invalid = "invalid"
[[firewall.zone]]
name = "inside"
ports = ["lan"]
[[firewall.zone]]
name = "servers"
ports = ["dmz"]
[[firewall.zone]]
name = "outside"
ports = ["wan"]
masquerade = "ipv4"
[[firewall.zone]]
name = "branch"
networks = ["10.2.0.0/16", "2001:db8:b::/48"]
[[firewall.zone]]
name = "tenant"
vrfs = ["red"]
[[firewall.service]]
name = "game"
services = ["udp/27015-27030", "https"]
[[firewall.policy]]
from = ["inside", "servers"]
to = ["outside", "branch"]
rules = [
    { services = ["tcp/25"], action = "reject", log = "mail" },
    { services = ["ping"], sources = ["10.1.0.9"], action = "drop" },
]
action = "accept"
[[firewall.policy]]
from = ["outside"]
to = ["gateway"]
rules = [{ services = ["ping", "ike"], action = "accept" }]
[[firewall.policy]]
from = ["outside"]
to = ["servers"]
rules = [
    { services = ["game"], destinations = ["10.3.0.2-10.3.0.4"], action = "accept" },
    { services = ["icmp6"], action = "accept", log = "six" },
]
[[firewall.policy]]
from = ["branch"]
to = ["inside"]
rules = [{ services = ["ssh"], sources = ["10.2.1.0/24"], action = "accept" }]
action = "reject"
[[firewall.policy]]
from = ["tenant"]
to = ["tenant", "gateway"]
action = "accept"
[[firewall.forward]]
from = ["outside"]
hairpin = ["servers", "inside"]
service = "tcp/8080"
to = "10.3.0.2"
to-port = 80
[[firewall.forward]]
from = ["outside"]
service = "udp/5000-5001"
sources = ["198.51.100.0/24"]
to = "10.1.0.2"
log = "forward"
[[firewall.forward]]
from = ["outside"]
service = "tcp/443"
to = "2001:db8:1::2"
[[firewall.snat]]
from = ["inside"]
to = ["outside"]
sources = ["10.1.0.8/30"]
addresses = "192.0.2.8-192.0.2.9"
ports = "2000-2999"
[[firewall.snat]]
from = ["inside"]
to = ["outside"]
destinations = ["198.51.100.7"]
"#;

fn with_firewall() -> String {
    format!("{SITE}{FIREWALL}")
}

fn firewall_flows(control: &mut Control, words: &str) -> Vec<String> {
    let shown = show(control, &format!("flow show {words}"));
    shown.lines().filter(|line| line.ends_with(" # firewall")).map(str::to_owned).collect()
}

/// The flows; those of one priority stand in the order in which they came.
fn sorted(control: &mut Control) -> Vec<String> {
    let mut lines: Vec<_> = show(control, "flow show").lines().map(str::to_owned).collect();
    lines.sort();
    lines
}

#[test]
fn zones_become_flows_of_their_vrfs_alone() {
    let mut control = running(&with_firewall());
    assert!(firewall_flows(&mut control, "vrf=main").len() > 40);
    assert!(!firewall_flows(&mut control, "vrf=red").is_empty());
    assert_eq!(show(&mut control, "flow show vrf=blue"), "");
    let lines = firewall_flows(&mut control, "vrf=main,table=243");
    let is = |text: &str| lines.iter().any(|line| line.contains(text));
    assert!(is("tcp,reg0=0x1,reg1=0x3,tp_dst=25 actions=log:mail,goto_table:245"), "{lines:#?}");
    assert!(is("actions=log:default "), "{lines:#?}");
    let nat = firewall_flows(&mut control, "vrf=main,table=244").join("\n");
    assert!(nat.contains("reg1=0x3,oif=wan actions=ct(commit,nat(src=192.0.2.1,twice)"), "{nat}");
    // By hand they are not changed, and stay when others are removed.
    let refusal = run(&mut control, "flow del table=243,tcp").unwrap_err();
    let tcp = lines.iter().find(|line| line.contains(" tcp") || line.contains(",tcp")).unwrap();
    assert!(refusal.message.contains("` was made by [firewall]"), "{refusal}");
    assert!(refusal.message.starts_with("flow `table=243,priority="), "{refusal}");
    // One of them as it is shown is there already.
    let shown = tcp.trim().split(" # ").next().unwrap();
    run(&mut control, &format!("flow add {shown}")).unwrap();
    let refusal =
        run(&mut control, &format!("flow add {}", shown.replace("actions=", "actions=note:01,")))
            .unwrap_err();
    assert!(refusal.message.contains("` was made by [firewall]"), "{refusal}");
    run(&mut control, "flow add table=0,arp actions=drop").unwrap();
    run(&mut control, "flow del-all").unwrap();
    assert_eq!(firewall_flows(&mut control, "vrf=main,table=243"), lines);
}

#[test]
fn another_address_compiles_it_anew() {
    let mut control = running(&with_firewall());
    let nat = |control: &mut Control| firewall_flows(control, "vrf=main,table=244").join("\n");
    run(&mut control, "addr add 192.0.2.77/24 dev wan").unwrap();
    assert!(nat(&mut control).contains("nat(src=192.0.2.1,twice)"));
    run(&mut control, "addr del 192.0.2.1/24 dev wan").unwrap();
    let text = nat(&mut control);
    assert!(text.contains("nat(src=192.0.2.77,twice)") && !text.contains("192.0.2.1,"), "{text}");
    run(&mut control, "addr flush dev wan").unwrap();
    let text = nat(&mut control);
    assert!(text.contains("ip,reg1=0x3,oif=wan actions=drop"), "{text}");
    let shown = show(&mut control, "firewall show");
    assert!(shown.contains("warning: port wan has no IPv4 address to masquerade with"), "{shown}");
    // A port of the VRF that a zone is.
    let refusal = run(&mut control, "link del lan").unwrap_err();
    assert!(!refusal.message.is_empty());
    run(&mut control, "link set dev blue1 vrf red").unwrap();
    let lines = firewall_flows(&mut control, "vrf=red,table=242").join("\n");
    assert!(lines.contains("oif=blue1"), "{lines}");
    let refusal = run(&mut control, "vrf del red").unwrap_err();
    assert!(refusal.message.contains("no VRF \"red\""), "{refusal}");
    run(&mut control, "link add link dmz name dmz.5 type vlan id 5").unwrap();
    let two = FIREWALL.replace("[\"dmz\"]", "[\"dmz\", \"dmz.5\"]");
    let (spec, _) = crate::config::load_firewall("fw.toml", &two).unwrap();
    let request = Request::FirewallReplace(Box::new(spec.unwrap()));
    handle(&mut control, request, NOW).unwrap();
    let refusal = run(&mut control, "link del dmz.5").unwrap_err();
    assert_eq!(refusal.message, "port dmz.5 is in zone servers of the firewall");
    // With its VRF it would go to main, where a firewall would begin.
    run(&mut control, "link add green type vrf table 77").unwrap();
    run(&mut control, "link set dmz.5 master green").unwrap();
    let refusal = run(&mut control, "link del green").unwrap_err();
    assert_eq!(refusal.message, "port dmz.5 is in zone servers of the firewall");
    run(&mut control, "link set dmz.5 nomaster").unwrap();
    run(&mut control, "link del green").unwrap();
}

/// Fragments of different zones are kept apart by it.
#[test]
fn the_tables_know_the_zones_of_ports() {
    let mut control = running(&with_firewall());
    let zone = |control: &Control, name: &str| {
        control.tables().firewall_zone(control.desired.ports.get(name).unwrap().id)
    };
    let zones = ["lan", "dmz", "wan", "blue1"].map(|name| zone(&control, name));
    assert_eq!(zones, [Some(1), Some(2), Some(3), None]);
    // Zone 5 is what is in no other of the VRF red.
    run(&mut control, "link set blue1 master red").unwrap();
    assert_eq!(zone(&control, "blue1"), Some(5));
    run(&mut control, "firewall delete").unwrap();
    assert_eq!(zone(&control, "lan"), None);
}

#[test]
fn it_neither_begins_nor_ends_where_ports_are_in_no_zone() {
    let mut control = running(SITE);
    for line in [
        "link add green type vrf table 77",
        "link add link dmz name dmz.5 type vlan id 5",
        "link add link dmz name dmz.6 type vlan id 6",
        "addr add 198.51.100.1/24 dev dmz.6",
    ] {
        run(&mut control, line).unwrap();
    }
    let firewall = "[firewall]\ndefault = \"drop\"\n\n[[firewall.zone]]\nname = \"all\"\nports = [\"dmz.5\"]\n";
    let put = |control: &mut Control, text: &str| {
        let (spec, _) = crate::config::load_firewall("fw.toml", text).unwrap();
        handle(control, Request::FirewallReplace(Box::new(spec.unwrap())), NOW).unwrap();
    };
    run(&mut control, "link set dmz.5 master green").unwrap();
    put(&mut control, firewall);
    // What main forwards would be dropped.
    let refusal = run(&mut control, "link set dmz.5 nomaster").unwrap_err();
    let begins = "the firewall would begin in VRF main, where port ";
    assert!(refusal.message.starts_with(begins), "{refusal}");
    assert!(
        refusal.message.ends_with("is in no zone: what comes by it would be dropped"),
        "{refusal}"
    );
    assert_eq!(firewall_flows(&mut control, "vrf=main"), [""; 0]);
    // What comes by a port that is dropped would pass.
    run(&mut control, "link set dmz.6 master green").unwrap();
    run(&mut control, "link add empty type vrf table 78").unwrap();
    let refusal = run(&mut control, "link set dmz.5 master empty").unwrap_err();
    let ends = "the firewall would end in VRF green, where port dmz.6 is in no zone: what comes by it \
                would pass";
    assert_eq!(refusal.message, ends);
    // An xfrm link carries packets without an address.
    run(&mut control, "addr del 198.51.100.1/24 dev dmz.6").unwrap();
    run(&mut control, "link add ipsec0 vrf green type xfrm dev wan if_id 7").unwrap();
    let refusal = run(&mut control, "link set dmz.5 master empty").unwrap_err();
    assert_eq!(refusal.message, ends.replace("dmz.6", "ipsec0"));
    run(&mut control, "link del ipsec0").unwrap();
    run(&mut control, "addr add 198.51.100.1/24 dev dmz.6").unwrap();
    // Whoever says it in the firewall may move it.
    put(&mut control, &firewall.replace("[\"dmz.5\"]", "[\"dmz.5\", \"dmz.6\"]"));
    run(&mut control, "link set dmz.5 master empty").unwrap();
    assert_ne!(firewall_flows(&mut control, "vrf=empty"), [""; 0]);
}

#[test]
fn a_flow_by_hand_in_its_place_is_named() {
    let mut control = running(SITE);
    run(&mut control, "flow add table=0,priority=9,arp actions=drop").unwrap();
    let (spec, _) = crate::config::load_firewall("fw.toml", FIREWALL).unwrap();
    let request = Request::FirewallReplace(Box::new(spec.unwrap()));
    let refusal = handle(&mut control, request.clone(), NOW).unwrap_err();
    assert!(refusal.message.ends_with("needs one: table=0,priority=9,arp"), "{refusal}");
    run(&mut control, "flow del-all").unwrap();
    handle(&mut control, request, NOW).unwrap();
    let reply = run(&mut control, "firewall delete").unwrap();
    assert!(matches!(reply, Reply::FirewallChanged(report) if report.removed > 40), "{reply:?}");
    assert_eq!(show(&mut control, "flow show"), "");
    assert_eq!(show(&mut control, "firewall"), "there is no firewall\n");
}

#[test]
fn it_comes_back_after_a_restart_and_is_saved() {
    let mut control = running(&with_firewall());
    control.keep_changes(true);
    let other = FIREWALL.replace("\"tcp/25\"", "\"smtp\", \"submission\"");
    let (spec, _) = crate::config::load_firewall("fw.toml", &other).unwrap();
    let request = Request::FirewallReplace(Box::new(spec.unwrap()));
    handle(&mut control, request, NOW).unwrap();
    let shown = sorted(&mut control);
    let changes = control.take_changes().text;
    let all = control.all_changes().text;
    for text in [&changes, &all] {
        let mut again = running(&with_firewall());
        again.keep_changes(true);
        let restored = again.restore([text.as_str()].into_iter(), &BTreeMap::new(), true, NOW);
        assert_eq!(restored.refused, Vec::<String>::new(), "{text}");
        assert_eq!(sorted(&mut again), shown, "{text}");
        consistent(&again);
    }
    let saved = control.save(None).unwrap().text;
    let mut again = running(&saved);
    assert_eq!(sorted(&mut again), shown);
    assert_eq!(again.desired.firewall.as_ref().map(|is| is.spec().clone()), {
        control.desired.firewall.as_ref().map(|is| is.spec().clone())
    });
    let told = reload(&mut control, &with_firewall()).unwrap();
    assert!(told.starts_with("~ firewall 5 zones"), "{told}");
    assert_eq!(reload(&mut control, &with_firewall()).unwrap(), "");
    assert!(reload(&mut control, SITE).unwrap().starts_with("- firewall 5 zones"));
    assert_eq!(show(&mut control, "flow show"), "");
}

#[test]
fn ports_with_other_numbers_are_found_again() {
    let mut control = running(&with_firewall());
    let before = show(&mut control, "flow show table=242");
    let wan = "name = \"wan\"\nkind = \"memory\"\n";
    let text = with_firewall().replace(wan, &format!("{wan}mac = \"02:00:00:00:00:99\"\n"));
    reload(&mut control, &text).unwrap();
    let after = show(&mut control, "flow show table=242");
    let line = |text: &str| text.lines().find(|line| line.contains("oif=wan")).unwrap().to_owned();
    let head = |text: &str| line(text).split(" actions").next().unwrap().to_owned();
    assert_eq!(head(&before), head(&after));
}

/// A packet that opens a connection, of all that is special in the firewall above.
#[derive(Clone, Debug)]
struct Packet {
    in_port: Option<&'static str>,
    source: IpAddr,
    destination: IpAddr,
    protocol: u8,
    port: u16,
}

fn packet() -> impl Strategy<Value = Packet> {
    let in_port = prop_oneof![Just(Some("lan")), Just(Some("dmz")), Just(Some("wan")), Just(None),];
    let v4 = || {
        const ALL: &[&str] = &[
            "10.1.0.2",
            "10.1.0.9",
            "10.3.0.2",
            "10.3.0.5",
            "10.2.1.5",
            "10.2.9.9",
            "192.0.2.1",
            "198.51.100.7",
            "203.0.113.5",
            "10.3.0.1",
        ];
        prop::sample::select(ALL)
    };
    let v6 = || {
        const ALL: &[&str] =
            &["2001:db8:1::2", "2001:db8:b::7", "2001:db8:2::1", "2001:db8:ffff::1"];
        prop::sample::select(ALL)
    };
    let pair = prop_oneof![3 => (v4(), v4()), 1 => (v6(), v6())];
    const PORTS: &[u16] = &[22, 25, 80, 443, 500, 5000, 5001, 8080, 27015, 9];
    const TYPES: &[u8] = &[128, 133, 134, 135, 136, 137];
    let protocol = prop::sample::select(&[1_u8, 6, 17, 47][..]);
    (in_port, pair, protocol, prop::sample::select(PORTS), prop::sample::select(TYPES)).prop_map(
        |(in_port, (source, destination), protocol, port, kind)| {
            let (source, destination): (IpAddr, IpAddr) =
                (source.parse().unwrap(), destination.parse().unwrap());
            let v6 = source.is_ipv6();
            let (protocol, port) = match protocol {
                1 if v6 => (58, kind.into()),
                1 => (1, 8),
                47 => (47, 0),
                other => (other, port),
            };
            Packet { in_port, source, destination, protocol, port }
        },
    )
}

fn addresses(source: IpAddr, destination: IpAddr) -> Addresses {
    match (source, destination) {
        (IpAddr::V4(source), IpAddr::V4(destination)) => Addresses::V4 { source, destination },
        (IpAddr::V6(source), IpAddr::V6(destination)) => Addresses::V6 { source, destination },
        _ => unreachable!("of one family"),
    }
}

/// Says of every packet that it opens a connection, and has the routes of the site.
struct World<'a>(&'a Control);

impl World<'_> {
    fn port(&self, name: &str) -> PortId {
        self.0.desired.ports[name].id
    }
}

impl Track for World<'_> {
    fn track(&mut self, _: u16, _: bool, fields: &Fields, nat: Option<&NatSpec>) -> CtFields {
        let new = nat.and_then(|nat| nat.new.as_ref());
        let new = new.filter(|new| new.end == NatEnd::Destination);
        let translated = new.and_then(|new| {
            let port = new.ports.map_or(fields.ports().1, |(first, _)| first);
            fields.tuple()?.with_destination(new.addresses?.first(), port)
        });
        let state = CtState(CtState::NEW.0 | CtState::TRK.0);
        CtFields { state, translated, original: fields.tuple(), ..CtFields::default() }
    }

    fn exit(&mut self, fields: &Fields) -> Exit {
        let Some(addresses) = fields.addresses() else { return Exit::None };
        let text = addresses.destination().to_string();
        let own = ["10.1.0.1", "10.3.0.1", "192.0.2.1", "2001:db8:1::1", "2001:db8:2::1"];
        match text.as_str() {
            text if own.contains(&text) => Exit::Local,
            text if text.starts_with("10.1.0.") => Exit::Port(self.port("lan")),
            text if text.starts_with("2001:db8:1:") => Exit::Port(self.port("lan")),
            text if text.starts_with("10.3.0.") => Exit::Port(self.port("dmz")),
            "203.0.113.5" => Exit::None,
            text if text.starts_with("10.9.0.") => Exit::Port(self.port("mgmt")),
            _ => Exit::Port(self.port("wan")),
        }
    }
}

fn fields(control: &Control, packet: &Packet) -> Fields {
    let in_port = packet.in_port.map(|name| World(control).port(name));
    let addresses = addresses(packet.source, packet.destination);
    let upper = match packet.protocol {
        1 | 58 => Upper::Icmp { kind: packet.port as u8, code: 0, identifier: 7 },
        47 => Upper::None,
        _ => Upper::Ports { source: 40_000, destination: packet.port },
    };
    let key = FlowKey {
        vrf: VrfId::MAIN,
        origin: in_port.map_or(Origin::Sa(SaSlot(3)), Origin::Port),
        addresses,
        protocol: Protocol(packet.protocol),
        upper,
        fragment: FragmentClass::Whole,
        fields: PacketFields::NONE,
    };
    Fields::of(&key, 0)
}

/// What flows do with a packet that opens a connection.
struct Through {
    passes: bool,
    label: u128,
    nat: Vec<std::sync::Arc<NatNew>>,
}

fn through_flows(control: &Control, packet: &Packet) -> Through {
    let tables = control.publisher.current();
    let fields = fields(control, packet);
    let outcome = tables.pipeline().evaluate(&fields, &mut World(control), &mut ());
    Through {
        passes: outcome.ends.first().is_some_and(|end| end.to == To::Normal),
        label: outcome.commits.iter().fold(0, |label, commit| label | commit.label.0),
        nat: outcome
            .commits
            .iter()
            .filter_map(|commit| commit.ct.nat.as_ref()?.new.clone())
            .collect(),
    }
}

/// The connection that a packet has opened, as it is seen later.
fn opened(packet: &Packet, through: &Through) -> Seen {
    let label = through.label;
    assert_eq!(label >> 32, 1, "the firewall says that it made it");
    let nat = |end| through.nat.iter().rfind(|new| new.end == end && new.addresses.is_some());
    let forwarded = nat(NatEnd::Destination).map(|new| {
        let port = new.ports.map_or(packet.port, |(first, _)| first);
        (new.addresses.unwrap().first(), port)
    });
    let translated = nat(NatEnd::Source)
        .map(|new| (new.addresses.unwrap().last(), new.ports.map_or(40_000, |(_, last)| last)));
    Seen {
        ports: [label as u16, (label >> 16) as u16],
        source: packet.source,
        destination: packet.destination,
        protocol: Protocol(packet.protocol),
        port: packet.port,
        forwarded,
        translated,
    }
}

proptest! {
    /// What the flows let pass is what a connection is judged by, so that no connection falls that
    /// would be made anew, and none stays that would not.
    #[test]
    fn connections_are_judged_as_packets_are(packet in packet()) {
        thread_local! {
            static CONTROL: Control = running(&with_firewall());
        }
        CONTROL.with(|control| {
            let through = through_flows(control, &packet);
            let exit = World(control).exit(&fields(control, &packet));
            // Neighbour discovery for the gateway makes no connection.
            if packet.protocol == 58 && packet.port != 128 && exit == Exit::Local {
                prop_assert!(through.passes && through.label == 0);
                return Ok(());
            }
            let is = control.desired.firewall.as_ref().unwrap();
            let vrf = is.compiled.vrf("main").unwrap();
            if through.passes {
                let seen = opened(&packet, &through);
                prop_assert!(is.firewall.allows(vrf, &seen), "{seen:?}");
                // Translated otherwise, it is another one.
                let other = match seen.translated {
                    None => Some(("192.0.2.1".parse().unwrap(), 40_000)),
                    Some(_) => None,
                };
                let other = Seen { translated: other, ..seen };
                prop_assert!(!is.firewall.allows(vrf, &other), "{other:?}");
                let other = match seen.forwarded {
                    None => Some(("10.3.0.3".parse().unwrap(), seen.port)),
                    Some(_) => None,
                };
                let other = Seen { forwarded: other, ..seen };
                prop_assert!(!is.firewall.allows(vrf, &other), "{other:?}");
                return Ok(());
            }
            let world = World(control);
            let out = match exit {
                Exit::Port(port) => port.0,
                Exit::Local => u16::MAX,
                Exit::None => return Ok(()),
            };
            let come = packet.in_port.map_or(u16::MAX, |name| world.port(name).0);
            for translated in ["192.0.2.1", "192.0.2.8", "10.3.0.1"] {
                for translated in [None, Some((translated.parse().unwrap(), 2_500))] {
                    let seen = Seen {
                        ports: [come, out],
                        source: packet.source,
                        destination: packet.destination,
                        protocol: Protocol(packet.protocol),
                        port: packet.port,
                        forwarded: None,
                        translated,
                    };
                    prop_assert!(!is.firewall.allows(vrf, &seen), "{seen:?}");
                }
            }
            Ok(())
        })?;
    }
}

/// Makes a connection as a packet would, by the flows that there are.
fn make(control: &Control, packet: &Packet) {
    let through = through_flows(control, packet);
    make_with(control, packet, through.label, &opened(packet, &through));
}

/// Makes one by other rules: it is not translated.
fn make_anyway(control: &Control, packet: &Packet) {
    let world = World(control);
    let label = 1 << 32 | u128::from(world.port("wan").0) << 16 | u128::from(world.port("lan").0);
    let seen = Seen {
        ports: [label as u16, (label >> 16) as u16],
        source: packet.source,
        destination: packet.destination,
        protocol: Protocol(packet.protocol),
        port: packet.port,
        forwarded: None,
        translated: None,
    };
    make_with(control, packet, label, &seen);
}

fn make_with(control: &Control, packet: &Packet, label: u128, seen: &Seen) {
    let tables = control.publisher.current();
    let table = tables.connections().unwrap();
    let original = Tuple::new(
        addresses(packet.source, packet.destination),
        Protocol(packet.protocol),
        40_000,
        packet.port,
    );
    let mut new = New { label, ..New::plain(0, original) };
    if let Some((address, port)) = seen.forwarded {
        new.translated = Some(original.with_destination(address, port).unwrap());
    }
    if let Some((address, _)) = seen.translated {
        let to = new.translated.unwrap_or(original);
        new.translated = Some(to.with_source(address, 40_000).unwrap());
    }
    table.commit(&new, &Tracked::Datagram, 100, NOW, &mut |_| {}).unwrap();
}

fn udp(in_port: &'static str, source: &str, destination: &str, port: u16) -> Packet {
    Packet {
        in_port: Some(in_port),
        source: source.parse().unwrap(),
        destination: destination.parse().unwrap(),
        protocol: 17,
        port,
    }
}

/// A port that no zone names.
const MGMT: &str = "[[port]]\nname = \"mgmt\"\nkind = \"memory\"\naddresses = [\"10.9.0.1/24\"]\n";

const TO_MGMT: &str =
    "[[firewall.forward]]\nfrom = [\"outside\"]\nservice = \"udp/7777\"\nto = \"10.9.0.7\"\n";

/// Neither is a miss of the flows, of which nobody would hear.
#[test]
fn what_has_no_route_or_zone_ends_by_its_name() {
    let unlogged = FIREWALL.replace("log = \"default\"\n", "");
    for (firewall, default, drop, logs) in [
        (FIREWALL, "", DropReason::Explicit, true),
        (FIREWALL, "default = \"reject\"", DropReason::Rejected(RejectWith::TcpReset), true),
        (&*unlogged, "", DropReason::Explicit, false),
        (&*unlogged, "default = \"reject\"", DropReason::Rejected(RejectWith::TcpReset), false),
    ] {
        let firewall = firewall.replacen("[firewall]", &format!("[firewall]\n{default}"), 1);
        let firewall = format!("{firewall}{TO_MGMT}");
        let control = running(&format!("{SITE}{MGMT}{firewall}"));
        let tables = control.publisher.current();
        let evaluate = |packet: &Packet| {
            let fields = fields(&control, packet);
            tables.pipeline().evaluate(&fields, &mut World(&control), &mut ())
        };
        let unrouted = evaluate(&udp("lan", "10.1.0.2", "203.0.113.5", 53));
        assert_eq!(unrouted.ends.iter().map(|end| end.to).collect::<Vec<_>>(), [To::Unrouted]);
        assert!(unrouted.commits.is_empty() && !unrouted.logs);
        let of_cookie = |id: &FlowId| {
            let entry = tables.pipeline().entries().find(|entry| entry.id == *id).unwrap();
            Cookie::from_number(entry.flow.cookie)
        };
        for packet in [
            udp("mgmt", "10.9.0.2", "198.51.100.7", 53),
            udp("mgmt", "10.9.0.2", "10.1.0.1", 53),
            udp("lan", "10.1.0.2", "10.9.0.2", 53),
            // Decrypted, and of no network.
            Packet { in_port: None, ..udp("lan", "10.7.0.2", "10.1.0.2", 53) },
        ] {
            let outcome = evaluate(&packet);
            assert_eq!((outcome.drop, outcome.logs), (Some(drop), logs), "{packet:?}");
            assert!(outcome.commits.is_empty(), "{packet:?}");
            assert!(outcome.matched.iter().map(of_cookie).any(|of| of == Cookie::Unnamed));
        }
        // A forwarded port whose host is in no zone: `drop` would make the connection.
        let outcome = evaluate(&udp("wan", "198.51.100.9", "192.0.2.1", 7777));
        match drop {
            DropReason::Explicit => assert_eq!(outcome.ends[0].to, To::Unrouted),
            _ => assert!(outcome.commits.is_empty() && outcome.drop == Some(drop)),
        }
        assert_eq!(outcome.logs, logs);
    }
}

#[test]
fn a_port_that_is_in_no_zone_is_told() {
    let notes = |text: &str| -> Vec<String> {
        let config = load("gw.toml", text).unwrap();
        config.notes.iter().map(|note| note.message.clone()).collect()
    };
    let told = |becomes| {
        format!(
            "port mgmt is in no zone of the firewall in VRF main: what comes by it, and what would \
             leave by it, is {becomes} (name it in the `ports` of a zone)"
        )
    };
    let text = format!("{SITE}{MGMT}{FIREWALL}");
    assert_eq!(notes(&text), [told("dropped")]);
    let rejecting = text.replace("[firewall]", "[firewall]\ndefault = \"reject\"");
    assert_eq!(notes(&rejecting), [told("rejected")]);
    // Of a zone, of a VRF that is one, of a VRF without a firewall, and without an address.
    for other in [
        text.replace("ports = [\"dmz\"]", "ports = [\"dmz\", \"mgmt\"]"),
        text.replace("name = \"mgmt\"", "name = \"mgmt\"\nvrf = \"red\""),
        text.replace("name = \"mgmt\"", "name = \"mgmt\"\nvrf = \"blue\""),
        text.replace("addresses = [\"10.9.0.1/24\"]", ""),
    ] {
        assert_eq!(notes(&other), [""; 0]);
    }
    let mut control = running(&text);
    assert!(show(&mut control, "firewall show").contains(&told("dropped")));
    run(&mut control, "addr del 10.9.0.1/24 dev mgmt").unwrap();
    assert!(!show(&mut control, "firewall show").contains("is in no zone"));
}

/// They may be meant, or be a mistake that opens what the firewall closes.
#[test]
fn flows_by_hand_in_its_tables_are_doubted() {
    let flow = |text: &str| format!("[[flow]]\nflow = \"{text}\"\n");
    let text = with_firewall()
        + &flow("table=243,priority=9,tcp actions=NORMAL")
        + &flow("table=244,priority=9,udp actions=NORMAL")
        + &flow("table=238 actions=NORMAL")
        + &flow("vrf=blue,table=243 actions=NORMAL");
    let notes = |text: &str| -> Vec<String> {
        load("gw.toml", text).unwrap().notes.iter().map(|it| it.message.clone()).collect()
    };
    let told = "2 flows by hand are in tables 239 to 245 of VRF main, which are those of the firewall: its \
                packets meet what is there, too";
    assert_eq!(notes(&text), [told]);
    assert_eq!(notes(&with_firewall()), [""; 0]);
    let mut control = running(&text);
    assert!(show(&mut control, "firewall").contains(&format!("warning: {told}\n")));
    run(&mut control, "flow del table=243,tcp").unwrap_err();
    run(&mut control, "flow del --strict table=243,priority=9,tcp").unwrap();
    assert!(show(&mut control, "firewall").contains("warning: 1 flow by hand is in tables 239"));
    run(&mut control, "flow del-all").unwrap();
    assert!(!show(&mut control, "firewall").contains("by hand"));
}

#[test]
fn a_forward_is_shown_with_its_addresses() {
    let text = with_firewall().replace(
        "service = \"udp/5000-5001\"",
        "service = \"udp/5000-5001\"\naddresses = [\"192.0.2.7\"]",
    );
    let shown = show(&mut running(&text), "firewall");
    let line = "forward udp/5000-5001 from outside addresses 192.0.2.7 sources 198.51.100.0/24 to 10.1.0.2 (";
    assert!(shown.contains(line), "{shown}");
}

#[test]
fn policies_between_vrfs_are_doubted() {
    let across = "[[firewall.policy]]\nfrom = [\"inside\", \"servers\"]\nto = [\"tenant\"]\n\
                  [[firewall.snat]]\nfrom = [\"tenant\"]\nto = [\"outside\"]\n\
                  addresses = \"192.0.2.9\"\n";
    let text = format!("{}{across}", with_firewall());
    let notes: Vec<_> =
        load("gw.toml", &text).unwrap().notes.iter().map(|it| it.message.clone()).collect();
    let told = [
        "policy 6 never matches a packet: no zone of `from` (inside, servers) is in one VRF with a \
         zone of `to` (tenant), and zones are within one VRF",
        "snat 3 never matches a packet: no zone of `from` (tenant) is in one VRF with a zone of `to` \
         (outside), and zones are within one VRF",
    ];
    assert_eq!(notes, told);
    let mut control = running(&text);
    let shown = show(&mut control, "firewall show");
    assert!(told.iter().all(|told| shown.contains(&format!("warning: {told}\n"))), "{shown}");
    // One zone that can is enough.
    let text = text.replace("to = [\"tenant\"]\n", "to = [\"tenant\", \"branch\"]\n");
    let text = text.replace("to = [\"outside\", \"branch\"]", "to = [\"outside\"]");
    let notes = load("gw.toml", &text).unwrap().notes;
    assert!(notes.iter().all(|it| !it.message.contains("policy 6")), "{notes:?}");
}

/// What goes to a network behind a tunnel leaves by no port, so no port has an address for it.
#[test]
fn masquerade_of_a_zone_with_networks_is_doubted() {
    let both =
        with_firewall().replace("networks = [\"10.2.0.0/16\"", "networks = [\"10.5.0.0/16\"");
    let both = both.replace("ports = [\"wan\"]", "ports = [\"wan\"]\nnetworks = [\"10.2.0.0/16\"]");
    let told = "warning: zone outside: masquerade is for what leaves by its ports, and translates \
                nothing that goes to its networks ([[firewall.snat]] does)";
    assert!(show(&mut running(&both), "firewall show").contains(told));
    assert!(!show(&mut running(&with_firewall()), "firewall show").contains("masquerade is for"));
}

/// By which port a forwarded connection leaves is known behind the translation of its destination:
/// here the server is in another zone than the client, and no source is translated.
#[test]
fn a_forwarded_connection_knows_the_port_that_it_leaves_by() {
    let control = running(&with_firewall());
    let packet = Packet { protocol: 6, ..udp("lan", "10.1.0.2", "192.0.2.1", 8080) };
    let through = through_flows(&control, &packet);
    assert!(through.passes);
    let seen = opened(&packet, &through);
    assert_eq!(seen.ports, ["lan", "dmz"].map(|name| World(&control).port(name).0));
    let is = control.desired.firewall.as_ref().unwrap();
    assert!(is.firewall.allows(is.compiled.vrf("main").unwrap(), &seen), "{seen:?}");
}

/// Connections count for the zone that they come from, also those that were there before it had a
/// limit, and whatever its number is.
#[test]
fn connections_count_for_the_zone_that_they_come_from() {
    let mut control = running(&with_firewall());
    make(&control, &udp("lan", "10.1.0.2", "198.51.100.7", 53));
    make(&control, &udp("lan", "10.1.0.3", "198.51.100.9", 53));
    make(&control, &udp("wan", "198.51.100.9", "192.0.2.1", 5000));
    let counts = |control: &mut Control| match handle(control, Request::FirewallGet, NOW) {
        Ok(Reply::Firewall(Some(view))) => view.connections,
        other => panic!("{other:?}"),
    };
    assert!(counts(&mut control).is_empty());
    assert!(!firewall_flows(&mut control, "").iter().any(|flow| flow.contains("limit=")));
    let inside = "name = \"inside\"\n";
    let limited = format!("{inside}max-connections = 3\nmax-connections-per-source = 2\n");
    let text = with_firewall().replace(inside, &limited);
    reload(&mut control, &text).unwrap();
    assert_eq!(counts(&mut control), [2, 0, 1, 0, 0]);
    let nat = firewall_flows(&mut control, "table=244").join("\n");
    assert!(nat.contains("ct(commit,limit=NXM_NX_REG0[0..15],nat(src=192.0.2.1,twice)"), "{nat}");
    let shown = show(&mut control, "firewall");
    let line = "zone inside: lan max-connections 3 max-connections-per-source 2 (2 connections from there)";
    assert!(shown.contains(line), "{shown}");
    // Another zone comes first: numbers change, what is counted does not.
    let zone = |name: &str, port: &str| {
        format!("[[firewall.zone]]\nname = \"{name}\"\nports = [\"{port}\"]\n")
    };
    let servers = zone("servers", "dmz");
    assert!(text.contains(&servers));
    let moved = text.replace(&servers, "");
    let moved = moved.replacen("[[firewall.zone]]", &format!("{servers}[[firewall.zone]]"), 1);
    reload(&mut control, &moved).unwrap();
    assert_eq!(counts(&mut control), [0, 2, 1, 0, 0]);
    // Without limits nothing is counted.
    reload(&mut control, &with_firewall()).unwrap();
    assert!(counts(&mut control).is_empty());
    let tables = control.tables();
    let table = tables.connections().unwrap();
    assert_eq!((0..9).map(|class| table.connections_of(class)).sum::<u32>(), 0);
    assert_eq!(table.counts().connections, 3);
}

/// Classes are the firewall's: a flow by hand would count for limits that nobody has set.
#[test]
fn flows_by_hand_name_no_class() {
    let mut control = running(&with_firewall());
    let why = run(&mut control, "flow add vrf=blue,ip,actions=ct(commit,limit=3)").unwrap_err();
    assert!(why.message.contains("limit=...) is for flows that [firewall] makes"), "{why:?}");
}

#[test]
fn connections_that_new_rules_do_not_allow_fall() {
    let mut control = running(&with_firewall());
    make(&control, &udp("lan", "10.1.0.2", "198.51.100.7", 53));
    make(&control, &udp("lan", "10.1.0.3", "198.51.100.9", 53));
    make(&control, &udp("lan", "10.1.0.3", "198.51.100.9", 123));
    make(&control, &udp("wan", "198.51.100.9", "192.0.2.1", 5000));
    let count = |control: &Control| control.tables().connections().unwrap().counts().connections;
    assert_eq!(count(&control), 4);
    // What changes nothing for them.
    let text = with_firewall().replace("\"tcp/25\"", "\"smtp\", \"dns-over-tls\"");
    reload(&mut control, &text).unwrap();
    assert_eq!(count(&control), 4);
    let other = FIREWALL
        .replace("{ services = [\"tcp/25\"]", "{ services = [\"ntp\"]")
        .replace("udp/5000-5001", "udp/6000");
    let (spec, _) = crate::config::load_firewall("fw.toml", &other).unwrap();
    let reply = handle(&mut control, Request::FirewallReplace(Box::new(spec.unwrap())), NOW);
    let Ok(Reply::FirewallChanged(report)) = reply else { panic!("{reply:?}") };
    assert_eq!((report.fell, report.is_judging), (2, false));
    assert_eq!(count(&control), 2);
    // Other addresses of the port that they were translated to.
    run(&mut control, "addr add 192.0.2.77/24 dev wan").unwrap();
    run(&mut control, "addr del 192.0.2.1/24 dev wan").unwrap();
    assert_eq!(count(&control), 1, "the one that is not translated");
    // A worker with old rules makes one after that: it falls a second later.
    let late = udp("lan", "10.1.0.4", "198.51.100.7", 123);
    make_anyway(&control, &late);
    control.tick(after(0));
    assert_eq!(count(&control), 2);
    control.tick(after(2));
    assert_eq!(count(&control), 1);
    make(&control, &udp("lan", "10.1.0.3", "198.51.100.7", 124));
    assert_eq!(count(&control), 2);
    run(&mut control, "firewall delete").unwrap();
    assert_eq!(count(&control), 0);
    let tables = control.tables();
    assert!(tables.pipeline().entries().all(|entry| entry.owner == Owner::User));
}
