//! Tables that are full refuse one more by name, change nothing by that, and go on: what is there can
//! be replaced, and where one goes another one finds room.

use std::net::{IpAddr, Ipv4Addr};

use tables::limit::{MAX_FILTER_RULES, MAX_GROUPS, MAX_RULES, MAX_SUB_PORTS, MAX_TABLES};
use tables::{
    FieldsSelector, FilterAction, FilterHook, FilterMatch, FilterPlace, FilterSpec, FilterTarget,
    FilterVerdict, MAX_NEIGHBOURS, MarkBits, MemberSpec, PortSpec, RejectWith, RouteSpec, Rule,
    RuleAction, RuleId, RuleSelector, Selector, TableError, TableId, TableRef, Tables,
    UpperSelector, Vlan, VlanId, VlanTag,
};
use wire::{IpPrefix, IpRange, Mac, PortId, VrfId};

const PARENTS: u16 = 5;
/// The number of the first sub-port.
const FIRST: u16 = 2000;

fn prefix(text: &str) -> IpPrefix {
    text.parse().unwrap()
}

fn port(number: u16, vlan: Option<Vlan>) -> PortSpec {
    PortSpec { vlan, ..PortSpec::new(format!("port{number}"), Mac([2, 0, 0, 0, 0, number as u8])) }
}

/// Number N of all VLANs of the parents.
fn sub_port(number: usize) -> (PortId, PortSpec) {
    let per_parent = usize::from(VlanId::MAX);
    let parent = PortId((number / per_parent) as u16);
    let tag = VlanTag::customer(VlanId::new((number % per_parent) as u16 + 1).unwrap());
    let id = FIRST + number as u16;
    (PortId(id), port(id, Some(Vlan::new(parent, tag))))
}

fn tables() -> Tables {
    let mut tables = Tables::new(1, 7);
    for number in 0..PARENTS {
        tables.add_port(PortId(number), port(number, None)).unwrap();
    }
    tables
}

/// One more is refused as too many of `what`, in these words, and leaves the tables as they are.
#[track_caller]
fn refused(
    tables: &mut Tables,
    (what, limit): (&'static str, usize),
    one_more: impl FnOnce(&mut Tables) -> Result<(), TableError>,
) {
    let generation = tables.generation();
    let error = one_more(tables).unwrap_err();
    assert_eq!(error, TableError::Limit { what, limit });
    let text = error.to_string();
    assert!(text.contains(what) && text.contains(&limit.to_string()), "{text}");
    assert_eq!(tables.generation(), generation, "something has changed");
}

#[test]
fn sub_ports() {
    let mut tables = tables();
    for number in 0..MAX_SUB_PORTS {
        let (id, spec) = sub_port(number);
        tables.add_port(id, spec).unwrap();
    }
    let count = tables.ports().count();
    let (one_more, spec) = sub_port(MAX_SUB_PORTS);
    let add = |tables: &mut Tables| tables.add_port(one_more, spec.clone());
    refused(&mut tables, ("sub-ports", MAX_SUB_PORTS), add);
    assert!(tables.port(one_more).is_none() && tables.ports().count() == count);
    // A port that is none may come.
    tables.add_port(PortId(PARENTS), port(PARENTS, None)).unwrap();

    tables.remove_port(sub_port(0).0).unwrap();
    tables.add_port(one_more, spec).unwrap();
}

#[test]
fn rules_of_filters() {
    let mut tables = tables();
    // In the filters of all ports by turns.
    let rule = |number: usize| {
        let (port, hook) = (number % usize::from(PARENTS), number / usize::from(PARENTS) % 2);
        let target = FilterTarget::Port(PortId(port as u16));
        let place = FilterPlace { target, hook: FilterHook::ALL[hook] };
        filter_rule(place, (number / (2 * usize::from(PARENTS))) as u32 + 1)
    };
    (0..MAX_FILTER_RULES).for_each(|number| tables.set_filter_rule(rule(number)).unwrap());
    let (first, one_more) = (rule(0), rule(MAX_FILTER_RULES));
    let count = tables.filter(one_more.place).unwrap().len();
    let add = |tables: &mut Tables| tables.set_filter_rule(one_more);
    refused(&mut tables, ("rules of filters", MAX_FILTER_RULES), add);
    assert_eq!(tables.filter(one_more.place).unwrap().len(), count);
    // Another action of a rule that is there.
    let mut other = first;
    other.action.verdict = FilterVerdict::Drop;
    tables.set_filter_rule(other).unwrap();
    tables.remove_filter_rule(first.place, first.preference).unwrap();
    tables.set_filter_rule(one_more).unwrap();
}

fn filter_rule(place: FilterPlace, preference: u32) -> FilterSpec {
    let everywhere: IpRange = "0.0.0.0/0".parse().unwrap();
    let selector = Selector {
        source: everywhere,
        destination: everywhere,
        protocol: None,
        upper: UpperSelector::Any,
        fields: FieldsSelector::ANY,
    };
    let selects = FilterMatch { v4: Some(selector), v6: None, mark: MarkBits::default() };
    let action = FilterAction {
        verdict: FilterVerdict::Pass,
        reject_with: RejectWith::ALL[0],
        set_mark: None,
        log: false,
    };
    FilterSpec { place, preference, selects, action }
}

#[test]
fn routing_tables_that_no_vrf_has() {
    let mut tables = tables();
    let set = |tables: &mut Tables, number: usize| {
        let table = TableRef::Number(TableId(10_000 + number as u32));
        tables.set_route(table, prefix("10.0.0.0/8"), RouteSpec::Blackhole)
    };
    (0..MAX_TABLES).for_each(|number| set(&mut tables, number).unwrap());
    let what = ("routing tables without a VRF", MAX_TABLES);
    refused(&mut tables, what, |tables| set(tables, MAX_TABLES));
    assert_eq!(tables.loose_tables().count(), MAX_TABLES);
    // Further routes of one that is there, and of VRFs.
    let first = TableRef::Number(TableId(10_000));
    tables.set_route(first, prefix("10.1.0.0/16"), RouteSpec::Blackhole).unwrap();
    tables.set_route(VrfId::MAIN, prefix("10.1.0.0/16"), RouteSpec::Blackhole).unwrap();
    // One goes with its last route.
    tables.remove_route(TableRef::Number(TableId(10_001)), prefix("10.0.0.0/8")).unwrap();
    set(&mut tables, MAX_TABLES).unwrap();
}

#[test]
fn policy_rules() {
    let mut tables = tables();
    let rule = |priority| {
        let everywhere = prefix("0.0.0.0/0");
        let selects = RuleSelector {
            source: everywhere,
            destination: everywhere,
            entry: None,
            sent_in: None,
            mark: MarkBits::default(),
            protocol: None,
            source_ports: None,
            destination_ports: None,
            dscp: None,
        };
        Rule { priority, selects, action: RuleAction::Blackhole }
    };
    (0..MAX_RULES as u64).for_each(|number| tables.set_rule(number, rule(50_000)).unwrap());
    let one_more = MAX_RULES as u64;
    let set = |tables: &mut Tables| tables.set_rule(one_more, rule(50_000));
    refused(&mut tables, ("policy rules", MAX_RULES), set);
    assert_eq!(tables.rules().count(), MAX_RULES);
    // In the place of one that is there.
    tables.set_rule(7, Rule { action: RuleAction::Prohibit, ..rule(50_000) }).unwrap();
    // All of them at once, and one more: none of them.
    let all = (0..=one_more).map(|number| (number, rule(40_000)));
    let set_all = |tables: &mut Tables| tables.set_rules(all);
    refused(&mut tables, ("policy rules", MAX_RULES), set_all);
    assert!(tables.rules().all(|(_, rule)| rule.priority == 50_000));
    tables.remove_rule(RuleId::of(0, &rule(50_000)));
    tables.set_rule(one_more, rule(50_000)).unwrap();
}

/// Of one port: others have room.
#[test]
fn neighbours() {
    let mut tables = tables();
    let address = |number: usize| IpAddr::from(Ipv4Addr::from_bits(0x0b00_0000 + number as u32));
    let mac = Mac([2; 6]);
    for number in 0..MAX_NEIGHBOURS {
        tables.set_neighbour(PortId(0), address(number), mac).unwrap();
    }
    let (one_more, next_hops) = (address(MAX_NEIGHBOURS), tables.next_hop_count());
    let generation = tables.generation();
    let error = tables.set_neighbour(PortId(0), one_more, mac).unwrap_err();
    assert_eq!(error, TableError::NeighboursFull("port0".into()));
    let text = error.to_string();
    assert!(text.contains("port0") && text.contains(&MAX_NEIGHBOURS.to_string()), "{text}");
    assert_eq!((tables.next_hop_count(), tables.generation()), (next_hops, generation));
    let known =
        |tables: &Tables, port| tables.port(PortId(port)).unwrap().neighbours.lookup(one_more);
    assert_eq!(known(&tables, 0), None);
    tables.set_neighbour(PortId(1), one_more, mac).unwrap();
    // Another Ethernet address of one that is there.
    tables.set_neighbour(PortId(0), address(1), Mac([4; 6])).unwrap();
    tables.remove_neighbour(PortId(0), address(0)).unwrap();
    tables.set_neighbour(PortId(0), one_more, mac).unwrap();
    assert_eq!(known(&tables, 0), Some(mac));
}

#[test]
fn multipath_routes() {
    let mut tables = tables();
    let member = |port| MemberSpec { port: PortId(port), address: None, onlink: false, weight: 1 };
    let set = |tables: &mut Tables, number: usize| {
        let [a, b, c] = [number >> 16, number >> 8, number].map(|part| part as u8);
        let to = prefix(&format!("{}.{b}.{c}.0/24", 20 + a));
        tables.set_route(VrfId::MAIN, to, RouteSpec::Multipath([member(0), member(1)].into()))
    };
    (0..MAX_GROUPS).for_each(|number| set(&mut tables, number).unwrap());
    let count =
        |tables: &Tables| tables.routing_table(TableRef::Vrf(VrfId::MAIN)).unwrap().route_count();
    let before = count(&tables);
    refused(&mut tables, ("multipath routes", MAX_GROUPS), |tables| set(tables, MAX_GROUPS));
    assert_eq!(count(&tables), before);
    // Another one in the place of one that is there.
    let weighted = MemberSpec { weight: 2, ..member(1) };
    let other = RouteSpec::Multipath([member(0), weighted].into());
    tables.set_route(VrfId::MAIN, prefix("20.0.1.0/24"), other).unwrap();
    // A route by one next hop is none of them.
    let one = RouteSpec::Connected { port: PortId(0) };
    tables.set_route(VrfId::MAIN, prefix("10.1.0.0/16"), one).unwrap();
    tables.remove_route(VrfId::MAIN, prefix("20.0.0.0/24")).unwrap();
    set(&mut tables, MAX_GROUPS).unwrap();
}
