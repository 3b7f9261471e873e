//! Eight tables with a thousand flows, as a site's gateway has them, and beside each the fewest that
//! do the same work: what tables and flows cost is the difference, and no translation is in it.

use std::fmt::Write as _;

use anyhow::Context as _;
use pipeline::Flow;
use pipeline::text::{Names, parse_flow};
use rand::rngs::StdRng;
use rand::{RngExt, SeedableRng};
use serde_json::json;
use tables::{Selector, UpperSelector};
use types::{IpPrefix, IpRange, PortId, Protocol};
use workload::rules::{self, Kind};

use super::established::Established;
use super::{Cache, Carried, FRAME, NAME, gateway};
use crate::context::Context;
use crate::measure::Series;
use crate::row::Row;
use crate::topology::{IN, OUT};

/// What is done with a packet.
#[derive(Clone, Copy, Debug, PartialEq, Eq, clap::ValueEnum)]
pub(super) enum Work {
    /// What begins inside may go out and is answered
    Plain,
    /// The same, and sources are translated to addresses of a pool
    Nat,
    /// Each packet passes through two zones, with a connection in either
    Zones,
    /// The same, and towards the second zone sources are translated
    ZonesNat,
}

/// How many flows the eight tables have.
pub(super) const FLOWS: usize = 1000;

/// Addresses that sources are translated to.
const POOL: &str = "203.0.113.0-203.0.113.127";

/// Sources that nobody outside has (RFC 6890), and the site's own.
const BOGONS: [&str; 13] = [
    "0.0.0.0/8",
    "10.0.0.0/8",
    "100.64.0.0/10",
    "127.0.0.0/8",
    "169.254.0.0/16",
    "172.16.0.0/12",
    "192.0.0.0/24",
    "192.0.2.0/24",
    "192.88.99.0/24",
    "192.168.0.0/16",
    "198.51.100.0/24",
    "224.0.0.0/4",
    "240.0.0.0/4",
];

/// Networks that nothing is sent to or taken from.
const BLOCKED: usize = 300;
/// Services that are told apart.
const SERVICES: usize = 80;

impl Work {
    pub(super) const fn name(self) -> &'static str {
        match self {
            Self::Plain => "plain",
            Self::Nat => "nat",
            Self::Zones => "zones",
            Self::ZonesNat => "zones-nat",
        }
    }

    const fn translates(self) -> bool {
        matches!(self, Self::Nat | Self::ZonesNat)
    }

    /// How many connections a packet has.
    const fn zones(self) -> u32 {
        match self {
            Self::Plain | Self::Nat => 1,
            Self::Zones | Self::ZonesNat => 2,
        }
    }

    /// What `ct` says in the first and the second zone: the zone, if it is not the VRF's, and whether
    /// packets are translated there.
    const fn tracks(self) -> [&'static str; 2] {
        match self {
            Self::Plain => ["", ""],
            Self::Nat => ["nat,", "nat,"],
            Self::Zones => ["zone=1,", "zone=2,"],
            Self::ZonesNat => ["zone=1,", "zone=2,nat,"],
        }
    }

    /// What makes a connection in the zone through which sources are translated. It has a label, as those
    /// that `[firewall]` makes.
    fn commit(self) -> String {
        let zone = if self.zones() == 2 { ",zone=2" } else { "" };
        let nat = if self.translates() { format!(",nat(src={POOL})") } else { String::new() };
        format!("ct(commit{zone}{nat},exec(set_field:0x1/0x1->ct_label))")
    }

    /// The fewest flows that do the work: two tables, or three with two zones.
    fn few(self) -> String {
        let ([first, second], commit) = (self.tracks(), self.commit());
        match self.zones() {
            1 => format!(
                "table=0,priority=100,ip actions=ct({first}table=1)
                table=1,priority=10,ip,in_port=in,ct_state=+trk+new actions={commit},NORMAL
                table=1,priority=10,ip,in_port=out,ct_state=+trk+new actions=drop
                table=1,priority=10,ip,in_port=in,ct_state=+trk+est,ct_label=0x1/0x1 actions=NORMAL
                table=1,priority=10,ip,in_port=out,ct_state=+trk+est,ct_label=0x1/0x1 actions=NORMAL"
            ),
            // Answers come by the second zone first, where their destination is translated back.
            _ => format!(
                "table=0,priority=100,ip,in_port=in actions=ct({first}table=1)
                table=0,priority=100,ip,in_port=out actions=ct({second}table=1)
                table=1,priority=10,ip,in_port=in,ct_state=+trk+new \
                actions=ct(commit,zone=1),ct({second}table=2)
                table=1,priority=10,ip,in_port=in,ct_state=+trk+est actions=ct({second}table=2)
                table=1,priority=10,ip,in_port=out,ct_state=+trk+est actions=ct({first}table=2)
                table=2,priority=10,ip,in_port=in,ct_state=+trk+new actions={commit},NORMAL
                table=2,priority=10,ip,in_port=in,ct_state=+trk+est actions=NORMAL
                table=2,priority=10,ip,in_port=out,ct_state=+trk+est actions=NORMAL"
            ),
        }
    }

    /// A thousand flows in eight tables that do it.
    ///
    /// 0: sources that cannot be. 1: networks that are blocked. 2: what service a packet is of. 3: the
    /// first zone. 4: what is to be asked of its state. 5: what may begin. 6: the second zone. 7: what
    /// leaves. Nothing of the benches is refused by 0, 1 and 5, but every packet is looked for there.
    fn many(self) -> anyhow::Result<String> {
        let mut random = StdRng::seed_from_u64(1);
        let mut flows = String::new();
        for source in BOGONS {
            writeln!(flows, "table=0,priority=100,ip,in_port=out,nw_src={source} actions=drop")?;
        }
        writeln!(flows, "table=0,priority=1,ip actions=goto_table:1")?;
        for number in 0..BLOCKED {
            let (port, field) = if number % 3 == 0 { ("out", "nw_src") } else { ("in", "nw_dst") };
            let network = foreign(&mut random)?;
            writeln!(
                flows,
                "table=1,priority=100,ip,in_port={port},{field}={network} actions=drop"
            )?;
        }
        writeln!(flows, "table=1,priority=1,ip actions=goto_table:2")?;
        for number in 0..SERVICES {
            let protocol = if number % 3 == 0 { "udp" } else { "tcp" };
            let first = random.random_range(1..60_000_u32);
            let ports = match number % 4 {
                0 => format!("{first}-{}", first + random.random_range(1..5000)),
                _ => first.to_string(),
            };
            let priority = 100 + number;
            writeln!(
                flows,
                "table=2,priority={priority},{protocol},tp_dst={ports} \
                actions=load:{number}->reg0[],goto_table:3"
            )?;
        }
        writeln!(flows, "table=2,priority=1,ip actions=goto_table:3")?;
        let allowed = self.write_ways(&mut flows)?;
        let acl = FLOWS.checked_sub(flows.lines().count()).context("there are too many flows")?;
        let options =
            rules::Options { kind: Kind::Fw, v6: false, count: acl, seed: 1, misaligned: None };
        for (number, rule) in rules::generate(&options).iter().enumerate() {
            let is_drop = !may_meet_benches(rule)? && number % 2 == 0;
            let actions = if is_drop { "drop" } else { &allowed };
            let (priority, matches) = (60_000 - number, matches(rule));
            writeln!(flows, "table=5,priority={priority},{matches} actions={actions}")?;
        }
        Ok(flows)
    }

    /// Writes the flows of tables 3, 4, 6 and 7, and the last one of table 5. Returns the actions of what
    /// may begin.
    fn write_ways(self, flows: &mut String) -> anyhow::Result<String> {
        let ([first, second], commit) = (self.tracks(), self.commit());
        let begins = if self.zones() == 1 { &commit } else { "ct(commit,zone=1)" };
        let allowed = format!("{begins},goto_table:6");
        writeln!(
            flows,
            "table=3,priority=100,ip,in_port=in actions=ct({first}table=4)
            table=3,priority=100,ip,in_port=out actions=ct({second}table=4)
            table=4,priority=10,ip,ct_state=+trk+est actions=goto_table:6
            table=4,priority=10,ip,in_port=in,ct_state=+trk+new actions=goto_table:5
            table=4,priority=10,ip,in_port=out,ct_state=+trk+new actions=drop
            table=5,priority=1,ip actions={allowed}"
        )?;
        match self.zones() {
            // A packet is untracked once its connection is made.
            1 => writeln!(
                flows,
                "table=6,priority=1,ip actions=goto_table:7
                table=7,priority=10,ip,in_port=in actions=NORMAL
                table=7,priority=10,ip,in_port=out actions=NORMAL"
            )?,
            _ => writeln!(
                flows,
                "table=6,priority=10,ip,in_port=in actions=ct({second}table=7)
                table=6,priority=10,ip,in_port=out actions=ct({first}table=7)
                table=7,priority=10,ip,in_port=in,ct_state=+trk+new actions={commit},NORMAL
                table=7,priority=10,ip,in_port=in,ct_state=+trk+est actions=NORMAL
                table=7,priority=10,ip,in_port=out,ct_state=+trk+est actions=NORMAL"
            )?,
        }
        Ok(allowed)
    }
}

/// The few flows and the many, with each cache, measured against each other.
pub(super) fn rows(
    context: &Context,
    work: Work,
    caches: &[Cache],
    connections: u32,
) -> anyhow::Result<Vec<Row>> {
    let mut series: Vec<Box<dyn Series>> = Vec::new();
    let mut parameters = Vec::new();
    for is_many in [false, true] {
        let flows = read(&if is_many { work.many()? } else { work.few() })?;
        let mut used: Vec<u8> = flows.iter().map(|flow| flow.table).collect();
        used.sort_unstable();
        used.dedup();
        let (count, used) = (flows.len(), used.len());
        for &cache in caches {
            let name =
                format!("{}, {used} tables, {count} flows, cache {}", work.name(), cache.name());
            let places = work.zones() * (connections + connections / 8 + 64);
            let tables = gateway::with_flows(flows.clone(), places)?;
            let carried = Carried::Udp;
            series.push(Box::new(Established::new(name, tables, carried, cache, connections)?));
            parameters.push(json!({
                "work": work.name(),
                "tables": used,
                "flows": count,
                "is_many": is_many,
                "zones": work.zones(),
                "translated": work.translates(),
                "protocol": carried.name(),
                "cache": cache.name(),
                "connections": connections,
                "frame_bytes": FRAME,
            }));
        }
    }
    let what = format!("conntrack, {}, {connections}", work.name());
    let costs = context.measure(&what, &mut series)?;
    let rows = series.iter().zip(parameters).zip(costs);
    Ok(rows
        .map(|((series, parameters), cost)| {
            Row::new(NAME, series.name(), parameters, Some(FRAME), cost)
        })
        .collect())
}

/// Reads flows, one a line.
fn read(text: &str) -> anyhow::Result<Vec<Flow>> {
    let flow = |line: &str| {
        parse_flow(line, &Ports).map_err(|why| anyhow::anyhow!("in the flow {line}: {why}"))
    };
    text.lines().map(str::trim).filter(|line| !line.is_empty()).map(flow).collect()
}

/// A network that no packet of the benches comes from or goes to.
fn foreign(random: &mut StdRng) -> anyhow::Result<IpPrefix> {
    loop {
        let length = [16, 18, 20, 22, 24, 24, 24, 32][random.random_range(0..8)];
        let address = std::net::Ipv4Addr::from_bits(random.random_range(1 << 24..223 << 24));
        let mask = u32::MAX << (32 - length);
        let address = std::net::Ipv4Addr::from_bits(address.to_bits() & mask);
        let network = IpPrefix::new(address.into(), length as u8)?;
        let ours = ["10.0.0.0/8", "198.18.0.0/15", "203.0.113.0/24"];
        let meets =
            |own: &str| anyhow::Ok(meet(&network.range(), &own.parse::<IpPrefix>()?.range()));
        if !ours.iter().map(|own| meets(own)).collect::<anyhow::Result<Vec<_>>>()?.contains(&true) {
            return Ok(network);
        }
    }
}

fn may_meet_benches(rule: &Selector) -> anyhow::Result<bool> {
    let inside = "10.128.0.0/9".parse::<IpPrefix>()?.range();
    let outside = "198.18.0.0/15".parse::<IpPrefix>()?.range();
    Ok(meet(&rule.source, &inside) && meet(&rule.destination, &outside))
}

fn meet(one: &IpRange, other: &IpRange) -> bool {
    one.first() <= other.last() && other.first() <= one.last()
}

/// A rule as a flow's match.
fn matches(rule: &Selector) -> String {
    let protocol = match rule.protocol {
        Some(Protocol::TCP) => "tcp".to_owned(),
        Some(Protocol::UDP) => "udp".to_owned(),
        Some(Protocol::ICMP) => "icmp".to_owned(),
        Some(other) => format!("ip,nw_proto={}", other.0),
        None => "ip".to_owned(),
    };
    let mut matches = protocol;
    for (field, range) in [("nw_src", rule.source), ("nw_dst", rule.destination)] {
        if range != IpRange::ALL_V4 {
            let _ = write!(matches, ",{field}={}-{}", range.first(), range.last());
        }
    }
    let has_ports = matches!(rule.protocol, Some(Protocol::TCP | Protocol::UDP));
    if let UpperSelector::Ports { source, destination } = rule.upper
        && has_ports
    {
        for (field, ports) in [("tp_src", source), ("tp_dst", destination)] {
            if !ports.is_all() {
                let _ = write!(matches, ",{field}={}-{}", ports.first(), ports.last());
            }
        }
    }
    matches
}

/// The ports by name.
struct Ports;

impl Names for Ports {
    fn port(&self, name: &str) -> Option<PortId> {
        match name {
            "in" => Some(IN),
            "out" => Some(OUT),
            _ => None,
        }
    }
}

#[cfg(test)]
mod tests {
    use std::collections::BTreeSet;

    use clap::ValueEnum;

    use super::*;
    use crate::measure::Lookups;

    #[test]
    fn there_are_a_thousand_different_flows_in_eight_tables() {
        for work in Work::value_variants() {
            let flows = read(&work.many().unwrap()).unwrap();
            assert_eq!(flows.len(), FLOWS);
            let tables: BTreeSet<u8> = flows.iter().map(|flow| flow.table).collect();
            assert_eq!(tables, (0..8).collect());
            let tables = gateway::with_flows(flows, 100).unwrap();
            assert_eq!(tables.pipeline().entries().count(), FLOWS, "two of them are one");
            // Ranges of many sizes: a thousand flows of one size would be found by one probe.
            assert!(tables.pipeline().masks() > 40, "{}", tables.pipeline().masks());
        }
    }

    /// Both ways, each packet through as many connections as it is to have; decided once, and not
    /// again.
    #[test]
    fn few_and_many_do_the_same_and_hit() {
        for work in Work::value_variants() {
            for text in [work.few(), work.many().unwrap()] {
                let tables = gateway::with_flows(read(&text).unwrap(), 2000).unwrap();
                let connections = tables.connections().unwrap().clone();
                let carried = Carried::Udp;
                let mut established =
                    Established::new(String::new(), tables, carried, Cache::On, 500).unwrap();
                let context = Context::tiny();
                established.warm_up(&context.meter, context.effort).unwrap();
                let translated =
                    (0..2000).filter_map(|at| connections.connection(at, super::super::START));
                let translated = translated.filter(|connection| connection.is_snat).count();
                assert_eq!(connections.counts().made, 500 * u64::from(work.zones()));
                assert_eq!(translated, if work.translates() { 500 } else { 0 });
                let before = established.lookups();
                let mut stopwatch = context.meter.stopwatch();
                for _ in 0..40 {
                    established.round(&mut stopwatch).unwrap();
                }
                let Lookups { hits, packets, .. } = established.lookups().since(before);
                assert_eq!((hits, packets), (40 * 256, 40 * 256), "{work:?}");
            }
        }
    }
}
