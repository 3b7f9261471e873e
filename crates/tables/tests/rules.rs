//! Which table a packet's route is looked up in, as policy rules say.

use std::net::IpAddr;

use tables::{
    Change, MarkBits, PortSpec, Publisher, RouteKind, RouteSpec, Rule, RuleAction, RuleEntry,
    RuleFlow, RuleSelector, TableError, TableId, TableRef, Tables,
};
use wire::{IpPrefix, Mac, PortId, Protocol, VrfId};

const RED: VrfId = VrfId(1);

fn ip(text: &str) -> IpAddr {
    text.parse().unwrap()
}

fn prefix(text: &str) -> IpPrefix {
    text.parse().unwrap()
}

fn port(id: u16, vrf: VrfId) -> PortSpec {
    PortSpec {
        vrf,
        addresses: vec![prefix(&format!("10.{id}.0.1/24"))],
        ..PortSpec::new(format!("port{id}"), Mac([2, 0, 0, 0, 0, id as u8]))
    }
}

/// Port 1 in main and port 2 in red, each with a default route; and tables 100 and 101.
fn tables() -> Tables {
    let mut tables = Tables::new(1, 7);
    assert_eq!(tables.add_vrf_with_table("red", TableId(10)), Ok(RED));
    for (id, vrf) in [(1, VrfId::MAIN), (2, RED)] {
        tables.add_port(PortId(id), port(id, vrf)).unwrap();
    }
    let loose = |number| TableRef::Number(TableId(number));
    tables.set_route(VrfId::MAIN, prefix("0.0.0.0/0"), RouteSpec::Unreachable).unwrap();
    tables.set_route(loose(100), prefix("10.8.0.0/16"), RouteSpec::Blackhole).unwrap();
    tables.set_route(loose(101), prefix("0.0.0.0/0"), RouteSpec::Prohibit).unwrap();
    tables
}

const ANY: RuleSelector = RuleSelector {
    source: match IpPrefix::new(IpAddr::V4(std::net::Ipv4Addr::UNSPECIFIED), 0) {
        Ok(any) => any,
        Err(_) => panic!(),
    },
    destination: match IpPrefix::new(IpAddr::V4(std::net::Ipv4Addr::UNSPECIFIED), 0) {
        Ok(any) => any,
        Err(_) => panic!(),
    },
    entry: None,
    sent_in: None,
    mark: MarkBits { value: 0, mask: 0 },
    protocol: None,
    source_ports: None,
    destination_ports: None,
    dscp: None,
};

fn lookup(priority: u32, table: u32, selects: RuleSelector) -> Rule {
    let action = RuleAction::Table { table: TableId(table), suppress: None };
    Rule { priority, selects, action }
}

/// Those of the same priority in this order.
fn set(tables: &mut Tables, rules: Vec<Rule>) -> Result<(), TableError> {
    tables.set_rules((0..).zip(rules))
}

fn flow(vrf: VrfId, destination: &str) -> RuleFlow {
    RuleFlow {
        vrf,
        port: Some(PortId(if vrf == RED { 2 } else { 1 })),
        is_own: false,
        source: ip("10.1.0.5"),
        destination: ip(destination),
        protocol: Protocol::UDP,
        ports: Some((1000, 53)),
        dscp: 0.try_into().unwrap(),
    }
}

fn route(tables: &Tables, flow: &RuleFlow, mark: u32) -> (Option<RouteKind>, Option<u32>) {
    let ruled = tables.ruled_route(tables.vrf(flow.vrf).unwrap(), flow, mark);
    (ruled.kind, ruled.rule.map(|rule| rule.priority))
}

#[test]
fn the_first_table_with_a_route_decides() {
    let mut tables = tables();
    set(&mut tables, vec![lookup(600, 101, ANY), lookup(500, 100, ANY)]).unwrap();
    let main = |to| route(&tables, &flow(VrfId::MAIN, to), 0);
    assert_eq!(main("10.8.0.1"), (Some(RouteKind::Blackhole), Some(500)));
    assert_eq!(main("10.9.0.1"), (Some(RouteKind::Prohibit), Some(600)));
    // Own addresses first; and the table of the VRF at 1000, or at 32766 if it is main.
    assert_eq!(main("10.1.0.1"), (Some(RouteKind::Local), None));
    set(&mut tables, vec![lookup(1000, 100, ANY), lookup(2000, 101, ANY)]).unwrap();
    let red = |to| route(&tables, &flow(RED, to), 0);
    let connected = RouteKind::Connected { port: PortId(2) };
    assert_eq!(red("10.2.0.9"), (Some(connected), None));
    assert_eq!(red("10.8.0.1"), (Some(RouteKind::Blackhole), Some(1000)));
    assert_eq!(red("10.9.0.1"), (Some(RouteKind::Prohibit), Some(2000)));
    let main = |to| route(&tables, &flow(VrfId::MAIN, to), 0);
    assert_eq!(main("10.1.0.9"), (Some(RouteKind::Prohibit), Some(2000)));
    // Another VRF's addresses are nobody's here.
    set(&mut tables, vec![lookup(5, 10, ANY)]).unwrap();
    let main = |to| route(&tables, &flow(VrfId::MAIN, to), 0);
    assert_eq!(main("10.2.0.1"), (Some(RouteKind::Unreachable), Some(5)));
    assert_eq!(main("10.2.0.9"), (Some(connected), Some(5)));
}

#[test]
fn selectors_goto_and_suppression() {
    let mut tables = tables();
    let to = |table, suppress| RuleAction::Table { table: TableId(table), suppress };
    let goto = |priority| RuleAction::Goto { priority, is_resolved: false };
    let rule = |priority, selects, action| Rule { priority, selects, action };
    let marked = RuleSelector { mark: MarkBits { value: 1, mask: 3 }, ..ANY };
    let by_red = RuleSelector { entry: Some(RuleEntry::Vrf(RED)), ..ANY };
    let own = RuleSelector { entry: Some(RuleEntry::Own), ..ANY };
    set(
        &mut tables,
        vec![
            rule(10, marked, goto(40_000)),
            rule(11, by_red, goto(12)),
            rule(20, own, RuleAction::Prohibit),
            rule(30, ANY, to(101, Some(0))),
            rule(40_000, ANY, to(100, None)),
        ],
    )
    .unwrap();
    let main = flow(VrfId::MAIN, "10.8.0.1");
    // The default route of 101 does not count; main has one.
    assert_eq!(route(&tables, &main, 0), (Some(RouteKind::Unreachable), None));
    // Over the table of main.
    assert_eq!(route(&tables, &main, 5), (Some(RouteKind::Blackhole), Some(40_000)));
    assert_eq!(route(&tables, &RuleFlow { is_own: true, ..main }, 0).1, Some(20));
    assert_eq!(route(&tables, &flow(RED, "10.8.0.1"), 0).1, Some(40_000));
    // A rule of that priority resolves what went nowhere.
    let mut rules = tables.rules().map(|(_, rule)| *rule).collect::<Vec<_>>();
    rules.push(rule(12, by_red, RuleAction::Blackhole));
    set(&mut tables, rules).unwrap();
    assert_eq!(route(&tables, &flow(RED, "10.9.0.1"), 0).1, Some(12));
    assert_eq!(
        set(&mut tables, vec![rule(9, ANY, goto(9))]),
        Err(TableError::RuleGoto { from: 9, to: 9 })
    );
}

#[test]
fn rules_about_one_vrf_are_no_other_ones() {
    let mut tables = tables();
    let by = |entry| RuleSelector { entry: Some(entry), ..ANY };
    set(&mut tables, vec![lookup(5, 100, by(RuleEntry::Port(PortId(2))))]).unwrap();
    let ruled =
        |tables: &Tables| [VrfId::MAIN, RED].map(|vrf| tables.vrf(vrf).unwrap().features.is_ruled);
    assert_eq!(ruled(&tables), [false, true]);
    // The rule goes with its port, to another VRF or for ever.
    tables.update_port(PortId(2), port(2, VrfId::MAIN)).unwrap();
    assert_eq!(ruled(&tables), [true, false]);
    tables.remove_port(PortId(2)).unwrap();
    assert_eq!(ruled(&tables), [false, false]);
    assert!(tables.rules().next().is_none() && !tables.has_rules());
}

/// One rule more is one change, and routes that nothing leads to are none.
#[test]
fn what_changed_is_said() {
    let mut publisher = Publisher::new(tables());
    let rules = vec![lookup(5, 101, ANY), lookup(7, 101, ANY)];
    let told = |publisher: &mut Publisher, change: &dyn Fn(&mut Tables)| {
        let mut tables = Tables::clone(&publisher.current());
        let before = tables.generation();
        change(&mut tables);
        publisher.publish(tables);
        let tables = publisher.current();
        tables.changes_since(before).unwrap().copied().collect::<Vec<_>>()
    };
    let loose = |tables: &mut Tables| {
        let table = TableRef::Number(TableId(101));
        tables.set_route(table, prefix("10.0.0.0/8"), RouteSpec::Blackhole).unwrap();
    };
    assert_eq!(told(&mut publisher, &loose), []);
    told(&mut publisher, &|tables| set(tables, rules.clone()).unwrap());
    let one = lookup(6, 100, ANY);
    let more = told(&mut publisher, &|tables| {
        set(tables, [rules.clone(), vec![one]].concat()).unwrap();
    });
    assert_eq!(more, [Change::Rule(one)]);
    assert!(matches!(told(&mut publisher, &loose)[..], [Change::Route { .. }]));
}
