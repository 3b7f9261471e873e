//! Packets through the flows of the firewall, and connections that are judged by it.

use std::net::IpAddr;

use ::conntrack::nat::Lease;
use ::conntrack::{CtState, New, Packet as Tracked, Tuple};
use pipeline::{
    CtFields, DropReason, Exit, Fields, FlowId, NatEnd, NatNew, NatSpec, Owner, To, Track,
};
use proptest::prelude::*;
use types::{
    Addresses, FlowKey, FragmentClass, Origin, PacketFields, PortId, Protocol, RejectWith, SaSlot,
    Upper, VrfId,
};

use super::firewall::{FIREWALL, MGMT, SITE, firewall_flows, with_firewall};
use super::*;
use crate::firewall::{Cookie, Seen};

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
    Addresses::new(source, destination).expect("of one family")
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
    assert_eq!(label >> 32 & 1, 1, "the firewall says that it made it");
    let nat = |end| through.nat.iter().rfind(|new| new.end == end && new.addresses.is_some());
    let forwarded = nat(NatEnd::Destination).map(|new| {
        let port = new.ports.map_or(packet.port, |(first, _)| first);
        (new.addresses.unwrap().first(), port)
    });
    let translated = nat(NatEnd::Source)
        .map(|new| (new.addresses.unwrap().last(), new.ports.map_or(40_000, |(_, last)| last)));
    // The addresses of ports, and not those that are said.
    let borrowed = ["192.0.2.1", "10.3.0.1", "10.1.0.1"];
    let is_borrowed = translated.is_some_and(|(it, _)| borrowed.contains(&&*it.to_string()));
    assert_eq!(label >> 33 == 1, is_borrowed, "and whose address its source has");
    Seen {
        ports: [label as u16, (label >> 16) as u16],
        source: packet.source,
        destination: packet.destination,
        protocol: Protocol(packet.protocol),
        port: packet.port,
        forwarded,
        translated,
        is_borrowed: label >> 33 & 1 == 1,
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
                if seen.translated.is_some() {
                    let other = Seen { is_borrowed: !seen.is_borrowed, ..seen };
                    prop_assert!(!is.firewall.allows(vrf, &other), "{other:?}");
                }
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
            for translated in ["192.0.2.1", "203.0.113.8", "10.3.0.1"] {
                for translated in [None, Some((translated.parse().unwrap(), 2_500))] {
                    let seen = Seen {
                        ports: [come, out],
                        source: packet.source,
                        destination: packet.destination,
                        protocol: Protocol(packet.protocol),
                        port: packet.port,
                        forwarded: None,
                        translated,
                        is_borrowed: translated.is_some(),
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
        is_borrowed: false,
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
    let new = New { label, ..New::plain(0, original) };
    let mut to = original;
    if let Some((address, port)) = seen.forwarded {
        to = to.with_destination(address, port).unwrap();
    }
    if let Some((address, _)) = seen.translated {
        to = to.with_source(address, 40_000).unwrap();
    }
    let packet = (&Tracked::Datagram, 100);
    table.commit_translated(&new, &Lease::of(to), packet, NOW, &mut |_| {}).unwrap();
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
    assert!(
        nat.contains(
            "ct(commit,anew,owner=0xffff,limit=NXM_NX_REG0[0..15],nat(src=192.0.2.1,twice)"
        ),
        "{nat}"
    );
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
