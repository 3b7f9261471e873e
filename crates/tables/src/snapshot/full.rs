//! Tests: tables that hold millions, with the limits of this crate's own tests. Those of the others
//! are in `tests/full.rs`.

use std::net::{IpAddr, Ipv4Addr};

use esp::{Algorithm, InboundSa, KeyMaterial, OutboundSa, WindowSize};
use rand::SeedableRng;
use rand::rngs::StdRng;
use types::{FilterVerdict, Mac, MarkBits, RejectWith};
use wire::{IpPrefix, PortId, Spi, VrfId};

use super::Tables;
use crate::error::TableError;
use crate::filter::{FilterAction, FilterMatch, FilterPlace, FilterSpec, FilterTarget};
use crate::limit::{MAX_FILTERS, MAX_NEXT_HOPS, MAX_POLICIES, MAX_ROUTES, MAX_SAS};
use crate::policy::{
    Action, Direction, FieldsSelector, PolicySpec, Selector, Template, UpperSelector,
};
use crate::port::PortSpec;
use crate::route::{MemberSpec, RouteSpec};
use crate::routing_table::TableRef;
use crate::sad::{SaIdentity, SaSpec};

const MAIN: VrfId = VrfId::MAIN;
const PORT: PortId = PortId(0);

fn prefix(text: &str) -> IpPrefix {
    text.parse().unwrap()
}

fn port(name: &str, addresses: &[&str]) -> PortSpec {
    PortSpec {
        addresses: addresses.iter().map(|address| prefix(address)).collect(),
        ..PortSpec::new(name, Mac([2, 0, 0, 0, 0, 1]))
    }
}

/// A port with a wide link.
fn tables() -> Tables {
    let mut tables = Tables::new(1, 7);
    tables.add_port(PORT, port("port0", &["10.0.0.1/8"])).unwrap();
    tables
}

/// Number N of the link's stations.
fn station(number: usize) -> IpAddr {
    Ipv4Addr::from_bits(0x0a01_0000 + number as u32).into()
}

/// Number N of the prefixes that are on no link.
fn remote(number: usize) -> IpPrefix {
    IpPrefix::new(Ipv4Addr::from_bits((0x1400_0000 + number as u32) << 4 & !15).into(), 28).unwrap()
}

fn selector(number: usize) -> Selector {
    Selector {
        source: remote(number).range(),
        destination: "0.0.0.0/0".parse().unwrap(),
        protocol: None,
        upper: UpperSelector::Any,
        fields: FieldsSelector::ANY,
    }
}

/// What there is, so that a refusal which leaves something behind is found out.
fn counts(tables: &Tables) -> [usize; 8] {
    [
        tables.ports().count(),
        tables.next_hop_count(),
        tables.routing_table(TableRef::Vrf(MAIN)).unwrap().route_count(),
        tables.loose_tables().count(),
        tables.policies.len(),
        tables.sad().len(),
        tables.filters().count(),
        tables.port(PORT).unwrap().neighbours.all().count(),
    ]
}

/// One more is refused as too many of `what`, in these words, and leaves the tables as they are.
#[track_caller]
fn refused<T: core::fmt::Debug>(
    tables: &mut Tables,
    (what, limit): (&'static str, usize),
    one_more: impl FnOnce(&mut Tables) -> Result<T, TableError>,
) {
    let before = (counts(tables), format!("{tables:?}"));
    let error = one_more(tables).unwrap_err();
    assert_eq!(error, TableError::Limit { what, limit });
    let text = error.to_string();
    assert!(text.contains(what) && text.contains(&limit.to_string()), "{text}");
    assert!((counts(tables), format!("{tables:?}")) == before, "something has changed");
}

#[test]
fn routes_of_a_table() {
    let mut tables = tables();
    let full = ("routes of a table", MAX_ROUTES);
    let of_port = tables.routing_table(TableRef::Vrf(MAIN)).unwrap().route_count();
    for number in of_port..MAX_ROUTES {
        tables.set_route(MAIN, remote(number), RouteSpec::Blackhole).unwrap();
    }
    let via = |number| RouteSpec::Via { port: PORT, address: station(number) };
    // With a next hop that is not there yet, and one that would be.
    refused(&mut tables, full, |tables| tables.set_route(MAIN, remote(0), via(1)));
    refused(&mut tables, full, |tables| tables.set_route(MAIN, remote(0), RouteSpec::Prohibit));
    // With those of a port, by a new one and by a new address.
    let more = port("port1", &["172.16.0.1/16"]);
    refused(&mut tables, full, |tables| tables.add_port(PortId(1), more));
    let more = port("port0", &["10.0.0.1/8", "172.16.0.1/16"]);
    refused(&mut tables, full, |tables| tables.update_port(PORT, more));
    // Another table has room, and a route that is there may be another one.
    tables.add_vrf("red").unwrap();
    tables.set_route(VrfId(1), remote(0), RouteSpec::Blackhole).unwrap();
    tables.set_route(MAIN, remote(of_port), via(1)).unwrap();
    tables.remove_route(MAIN, remote(of_port)).unwrap();
    tables.set_route(MAIN, remote(0), via(1)).unwrap();
}

#[test]
fn next_hops() {
    let mut tables = tables();
    let full = ("next hops", MAX_NEXT_HOPS);
    let mac = Mac([2; 6]);
    for number in tables.next_hop_count()..MAX_NEXT_HOPS {
        tables.set_neighbour(PORT, station(number), mac).unwrap();
    }
    let (last, new) = (station(MAX_NEXT_HOPS - 1), station(MAX_NEXT_HOPS));
    let via = |address| RouteSpec::Via { port: PORT, address };
    let loose = TableRef::Number(types::TableId(100));
    refused(&mut tables, full, |tables| tables.set_neighbour(PORT, new, mac));
    refused(&mut tables, full, |tables| tables.set_route(MAIN, remote(0), via(new)));
    refused(&mut tables, full, |tables| tables.set_route(loose, remote(0), via(new)));
    refused(&mut tables, full, |tables| tables.add_port(PortId(1), port("port1", &[])));
    // By what is there already, all goes on.
    tables.set_route(MAIN, remote(0), via(last)).unwrap();
    tables.set_route(loose, remote(0), via(last)).unwrap();
    tables.set_neighbour(PORT, last, Mac([4; 6])).unwrap();
    // Of several next hops there is room for one alone.
    tables.remove_neighbour(PORT, station(1)).unwrap();
    let member =
        |address| MemberSpec { port: PORT, address: Some(address), onlink: false, weight: 1 };
    let several = |numbers: [usize; 3]| {
        RouteSpec::Multipath(numbers.map(|number| member(station(number))).into())
    };
    let more = several([2, MAX_NEXT_HOPS, MAX_NEXT_HOPS + 1]);
    let add = |tables: &mut Tables| tables.set_route(MAIN, remote(1), more);
    let before = tables.next_hop_count();
    let error = add(&mut tables).unwrap_err();
    assert_eq!(error, TableError::Limit { what: full.0, limit: full.1 });
    assert_eq!(tables.next_hop_count(), before, "the first one is let go of");
    assert!(tables.port(PORT).unwrap().neighbours.next_hop(new).is_none());
    assert!(tables.vrf(MAIN).unwrap().route_of(remote(1)).is_none());
    tables.set_route(MAIN, remote(1), several([2, 3, MAX_NEXT_HOPS])).unwrap();
    // It goes with its last route, and makes room.
    let other = via(station(MAX_NEXT_HOPS + 1));
    refused(&mut tables, full, |tables| tables.set_route(MAIN, remote(2), other.clone()));
    tables.remove_route(MAIN, remote(1)).unwrap();
    tables.set_route(MAIN, remote(2), other).unwrap();
}

#[test]
fn policies() {
    let mut tables = tables();
    tables.add_vrf("red").unwrap();
    let template =
        Template { vrf: None, source: None, destination: station(1), reqid: 1, spi: None };
    let policy = |number: usize, vrf| PolicySpec {
        vrf,
        if_id: None,
        direction: Direction::Out,
        priority: 1,
        selector: selector(number),
        action: Action::Protect(template),
    };
    let all: Vec<_> =
        (0..MAX_POLICIES).map(|number| tables.add_policy(policy(number, MAIN)).unwrap()).collect();
    let full = ("policies", MAX_POLICIES);
    // In another VRF, which has none yet and stays no gateway.
    for vrf in [MAIN, VrfId(1)] {
        refused(&mut tables, full, |tables| tables.add_policy(policy(MAX_POLICIES, vrf)));
    }
    assert!(tables.vrf(VrfId(1)).unwrap().ipsec != types::Ipsec::Required);
    tables.update_policy(all[1], PolicySpec { priority: 2, ..policy(1, MAIN) }).unwrap();
    tables.remove_policy(all[0]).unwrap();
    tables.add_policy(policy(MAX_POLICIES, MAIN)).unwrap();
}

#[test]
fn sas() {
    let mut tables = tables();
    let add = |tables: &mut Tables, number: usize| {
        let identity = SaIdentity {
            vrf: MAIN,
            inner: MAIN,
            if_id: None,
            source: station(0),
            destination: station(number),
            reqid: 1,
        };
        let spi = Spi(1000 + number as u32);
        let keys = KeyMaterial::new(Algorithm::NullWithoutIntegrity, &[], &[]).unwrap();
        let outbound = OutboundSa::new(spi, &keys, 0, &mut StdRng::seed_from_u64(0));
        let inbound = InboundSa::new(spi, &keys, WindowSize::default(), 0);
        let spec = SaSpec { identity, spi, no_ecn: false, no_pmtu_discovery: false };
        tables.add_sa(spec, outbound, inbound)
    };
    (1..=MAX_SAS).for_each(|number| drop(add(&mut tables, number).unwrap()));
    refused(&mut tables, ("SAs", MAX_SAS), |tables| add(tables, MAX_SAS + 1));
    tables.remove_sa(MAIN, station(1), Spi(1001)).unwrap();
    add(&mut tables, MAX_SAS + 1).unwrap();
}

/// Of ports and VRFs, whose rules have a limit of their own.
#[test]
fn filters() {
    let mut tables = tables();
    let rule = |number: usize, preference| {
        let place = ingress_of(number);
        let selects =
            FilterMatch { v4: Some(selector(number)), v6: None, mark: MarkBits::default() };
        let action = FilterAction {
            verdict: FilterVerdict::Pass,
            reject_with: RejectWith::ALL[0],
            set_mark: None,
            log: false,
        };
        FilterSpec { place, preference, selects, action }
    };
    for number in 1..=MAX_FILTERS {
        let spec = port(&format!("port{number}"), &[]);
        tables.add_port(PortId(number as u16), spec).unwrap();
    }
    (0..MAX_FILTERS).for_each(|number| tables.set_filter_rule(rule(number, 1)).unwrap());
    let one_more = rule(MAX_FILTERS, 1);
    let full = ("filters", MAX_FILTERS);
    refused(&mut tables, full, |tables| tables.set_filter_rule(one_more));
    // Another rule of one that is there. It goes with the last of them.
    tables.set_filter_rule(rule(0, 2)).unwrap();
    tables.remove_filter_rule(ingress_of(0), 1).unwrap();
    refused(&mut tables, full, |tables| tables.set_filter_rule(one_more));
    tables.remove_filter_rule(ingress_of(0), 2).unwrap();
    tables.set_filter_rule(one_more).unwrap();
}

fn ingress_of(port: usize) -> FilterPlace {
    let target = FilterTarget::Port(PortId(port as u16));
    FilterPlace { target, hook: types::FilterHook::Ingress }
}
