//! Changes that chance brings about too seldom: each alters what becomes of packets whose flow is
//! known.

use tables::{DefaultAction, Direction, RouteSpec, SaIdentity, SaSpec};
use wire::{PortId, Spi, VrfId};

use crate::packets::{Peers, Sending};
use crate::twin::Twin;
use crate::world::{ALGORITHMS, World};
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
