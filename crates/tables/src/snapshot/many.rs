//! That ports and VRFs are found without a look at all of them, and that these are the right ones.

use std::cell::Cell;
use std::collections::BTreeSet;
use std::net::IpAddr;

use proptest::prelude::*;
use types::{IfId, LinkKind, Mac, PortId, ReversePath, Side, VlanId, VlanTag};
use wire::{IpPrefix, VrfId};

use super::{Boundary, FEW_VRFS, Tables};
use crate::port::PortSpec;
use crate::publish::{Publisher, SETTLED};
use crate::route::RouteSpec;
use crate::vlan::Vlan;
use crate::vrf::VrfParsing;

thread_local! {
    static LOOKED_AT: Cell<usize> = const { Cell::new(0) };
}

/// Counts what walks over all ports and all VRFs cost.
pub(super) fn look_at_one() {
    LOOKED_AT.set(LOOKED_AT.get() + 1);
}

/// How many ports and VRFs such walks look at meanwhile.
pub(super) fn looked_at(what: impl FnOnce()) -> usize {
    let before = LOOKED_AT.get();
    what();
    LOOKED_AT.get() - before
}

/// Parents have the numbers below. Those from [`LINKS`] on are xfrm links, those between are VLANs.
const PARENTS: u16 = 3;
const LINKS: u16 = 2000;

fn spec(number: u16, vrf: VrfId) -> PortSpec {
    let tag = number.checked_sub(PARENTS).filter(|_| number < LINKS);
    let tag = tag.map(|tag| VlanTag::customer(VlanId::new(tag + 1).unwrap()));
    let if_id = number.checked_sub(LINKS).and_then(|link| IfId::new(u32::from(link) + 1));
    PortSpec {
        vrf,
        link: if if_id.is_some() { LinkKind::Ip } else { LinkKind::Ethernet },
        vlan: tag.map(|tag| Vlan::new(PortId(number % PARENTS), tag)),
        if_id,
        ..PortSpec::new(
            format!("port{number}"),
            Mac([2, 0, 0, 0, (number >> 8) as u8, number as u8]),
        )
    }
}

fn addressed(spec: PortSpec, address: &str) -> PortSpec {
    PortSpec { addresses: vec![address.parse().unwrap()], ..spec }
}

/// Tenants come, get a port with an address, and go, in another order.
#[test]
fn a_tenant_that_comes_or_goes_takes_no_look_at_the_others() {
    const TENANTS: u16 = 500;
    let mut publisher = Publisher::new(Tables::new(1, 7));
    let change = |publisher: &mut Publisher, change: &dyn Fn(&mut Tables)| {
        let before = publisher.current();
        let mut tables = Tables::clone(&before);
        change(&mut tables);
        publisher.publish(tables);
        let now = publisher.current();
        (now.vrfs_gone_since(&before), now.ports_moved_since(&before))
    };
    change(&mut publisher, &|tables| {
        (0..PARENTS)
            .for_each(|port| tables.add_port(PortId(port), spec(port, VrfId::MAIN)).unwrap());
    });
    let vlan = |tenant: u16| PortId(PARENTS + tenant);
    let name = |tenant: u16| format!("tenant{tenant}");
    let looks = looked_at(|| {
        for tenant in 0..TENANTS {
            change(&mut publisher, &|tables| {
                let vrf = tables.add_vrf(&name(tenant)).unwrap();
                let port = tables.free_port_id(vlan(0)).unwrap();
                assert_eq!(port, vlan(tenant));
                tables.add_port(port, spec(port.0, VrfId::MAIN)).unwrap();
                let in_vrf = addressed(spec(port.0, vrf), "10.0.0.1/24");
                tables.update_port(port, in_vrf).unwrap();
            });
        }
        for tenant in (0..TENANTS).map(|tenant| tenant * 7 % TENANTS) {
            let (gone, moved) = change(&mut publisher, &|tables| {
                let vrf = tables.vrf_named(&name(tenant)).unwrap().id;
                assert!(tables.remove_vrf(vrf).is_err(), "it has a port");
                let port = tables.port_named(&format!("port{}", vlan(tenant).0)).unwrap().id;
                tables.update_port(port, spec(port.0, VrfId::MAIN)).unwrap();
                tables.remove_vrf(vrf).unwrap();
                if tenant % 2 == 0 {
                    tables.remove_port(port).unwrap();
                }
            });
            assert_eq!((gone.len(), moved), (1, BTreeSet::from([vlan(tenant)])));
        }
    });
    assert_eq!(looks, 0);
    let tables = publisher.current();
    assert_eq!(tables.vrfs().count(), 1);
    let left: Vec<_> = tables.ports_of(VrfId::MAIN).map(|port| port.id.0).collect();
    let odd = (1..TENANTS).step_by(2).map(|tenant| vlan(tenant).0);
    assert_eq!(left, (0..PARENTS).chain(odd).collect::<Vec<_>>());
}

/// Two prefixes may end in one address, which stays a broadcast address while one of them is there.
#[test]
fn a_broadcast_address_stays_while_another_port_has_it() {
    let mut tables = Tables::new(1, 7);
    for (port, address) in [(0, "10.0.0.1/24"), (1, "10.0.0.129/25"), (2, "10.0.0.193/26")] {
        tables.add_port(PortId(port), addressed(spec(port, VrfId::MAIN), address)).unwrap();
    }
    let broadcast: IpPrefix = "10.0.0.255/32".parse().unwrap();
    let is_there = |tables: &Tables| tables.vrf(VrfId::MAIN).unwrap().route_of(broadcast).is_some();
    for port in [1, 0] {
        tables.remove_port(PortId(port)).unwrap();
        assert!(is_there(&tables), "another port has it");
    }
    tables.update_port(PortId(2), addressed(spec(2, VrfId::MAIN), "10.0.0.193/27")).unwrap();
    assert!(!is_there(&tables));
}

/// Where VRFs are many, there are spans of routes; who changes routes does without for a moment.
#[test]
fn spans_of_routes_follow_when_things_settle() {
    let prefix = |number: u16| -> IpPrefix { format!("10.0.{number}.0/24").parse().unwrap() };
    let inside = |number: u16| IpAddr::from([10, 0, number as u8, 1]);
    let check = |tables: &Tables, without: &[VrfId]| {
        for vrf in tables.vrfs() {
            for number in 0..4 {
                let kind = vrf.route(inside(number)).map(|route| route.kind);
                assert_eq!(tables.route_kind((vrf.id, vrf), inside(number)), kind);
            }
            let has = vrf.route_count() > 0 && !without.contains(&vrf.id);
            assert_eq!(tables.has_spans(vrf.id, inside(0)), has, "{:?}", vrf.id);
        }
    };
    let blackhole = |tables: &mut Tables, vrf, number| {
        tables.set_route(vrf, prefix(number), RouteSpec::Blackhole).unwrap();
    };
    let add = |tables: &mut Tables, name: usize| {
        let vrf = tables.add_vrf(&format!("vrf{name}")).unwrap();
        blackhole(tables, vrf, 1);
        vrf
    };
    let mut publisher = Publisher::new(Tables::new(1, 7));
    let mut tables = Tables::clone(&publisher.current());
    let few: Vec<_> = (1..FEW_VRFS).map(|name| add(&mut tables, name)).collect();
    publisher.publish(tables);
    let mut tables = Tables::clone(&publisher.current());
    check(&tables, &few);
    let last = add(&mut tables, FEW_VRFS);
    let stranger = tables.clone();
    publisher.publish(tables);
    publisher.settle();
    let mut tables = Tables::clone(&publisher.current());
    check(&tables, &[]);
    // Changes of all kinds.
    blackhole(&mut tables, few[3], 2);
    tables.remove_route(few[4], prefix(1)).unwrap();
    tables.set_route(few[5], prefix(1), RouteSpec::Prohibit).unwrap();
    tables.remove_vrf(few[6]).unwrap();
    tables.remove_vrf(few[7]).unwrap();
    assert_eq!(tables.add_vrf("another"), Ok(few[6]));
    check(&tables, &[few[3], few[5]]);
    publisher.publish(tables);
    check(&publisher.current(), &[few[3], few[5]]);
    // Some that change again meanwhile, and others.
    let mut tables = Tables::clone(&publisher.current());
    blackhole(&mut tables, few[5], 3);
    blackhole(&mut tables, few[200], 3);
    check(&tables, &[few[3], few[5], few[200]]);
    publisher.publish(tables);
    check(&publisher.current(), &[few[3], few[5], few[200]]);
    let before = publisher.current().generation();
    publisher.settle();
    check(&publisher.current(), &[]);
    assert_eq!(publisher.current().changes_since(before).unwrap().count(), 0);
    publisher.settle();
    assert_eq!(publisher.current().generation(), before + 1, "there was nothing to do");
    // One of another history.
    publisher.publish(stranger);
    publisher.settle();
    let tables = publisher.current();
    check(&tables, &[]);
    assert!(tables.has_spans(last, inside(0)) && tables.has_spans(few[7], inside(0)));
}

/// So many at once, and each in its turn, whichever change meanwhile.
#[test]
fn things_settle_step_by_step() {
    let mut tables = Tables::new(1, 7);
    tables.set_few_vrfs(0);
    let names = (0..3 * SETTLED).map(|number| format!("vrf{number}"));
    let vrfs: Vec<_> = names.map(|name| tables.add_vrf(&name).unwrap()).collect();
    let mut publisher = Publisher::new(tables);
    let change = |publisher: &mut Publisher, some: &[VrfId], third: u8| {
        let mut tables = Tables::clone(&publisher.current());
        let prefix: IpPrefix = format!("10.0.{third}.0/24").parse().unwrap();
        for vrf in some {
            tables.set_route(*vrf, prefix, RouteSpec::Blackhole).unwrap();
        }
        publisher.publish(tables);
    };
    let without = |publisher: &Publisher| -> Vec<VrfId> {
        let (tables, address) = (publisher.current(), IpAddr::from([10, 0, 1, 1]));
        vrfs.iter().copied().filter(|vrf| !tables.has_spans(*vrf, address)).collect()
    };
    change(&mut publisher, &vrfs, 0);
    for step in 0..=3 {
        assert_eq!(without(&publisher), vrfs[step * SETTLED..]);
        publisher.settle();
    }
    // The first ones change again and again.
    for third in 1..9 {
        change(&mut publisher, &vrfs[..SETTLED], third);
        if third == 1 {
            change(&mut publisher, &vrfs[2 * SETTLED..], third);
        }
        publisher.settle();
    }
    assert!(without(&publisher).iter().all(|vrf| vrfs[..SETTLED].contains(vrf)));
    publisher.settle();
    assert_eq!(without(&publisher), []);
}

/// Spans are made anew of a family whose routes have changed, and of no other.
#[test]
fn spans_stay_while_no_lookup_finds_another_route() {
    let mut tables = Tables::new(1, 7);
    tables.set_few_vrfs(0);
    let vrf = tables.add_vrf("a").unwrap();
    let into = tables.add_vrf("b").unwrap();
    let prefixes: [IpPrefix; 2] = ["10.3.0.0/24", "fd03::/64"].map(|text| text.parse().unwrap());
    let port = addressed(spec(0, vrf), "10.0.0.1/24");
    tables.add_port(PortId(0), port.clone()).unwrap();
    for prefix in prefixes {
        tables.set_route(vrf, prefix, RouteSpec::Blackhole).unwrap();
    }
    let mut publisher = Publisher::new(tables);
    let mut check = |what: &str, change: &dyn Fn(&mut Tables), stay: [bool; 2]| {
        let before = publisher.current();
        let mut tables = Tables::clone(&before);
        change(&mut tables);
        let has = prefixes.map(|prefix| tables.has_spans(vrf, prefix.address()));
        assert_eq!(has, stay, "{what}");
        publisher.publish(tables);
        let has = prefixes.map(|prefix| publisher.current().has_spans(vrf, prefix.address()));
        assert_eq!(has, stay, "{what}");
        publisher.settle();
        let now = publisher.current();
        let has = prefixes.map(|prefix| now.has_spans(vrf, prefix.address()));
        assert_eq!(has, [true; 2], "{what}");
        let [places, former] = [&now, &before].map(|tables| tables.spans.places(vrf));
        assert_eq!([0, 1].map(|family| places[family] == former[family]), stay, "{what}");
    };
    for (family, prefix) in prefixes.into_iter().enumerate() {
        let stay = [family != 0, family != 1];
        let set = |spec: RouteSpec| {
            move |tables: &mut Tables| tables.set_route(vrf, prefix, spec.clone()).unwrap()
        };
        check("another route", &set(RouteSpec::Prohibit), stay);
        check("the same route", &set(RouteSpec::Prohibit), [true; 2]);
        check("a leak", &set(RouteSpec::Vrf { vrf: into }), stay);
        let remove = |tables: &mut Tables| _ = tables.remove_route(vrf, prefix).unwrap();
        let add = |tables: &mut Tables| {
            let longer = IpPrefix::new(prefix.address(), prefix.length() + 1).unwrap();
            tables.set_route(vrf, longer, RouteSpec::Blackhole).unwrap();
        };
        check("one more", &add, stay);
        check("one less", &remove, stay);
    }
    let source = |tables: &mut Tables| {
        let own = "10.0.0.1".parse().unwrap();
        tables.set_route_source(vrf, prefixes[0], Some(own)).unwrap();
    };
    check("a source", &source, [true; 2]);
    let add = |tables: &mut Tables| tables.add_port(PortId(1), spec(1, vrf)).unwrap();
    check("a port without an address", &add, [true; 2]);
    let down = PortSpec { up: false, ..port.clone() };
    check("a port down", &|tables| tables.update_port(PortId(0), down.clone()).unwrap(), [true; 2]);
    let moved = addressed(port.clone(), "10.0.1.1/24");
    let address = |tables: &mut Tables| tables.update_port(PortId(0), moved.clone()).unwrap();
    check("another address", &address, [false, true]);
    check("a port less", &|tables| tables.remove_port(PortId(1)).unwrap(), [true; 2]);
    check("an address less", &|tables| tables.remove_port(PortId(0)).unwrap(), [false, true]);
    let elsewhere = |tables: &mut Tables| {
        tables.set_route(into, prefixes[0], RouteSpec::Blackhole).unwrap();
        tables.remove_vrf(into).unwrap();
    };
    check("another VRF", &elsewhere, [true; 2]);
    assert_eq!(publisher.current().spans.places(into), [None; 2], "no spans without a VRF");
}

#[derive(Clone, Debug)]
enum Step {
    AddVrf(u8),
    RemoveVrf(u16),
    /// Adds it or changes it: in which VRF, called as another one is, on which side, checking sources.
    Port(u16, u16, bool, Side, bool),
    RemovePort(u16),
    Publish,
    /// A copy of what was published first, which has another history.
    PublishStranger,
}

fn step() -> impl Strategy<Value = Step> {
    let port = || prop_oneof![0..PARENTS + 6, LINKS..LINKS + 3];
    let side = prop::sample::select(vec![Side::Unset, Side::Protected, Side::Unprotected]);
    prop_oneof![
        3 => (0..6_u8).prop_map(Step::AddVrf),
        2 => (0..6_u16).prop_map(Step::RemoveVrf),
        8 => (port(), 0..6_u16, prop::bool::weighted(0.2), side, any::<bool>())
            .prop_map(|(port, vrf, other, side, rpf)| Step::Port(port, vrf, other, side, rpf)),
        2 => port().prop_map(Step::RemovePort),
        3 => Just(Step::Publish),
        1 => Just(Step::PublishStranger),
    ]
}

/// All that is found by what is kept up, beside what a look at everything finds.
fn check(tables: &Tables) {
    let name = |port: &PortId| tables.port(*port).map(|port| port.spec.name.to_string());
    for port in tables.ports() {
        let alike = tables.ports().find(|other| other.spec.name == port.spec.name);
        assert_eq!(tables.port_named(&port.spec.name).map(|it| it.id), alike.map(|it| it.id));
    }
    assert!(tables.port_named("none").is_none() && tables.vrf_named("none").is_none());
    for vrf in tables.vrfs() {
        assert_eq!(tables.vrf_named(&vrf.name).map(|it| it.id), Some(vrf.id));
        let of_vrf: Vec<_> = tables.ports_of(vrf.id).map(|port| port.id).collect();
        let slowly = tables.ports().filter(|port| port.spec.vrf == vrf.id).map(|port| port.id);
        assert_eq!(of_vrf, slowly.collect::<Vec<_>>());
    }
    assert_eq!(tables.port_count(), tables.ports().count());
    let queues = tables.ports().filter(|port| port.spec.has_queues()).count();
    assert_eq!(tables.port_counts[0], queues);
    for first in [0, PARENTS, LINKS].map(PortId) {
        let free = (first.0..=u16::MAX).map(PortId).find(|id| name(id).is_none());
        assert_eq!(tables.free_port_id(first), free);
    }
    let protected = tables.ports().filter(|port| port.side == Side::Protected).count();
    assert_eq!(tables.has_protected_ports(), protected > 0);
    for id in (0..PARENTS + 8).chain(LINKS..LINKS + 4).map(PortId) {
        let of = |port: &crate::port::Port| Boundary {
            side: port.side,
            judges_sources: port.spec.reverse_path != ReversePath::Off
                || port.side == Side::Unprotected && protected > 0,
        };
        assert_eq!(tables.boundary(id), tables.port(id).map(of).unwrap_or_default());
    }
}

/// What a publication says is gone or elsewhere, beside what a look at everything finds.
fn check_published(tables: &Tables, before: &Tables) {
    for id in (0..8).map(VrfId) {
        let parsing = tables.vrf(id).map(VrfParsing::of).unwrap_or_default();
        assert_eq!(tables.parsing(id), parsing);
    }
    let since = |tables: &Tables, vrf| tables.vrf(vrf).map(|vrf| vrf.since);
    let is_other = |vrf| since(tables, vrf) != since(before, vrf);
    let has_parted = tables.parted > before.generation;
    let gone = before.vrfs().map(|vrf| vrf.id).filter(|vrf| has_parted && is_other(*vrf));
    assert_eq!(tables.vrfs_gone_since(before), gone.collect());
    let moved = before.ports().filter(|old| {
        let is = tables.port(old.id).map(|port| (port.spec.vrf, port.spec.vlan));
        has_parted && (is != Some((old.spec.vrf, old.spec.vlan)) || is_other(old.spec.vrf))
    });
    assert_eq!(tables.ports_moved_since(before), moved.map(|port| port.id).collect());
}

proptest! {
    #![proptest_config(ProptestConfig::with_cases(128))]
    /// Steps that are refused change nothing.
    #[test]
    fn what_is_found_is_what_a_look_at_all_finds(
        steps in prop::collection::vec(step(), 1..80),
    ) {
        let mut publisher = Publisher::new(Tables::new(1, 7));
        let stranger = publisher.current();
        let mut tables = Tables::clone(&stranger);
        for step in steps {
            match step {
                Step::AddVrf(vrf) => _ = tables.add_vrf(&format!("vrf{vrf}")),
                Step::RemoveVrf(vrf) => _ = tables.remove_vrf(VrfId(vrf)),
                Step::Port(number, vrf, is_alike, side, judges) => {
                    let mut spec = PortSpec { side, ..spec(number, VrfId(vrf)) };
                    if is_alike {
                        spec.name = "port0".into();
                    }
                    if judges {
                        spec.reverse_path = ReversePath::Strict;
                    }
                    let id = PortId(number);
                    _ = match tables.port(id).is_some() {
                        true => tables.update_port(id, spec),
                        false => tables.add_port(id, spec),
                    };
                }
                Step::RemovePort(number) => _ = tables.remove_port(PortId(number)),
                Step::Publish | Step::PublishStranger => {
                    let before = publisher.current();
                    let next = match step {
                        Step::Publish => tables,
                        _ => Tables::clone(&stranger),
                    };
                    publisher.publish(next);
                    tables = Tables::clone(&publisher.current());
                    check_published(&tables, &before);
                }
            }
            check(&tables);
        }
    }
}
