//! Changes that chance brings about too seldom: each alters what becomes of packets whose flow is
//! known.

use tables::{
    DefaultAction, Direction, FilterTarget, RouteSpec, SaIdentity, SaSpec, TapPoints, TapSpec,
};
use wire::{PortId, Spi, VrfId};

use crate::packets::{Peers, Sending};
use crate::twin::Twin;
use crate::world::{ALGORITHMS, Act, World};
use crate::{KINDS, cached, reference};

const ME: &str = "10.2.0.1";
const PEER: &str = "10.2.0.9";

fn sa(source: &str, destination: &str, reqid: u32, spi: u32) -> SaSpec {
    let (source, destination) = (source.parse().unwrap(), destination.parse().unwrap());
    let identity = SaIdentity {
        vrf: VrfId::MAIN,
        inner: VrfId::MAIN,
        if_id: None,
        source,
        destination,
        reqid,
    };
    SaSpec { identity, spi: Spi(spi), no_ecn: false, no_pmtu_discovery: false }
}

/// Sends a packet twice, changes something, and sends it twice again: without a cache the packet
/// fares otherwise then, and with any it fares as without.
fn fares_otherwise(packet: &Sending, before: impl Fn(&mut World), change: impl Fn(&mut World)) {
    let run = |twin: &mut Twin| {
        let mut peers = Peers::default();
        let mut send = |twin: &mut Twin| {
            let packets = packet.packets(&mut peers).into_iter().map(|bytes| (packet.port, bytes));
            twin.receive(0, &packets.collect::<Vec<_>>())
        };
        twin.change(&before);
        let first = [send(twin), send(twin)];
        twin.change(&change);
        [first, [send(twin), send(twin)]]
    };
    let wanted = run(&mut reference());
    assert_ne!(wanted[0][1].frames(), wanted[1][1].frames(), "nothing changed");
    for kind in KINDS {
        let seen = run(&mut cached(kind));
        for (wanted, seen) in wanted.iter().flatten().zip(seen.iter().flatten()) {
            assert_eq!(wanted.difference(seen), None, "{kind}");
        }
    }
}

#[test]
fn the_sa_goes_that_an_inbound_template_names_and_another_stays_in_its_slot() {
    let packet = Sending::udp(PortId(1), "fd03::5", "fd01::5", 20).sealed(PEER, ME, 302);
    let both = |world: &mut World| world.add_sa(sa(PEER, ME, 1, 302), ALGORITHMS[0]);
    let one = |world: &mut World| {
        _ = world.tables.remove_sa(VrfId::MAIN, ME.parse().unwrap(), Spi(301)).unwrap();
    };
    fares_otherwise(&packet, both, one);
}

#[test]
fn a_newer_sa_leaves_less_room() {
    // As large as it may be with the first algorithm.
    let largest = (1300..1472).rev().find(|payload| {
        let packet = Sending::udp(PortId(0), "10.1.0.5", "10.3.0.5", *payload);
        let bytes: Vec<_> = packet
            .packets(&mut Peers::default())
            .into_iter()
            .map(|bytes| (PortId(0), bytes))
            .collect();
        !reference().receive(0, &bytes).frames()[1].is_empty()
    });
    let packet = Sending::udp(PortId(0), "10.1.0.5", "10.3.0.5", largest.unwrap());
    fares_otherwise(&packet, |_| {}, |world| world.add_sa(sa(ME, PEER, 1, 303), ALGORITHMS[1]));
}

#[test]
fn a_template_for_any_sa_gets_one_of_another_slot() {
    let packet = Sending::udp(PortId(0), "fd01::5", "fd03::5", 20);
    fares_otherwise(&packet, |_| {}, |world| world.add_sa(sa(ME, PEER, 2, 303), ALGORITHMS[0]));
}

#[test]
fn the_way_to_the_tunnels_end_is_another() {
    let packet = Sending::udp(PortId(0), "10.1.0.5", "10.3.0.5", 20);
    let away = |world: &mut World| {
        world
            .tables
            .set_route(VrfId::MAIN, "10.2.0.9/32".parse().unwrap(), RouteSpec::Blackhole)
            .unwrap();
    };
    fares_otherwise(&packet, |_| {}, away);
}

#[test]
fn the_tunnels_next_hop_is_elsewhere() {
    let packet = Sending::udp(PortId(0), "10.1.0.5", "10.3.0.5", 20);
    let elsewhere = |world: &mut World| {
        world
            .tables
            .set_neighbour(PortId(1), PEER.parse().unwrap(), wire::Mac([2, 9, 9, 9, 9, 9]))
            .unwrap();
    };
    fares_otherwise(&packet, |_| {}, elsewhere);
}

/// A tap has copies of what was decided a moment ago and of what was found, with the same words.
#[test]
fn taps_see_the_same() {
    let here = Sending::udp(PortId(0), "10.1.0.5", "10.3.0.5", 20);
    let nowhere = Sending::udp(PortId(0), "10.1.0.5", "203.0.113.9", 20);
    let run = |twin: &mut Twin| {
        let points = TapPoints { ingress: true, egress: true, drop: true };
        let target = FilterTarget::Vrf(VrfId::MAIN);
        let spec = TapSpec { id: 1, target, points, snaplen: 96, rate: None, program: None };
        twin.change(|world| world.tables.add_tap(spec).unwrap());
        let mut peers = Peers::default();
        let packets = [&here, &nowhere, &here].map(|packet| packet.packets(&mut peers)).concat();
        let packets: Vec<_> = packets.into_iter().map(|bytes| (PortId(0), bytes)).collect();
        [twin.receive(0, &packets), twin.receive(0, &packets)]
    };
    let wanted = run(&mut reference());
    for seen in &wanted {
        assert!(seen.copies.len() >= 6, "each as it came, and as it leaves or is dropped");
    }
    for kind in KINDS {
        for (wanted, seen) in wanted.iter().zip(run(&mut cached(kind))) {
            assert_eq!(wanted.difference(&seen), None, "{kind}");
        }
    }
}

/// What the gateway itself sends comes by no port and from no SA: its VRF alone tells whose it is.
#[test]
fn the_gateway_answers_the_same_station_in_two_vrfs() {
    let run = |twin: &mut Twin| {
        let mut peers = Peers::default();
        let mut seen = Vec::new();
        for port in [0, 2, 0, 2] {
            let packets = Sending::echo(PortId(port), "10.1.0.5", "10.2.0.1").packets(&mut peers);
            seen.push(twin.receive(
                0,
                &packets.into_iter().map(|bytes| (PortId(port), bytes)).collect::<Vec<_>>(),
            ));
        }
        seen
    };
    let open = |world: &mut World| {
        let main = VrfId::MAIN;
        for direction in Direction::ALL {
            world.tables.set_default_action(main, direction, DefaultAction::Accept).unwrap();
        }
    };
    let mut reference = reference();
    reference.change(open);
    let wanted = run(&mut reference);
    for (port, seen) in [0, 2, 0, 2].into_iter().zip(&wanted) {
        assert_eq!(seen.frames()[port].len(), 1, "an answer by the port that was asked");
    }
    for kind in KINDS {
        let mut twin = cached(kind);
        twin.change(open);
        for (wanted, seen) in wanted.iter().zip(run(&mut twin)) {
            assert_eq!(wanted.difference(&seen), None, "{kind}");
        }
    }
}

/// The table is full, and what was decided of the batch's second SYN is that it opens a connection, which
/// the first has opened by then: nobody makes room for that. Where the decision was found, and is
/// stale, it is made anew.
#[test]
fn nobody_goes_for_a_connection_that_is_there() {
    let (a, b) = (PortId(2), PortId(3));
    let udp = |port, from: &str, to: &str, number| {
        Sending::udp(port, from, to, 20).with_ports(53, number)
    };
    let (out, syn) =
        (udp(a, "10.1.0.5", "10.3.0.5", 53), Sending::tcp(b, "10.2.0.8", "10.1.0.6", 2));
    let (reset, back) =
        (Sending::tcp(b, "10.2.0.8", "10.1.0.6", 4), |to, number| udp(b, "10.2.0.9", to, number));
    let other = udp(b, "10.2.0.8", "10.1.0.6", 53);
    let first = [back("10.1.0.5", 53)];
    let fill = [out.clone(), out.clone(), syn.clone(), other, back("10.1.0.5", 53), reset];
    let last = [back("10.1.0.5", 1000), syn.clone(), syn, out];
    let run = |twin: &mut Twin| {
        twin.publish(&[Act::SetFlows(VrfId(1), 12)]);
        let mut peers = Peers::default();
        let batches = [Some(&first[..]), None, Some(&fill), Some(&last)];
        batches.map(|batch| {
            let sent = |one: &Sending| {
                let packets = one.packets(&mut peers).into_iter();
                packets.map(|packet| (one.port, packet)).collect::<Vec<_>>()
            };
            let packets = match batch {
                Some(batch) => batch.iter().flat_map(sent).collect(),
                None => peers.answers(),
            };
            let seen = twin.receive(0, &packets);
            peers.told = seen.frames().to_vec();
            seen
        })
    };
    let wanted = run(&mut reference());
    for kind in KINDS {
        for (wanted, seen) in wanted.iter().zip(run(&mut cached(kind))) {
            assert_eq!(wanted.difference(&seen), None, "{kind}");
        }
    }
}
