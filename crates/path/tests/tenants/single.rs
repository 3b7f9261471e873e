//! What the law is about, one by one: each is seen to happen, or not to.

use packet::DropReason;
use tables::FilterHook;

use crate::model::{Into, LAN_PLACE, Target};
use crate::packets::{Sending, To, What};
use crate::world::{NewFrom, NewInto, NewLeak, Step, Verdict, World};

/// Ports of the first VRF, with sites 1 and 2.
const FIRST: [usize; 2] = [2, 5];
/// Ports of the second one, with sites 1 and 2.
const SECOND: [usize; 2] = [3, 4];
/// A port of the third one, with site 1, and a link with site 4.
const THIRD: [usize; 2] = [7, 12];
/// A port of main with site 1, and a link with site 4.
const MAIN: [usize; 2] = [6, 13];
const FAMILIES: [bool; 2] = [false, true];

fn sends(place: usize, is_v6: bool, what: What, to: To) -> Step {
    let (length, may_be_cut, is_last_hop) = (64, true, false);
    Step::Batch(vec![Sending { place, is_v6, what, to, length, may_be_cut, is_last_hop }])
}

/// A datagram to the station of a site.
fn udp(place: usize, is_v6: bool, site: u8) -> Step {
    sends(place, is_v6, What::Udp, To::Station(site))
}

/// All to a site of the second VRF, and everything else by other numbers.
fn leak(is_rule: bool, from: u16, into: NewInto, is_v6: bool, number: u8) -> Step {
    let (rule, from) = (is_rule.then_some(500), NewFrom::Vrf(from));
    Step::Leak(NewLeak { rule, from, into, prefix: (is_v6, number) })
}

fn take(world: &mut World, steps: impl IntoIterator<Item = Step>) {
    for step in steps {
        world.take(&step);
        world.judge().unwrap();
    }
}

fn moves(place: usize, vrf: u16, site: u8) -> Step {
    Step::Move(place, vrf, site, 1500)
}

/// A route into the second VRF, a rule, and a route by one of its ports, for site 2.
fn leaks(is_v6: bool) -> [Step; 3] {
    [
        leak(false, 1, NewInto::Vrf(2), is_v6, 4),
        leak(true, 1, NewInto::Vrf(2), is_v6, 4),
        leak(false, 1, NewInto::Port(SECOND[1]), is_v6, 4),
    ]
}

#[test]
fn a_sender_goes_with_its_vrf() {
    for is_v6 in FAMILIES {
        let mut world = World::new();
        take(&mut world, [leak(true, 3, NewInto::Vrf(0), is_v6, 0), udp(THIRD[1], is_v6, 1)]);
        assert_eq!(world.gateway.worker.held(), 1);
        take(&mut world, [Step::Remake(3), moves(THIRD[1], 3, 4)]);
        take(&mut world, [Step::Wait(1000), Step::Wait(1000), Step::Wait(1000)]);
        assert_eq!((world.tally.answers, world.gateway.worker.held()), (0, 0));
        world.gateway.assert_nothing_lost();
    }
}

#[test]
fn something_leads_from_one_tenant_to_another() {
    for is_v6 in FAMILIES {
        for new in leaks(is_v6) {
            let mut world = World::new();
            // Nothing leads back, so site 1 of the second VRF is another one.
            let there = [new.clone(), Step::Resolve(SECOND[1]), udp(FIRST[0], is_v6, 2)];
            take(&mut world, there);
            assert_eq!((world.tally.forwarded, world.tally.leaked), (1, 1), "{new:?}");
            // The hop limit ends, and the sender is told, in its own VRF.
            let Step::Batch(mut last) = udp(FIRST[0], is_v6, 2) else { panic!() };
            last[0].is_last_hop = true;
            take(&mut world, [Step::Resolve(FIRST[0]), Step::Batch(last)]);
            assert_eq!((world.tally.answers, world.tally.leaked_answers), (1, 0), "{new:?}");
            // The first VRF goes, and what leads from it.
            take(&mut world, [Step::Remake(1), moves(FIRST[0], 1, 1), udp(FIRST[0], is_v6, 2)]);
            assert_eq!(world.tally.leaked, 1, "{new:?}");
            world.gateway.assert_nothing_lost();
        }
    }
}

/// What is too large for the other side of a leak is cut, or its sender is told, though nothing leads
/// back.
#[test]
fn what_is_too_large_across_a_leak_is_cut_or_told() {
    for is_v6 in FAMILIES {
        for new in leaks(is_v6) {
            let mut world = World::new();
            let narrow = Step::Move(SECOND[1], 2, 2, 1400);
            take(&mut world, [narrow, new, Step::Resolve(SECOND[1]), Step::Resolve(FIRST[0])]);
            for may_be_cut in [true, false] {
                let Step::Batch(mut large) = udp(FIRST[0], is_v6, 2) else { panic!() };
                (large[0].length, large[0].may_be_cut) = (1440, may_be_cut);
                take(&mut world, [Step::Batch(large)]);
            }
            let tally = world.tally;
            let wanted = if is_v6 { (0, 2) } else { (2, 1) };
            assert_eq!((tally.fragments, tally.answers), wanted);
            assert_eq!((tally.leaked, tally.leaked_answers), (tally.forwarded, 0));
            world.gateway.assert_nothing_lost();
        }
    }
}

#[test]
fn a_route_does_not_follow_a_port_or_a_number() {
    for is_v6 in FAMILIES {
        for new in [leaks(is_v6)[0].clone(), leaks(is_v6)[2].clone()] {
            let mut world = World::new();
            // The first VRF has no site 2 of its own. The second VRF is another one now, with the same
            // port.
            let again = [Step::Remake(2), moves(SECOND[1], 2, 2), Step::Resolve(SECOND[1])];
            take(&mut world, [moves(FIRST[1], 0, 2), new].into_iter().chain(again));
            assert!(world.config.leaks.iter().all(|leak| !matches!(leak.into, Into::Port(..))));
            take(&mut world, [udp(FIRST[0], is_v6, 2)]);
            assert_eq!(world.tally.leaked, 0);
            assert_eq!(world.gateway.dropped(DropReason::NoRoute), 1);
            world.gateway.assert_nothing_lost();
        }
    }
}

#[test]
fn what_waits_does_not_move_along() {
    for is_v6 in FAMILIES {
        let mut world = World::new();
        take(&mut world, [udp(FIRST[0], is_v6, 2), moves(SECOND[1], 0, 0), moves(FIRST[1], 2, 2)]);
        take(&mut world, [Step::Resolve(FIRST[1]), Step::Wait(1000)]);
        assert_eq!(world.tally.forwarded, 0);
        take(&mut world, [moves(FIRST[1], 1, 2), Step::Resolve(FIRST[1]), udp(FIRST[0], is_v6, 2)]);
        assert_eq!(world.tally.forwarded, 1, "and what comes then passes");
        world.gateway.assert_nothing_lost();
    }
}

#[test]
fn halves_of_two_tenants_are_no_datagram() {
    for is_v6 in FAMILIES {
        let half = |is_first| sends(FIRST[0], is_v6, What::Half(is_first), To::Gateway(1));
        let mut world = World::new();
        take(&mut world, [Step::Resolve(FIRST[0]), half(true), half(false)]);
        assert_eq!(world.tally.answers, 2, "with two stamps: {:?}", world.gateway.drops());
        // The same from another VRF is another datagram.
        let other = sends(SECOND[0], is_v6, What::Half(false), To::Gateway(1));
        take(&mut world, [half(true), other]);
        assert_eq!((world.tally.answers, world.gateway.worker.held()), (2, 2));
        // And so it is if a VRF gets the number.
        take(&mut world, [Step::Remake(1), moves(FIRST[0], 1, 1), half(false)]);
        assert_eq!((world.tally.answers, world.gateway.worker.held()), (2, 2));
        world.gateway.assert_nothing_lost();
    }
}

/// Tunnels with the same ends, one of each link.
#[test]
fn a_tunnel_belongs_to_the_vrf_of_its_link() {
    for is_v6 in FAMILIES {
        let mut world = World::new();
        take(&mut world, [THIRD[0], FIRST[0]].map(Step::Resolve));
        take(&mut world, [udp(THIRD[0], is_v6, 4), udp(FIRST[0], is_v6, 4)]);
        assert_eq!((world.tally.sealed, world.tally.answers), (1, 1), "one has no way");
        take(&mut world, [udp(THIRD[1], is_v6, 1), udp(MAIN[1], is_v6, 1)]);
        assert_eq!(world.tally.opened, 1, "main's waits: {:?}", world.gateway.drops());
        // The link is another tenant's, at once and in both ways.
        take(&mut world, [moves(THIRD[1], 1, 4), udp(FIRST[0], is_v6, 4), udp(THIRD[1], is_v6, 1)]);
        assert_eq!((world.tally.sealed, world.tally.opened), (2, 2));
        assert_eq!(world.tally.leaked, 0);
    }
}

/// Tunnels with the same ends, SPIs and keys, one of each VRF.
#[test]
fn a_tunnel_belongs_to_its_vrf() {
    for is_v6 in FAMILIES {
        let mut world = World::new();
        let ports = [FIRST[0], SECOND[0], THIRD[0]];
        take(&mut world, ports.map(Step::Resolve));
        for place in ports {
            take(&mut world, [sends(place, is_v6, What::Udp, To::Remote)]);
            take(&mut world, [sends(place, is_v6, What::Sealed, To::Station(1))]);
        }
        assert_eq!((world.tally.sealed, world.tally.opened), (3, 3));
        // One that is not there any more is nobody else's.
        take(&mut world, [Step::Tunnel(1, false), sends(2, is_v6, What::Sealed, To::Station(1))]);
        assert_eq!(world.tally.opened, 3);
        assert_eq!(world.gateway.dropped(DropReason::EspNoSa), 1, "{:?}", world.gateway.drops());
        world.gateway.assert_nothing_lost();
    }
}

/// What waits in the queue of a port leaves by it, and by no other that gets its number.
#[test]
fn what_is_queued_leaves_by_its_port_or_not_at_all() {
    // A VLAN of a VLAN of the LAN, in the first VRF, and one of the WAN.
    let (port, other) = (8, 9);
    for is_v6 in FAMILIES {
        for is_deleted in [false, true] {
            let mut world = World::new();
            take(&mut world, [Step::Delete(other), Step::Resolve(port)]);
            take(&mut world, [Step::Queue(Target::Vrf(1), true)]);
            for _ in 0..4 {
                let Step::Batch(mut large) = udp(FIRST[0], is_v6, 3) else { panic!() };
                large[0].length = 1400;
                take(&mut world, [Step::Batch(large)]);
            }
            assert_eq!((world.tally.forwarded, world.gateway.worker.held()), (2, 2));
            match is_deleted {
                false => take(&mut world, [moves(port, 3, 0)]),
                true => {
                    let id = world.ids[port];
                    take(&mut world, [Step::Delete(port), Step::Create(other, 1, 4)]);
                    assert_eq!(world.ids[other], id, "it has the number");
                }
            }
            take(&mut world, [Step::Wait(1000), Step::Wait(1000)]);
            assert_eq!((world.tally.late, world.gateway.worker.held()), (0, 0));
            assert_eq!(world.gateway.dropped(DropReason::QdiscFlushed), 2);
            world.gateway.assert_nothing_lost();
        }
    }
}

/// Filters before routing are those of where a packet came, filters after it those of where it leaves.
#[test]
fn a_leaked_packet_meets_the_filters_of_both_sides() {
    let (ingress, egress) = (FilterHook::Ingress, FilterHook::Egress);
    let places = [
        (Target::Vrf(1), ingress, true),
        (Target::Port(FIRST[0]), ingress, true),
        (Target::Vrf(2), egress, true),
        (Target::Port(SECOND[1]), egress, true),
        (Target::Vrf(2), ingress, false),
        (Target::Vrf(1), egress, false),
        (Target::Port(LAN_PLACE), ingress, false),
    ];
    for is_v6 in FAMILIES {
        for new in leaks(is_v6) {
            for (target, hook, is_met) in places {
                let mut world = World::new();
                let filter = Step::Filter(target, hook, is_v6, Some(Verdict::Drop));
                let send = udp(FIRST[0], is_v6, 2);
                take(&mut world, [new.clone(), Step::Resolve(SECOND[1]), send.clone()]);
                take(&mut world, [filter, send]);
                let leaked = if is_met { 1 } else { 2 };
                assert_eq!(world.tally.leaked, leaked, "{target:?} {hook:?}");
            }
        }
    }
}
