//! The log of NAT: whose blocks of ports are, and that a pool or a block has no ports left.

use std::collections::BTreeMap;
use std::net::IpAddr;
use std::sync::{Arc, Weak};

use conntrack::nat::BlockEvent;
use packet::Time;
use tables::{NatPool, PoolId, Tables};

use crate::daemon::alarm::{Alarm, Alarms, News};

/// The most lines about blocks that are still assigned when the gateway stops. More at once would be
/// lost to a reader who bounds their rate, and the lines of the next start with them.
const LINES_AT_END: usize = 1000;

/// What was said of pools.
#[derive(Default)]
pub(crate) struct NatLog(BTreeMap<PoolId, OfPool>);

#[derive(Default)]
struct OfPool {
    /// Which it is: the number of one that is gone may be another one's.
    pool: Weak<NatPool>,
    name: String,
    exhausted: Alarm,
    strangers: Alarm,
    /// By zone and source.
    full_blocks: Alarms<(u16, IpAddr)>,
}

impl NatLog {
    /// What is new: lines, and whether each is a warning.
    pub(crate) fn lines(&mut self, tables: &Tables, now: Time) -> Vec<(String, bool)> {
        let mut lines = self.of_those_gone(tables);
        for (number, pool) in tables.nat_pools() {
            let (events, lost) = pool.pool.take_block_events();
            lines.extend(events.iter().map(|(address, event)| (block(*address, event), false)));
            if lost > 0 {
                let text = format!("{lost} port blocks were assigned or released without a line");
                lines.push((text, true));
            }
            let new =
                || OfPool { pool: Arc::downgrade(pool), name: name(pool), ..OfPool::default() };
            let (counts, said) = (pool.pool.counts(), self.0.entry(number).or_insert_with(new));
            let name = &said.name;
            let news = said.exhausted.look(counts.exhausted, now);
            lines.extend(news.map(|news| exhausted(news, name)));
            let news = said.full_blocks.look(pool.pool.take_full_blocks(), now);
            lines.extend(news.into_iter().map(|(whose, news)| full_block(whose, news, name)));
            let news = said.strangers.look(counts.no_subscriber, now);
            lines.extend(news.map(|news| strangers(news, name)));
        }
        lines
    }

    /// What was said of pools that are gone ends with them.
    fn of_those_gone(&mut self, tables: &Tables) -> Vec<(String, bool)> {
        let mut lines = Vec::new();
        self.0.retain(|number, said| {
            let pool = tables.nat_pool(*number);
            let is_there = pool.is_some_and(|pool| std::ptr::eq(pool, said.pool.as_ptr()));
            if !is_there && said.is_on() {
                lines.push((format!("NAT pool {} is gone", said.name), false));
            }
            is_there
        });
        lines
    }

    /// The last lines, when no connection is any more: blocks that are assigned are released. Of few
    /// each has a line; one line says it of all of them, however many there are.
    pub(crate) fn last_lines(&mut self, tables: &Tables, now: Time) -> Vec<(String, bool)> {
        self.last_lines_of(tables, now, LINES_AT_END)
    }

    fn last_lines_of(&mut self, tables: &Tables, now: Time, most: usize) -> Vec<(String, bool)> {
        let mut lines = self.lines(tables, now);
        let (mut released, mut more) = (Vec::new(), 0);
        for (_, pool) in tables.nat_pools() {
            let (blocks, left_out) = pool.pool.assigned_blocks(most - released.len());
            released.extend(blocks);
            more += left_out;
        }
        let all = released.len() + more;
        if all == 0 {
            return lines;
        }
        if more == 0 {
            lines.extend(released.iter().map(|(address, event)| (block(*address, event), false)));
        }
        let text =
            format!("port blocks: the gateway stops: all {all} that are assigned are released");
        lines.push((text, false));
        lines
    }
}

impl OfPool {
    /// Whether there is an alarm about it.
    fn is_on(&self) -> bool {
        self.exhausted.is_on() || self.strangers.is_on() || self.full_blocks.is_on()
    }
}

fn exhausted(news: News, pool: &str) -> (String, bool) {
    match news {
        News::Begins => {
            let text = format!(
                "NAT pool {pool} is exhausted: new connections get no port and are dropped \
                 (nat_exhausted); those that there are go on"
            );
            (text, true)
        }
        News::Ends(count) => {
            let text = format!(
                "NAT pool {pool}: no connection has found it exhausted for a minute; {count} got no port before"
            );
            (text, false)
        }
    }
}

fn full_block(whose: Option<(u16, IpAddr)>, news: News, pool: &str) -> (String, bool) {
    let (what, is, was, its) = match whose {
        Some((zone, source)) => {
            (format!("the port block of {source} zone {zone}"), "is", "was", "its")
        }
        None => ("the port blocks of more sources".to_owned(), "are", "were", "their"),
    };
    match news {
        News::Begins => {
            let text = format!(
                "NAT pool {pool}: {what} {is} full: {its} new connections get no port and are \
                 dropped (nat_exhausted); those that there are go on"
            );
            (text, true)
        }
        News::Ends(count) => {
            let text = format!(
                "NAT pool {pool}: {what} {was} not asked in vain for a minute; {count} connections \
                 got no port"
            );
            (text, false)
        }
    }
}

fn strangers(news: News, pool: &str) -> (String, bool) {
    match news {
        News::Begins => {
            let text = format!(
                "NAT pool {pool}: a source that is none of its subscribers gets no port; its \
                 connections are dropped (nat_exhausted)"
            );
            (text, true)
        }
        News::Ends(count) => {
            let text = format!(
                "NAT pool {pool}: for a minute all sources were subscribers; {count} connections \
                 got no port before"
            );
            (text, false)
        }
    }
}

fn name(pool: &NatPool) -> String {
    let addresses = pool.spec.addresses.map_or_else(String::new, |range| range.to_string());
    match pool.spec.ports {
        Some((first, last)) => format!("{addresses} ports {first}-{last}"),
        None => addresses,
    }
}

/// `port block 192.0.2.1 ports 1024-1535 assigned to 10.1.0.5 zone 0`
fn block(address: IpAddr, event: &BlockEvent) -> String {
    let BlockEvent { is_assigned, zone, source, first, last, .. } = *event;
    let what = if is_assigned { "assigned to" } else { "released by" };
    format!("port block {address} ports {first}-{last} {what} {source} zone {zone}")
}

#[cfg(test)]
mod tests {
    use api::Request;

    use super::*;
    use crate::explain::Description;
    use crate::gateway::InMemory;

    #[test]
    fn a_block_is_a_line() {
        let event = BlockEvent {
            is_assigned: true,
            zone: 5,
            source: "10.1.0.5".parse().unwrap(),
            address: 0,
            first: 1024,
            last: 1535,
        };
        let line = block("192.0.2.1".parse().unwrap(), &event);
        assert_eq!(line, "port block 192.0.2.1 ports 1024-1535 assigned to 10.1.0.5 zone 5");
    }

    const ONE_PORT: &str = r#"
        [gateway]
        buffers = 1024
        [[port]]
        kind = "memory"
        name = "lan"
        addresses = ["10.1.0.1/24"]
        [[port]]
        kind = "memory"
        name = "wan"
        addresses = ["192.0.2.1/24"]
        [[flow]]
        flow = "priority=1,actions=NORMAL"
        [[flow]]
        flow = "ip,in_port=lan,actions=ct(commit,table=1,nat(src=192.0.2.1:5000-5000))"
        [[flow]]
        flow = "table=1,actions=NORMAL"
    "#;

    /// A gateway whose pool has one port.
    fn with_one_port() -> InMemory {
        let mut world = InMemory::new(control::config::load("nat", ONE_PORT).unwrap());
        for line in [
            "neigh add 10.1.0.5 lladdr 02:bb:00:00:00:01 dev lan",
            "neigh add 192.0.2.9 lladdr 02:bb:00:00:00:02 dev wan",
        ] {
            world.run(line, Time(0)).unwrap();
        }
        world
    }

    /// Two connections to one destination, for which there is one port.
    fn exhaust(world: &mut InMemory) {
        for port in [1, 2] {
            let packet = format!("udp 10.1.0.5:{port} > 192.0.2.9:53 in lan");
            let packet = Description::parse(&packet).unwrap().packet().unwrap();
            let left = world.pass(&[world.frame(&packet)], Time(1));
            assert_eq!(left.len(), usize::from(port == 1));
        }
    }

    #[test]
    fn alarms_end_with_their_pool() {
        let lines = |log: &mut NatLog, world: &InMemory, at: u64| {
            let tables = world.gateway.handler().tables();
            log.lines(&tables, Time(at)).into_iter().map(|(line, _)| line).collect::<Vec<_>>()
        };
        let (mut log, mut world) = (NatLog::default(), with_one_port());
        exhaust(&mut world);
        let told = lines(&mut log, &world, 1);
        assert!(told.len() == 1 && told[0].contains("ports 5000-5000 is exhausted"), "{told:?}");
        assert_eq!(lines(&mut log, &world, 2), [""; 0]);

        // Another one of its number is exhausted as often, and has its own alarm.
        let mut other = with_one_port();
        exhaust(&mut other);
        let told = lines(&mut log, &other, 3);
        assert_eq!(told[0], "NAT pool 192.0.2.1/32 ports 5000-5000 is gone");
        assert!(told.len() == 2 && told[1].contains("ports 5000-5000 is exhausted"), "{told:?}");

        // And one that is gone is not remembered.
        other.run("flow del in_port=lan", Time(4)).unwrap();
        let all = Request::ConnectionDelete(<_>::default());
        other.gateway.handler_mut().handle(all, Time(4)).unwrap();
        for seconds in 5..8 {
            other.pass(&[], Time(seconds * 1_000_000_000));
            other.gateway.handler_mut().control.tick(Time(seconds * 1_000_000_000));
        }
        assert_eq!(lines(&mut log, &other, 9), ["NAT pool 192.0.2.1/32 ports 5000-5000 is gone"]);
        assert!(log.0.is_empty());
    }

    /// However many there are, the log says that no block is assigned any more.
    #[test]
    fn the_last_lines_are_few_and_release_every_block() {
        let text = ONE_PORT.replace("192.0.2.1:5000-5000", "192.0.2.1,block=16");
        let mut world = InMemory::new(control::config::load("nat", &text).unwrap());
        world.run("neigh add 192.0.2.9 lladdr 02:bb:00:00:00:02 dev wan", Time(0)).unwrap();
        let tables = world.gateway.handler().tables();
        let mut log = NatLog::default();
        assert_eq!(log.last_lines(&tables, Time(0)), []);
        for source in 1..=3 {
            let packet = format!("udp 10.1.0.1{source}:1 > 192.0.2.9:53 in lan");
            let packet = Description::parse(&packet).unwrap().packet().unwrap();
            assert_eq!(world.pass(&[world.frame(&packet)], Time(1)).len(), 1);
        }
        assert_eq!(log.lines(&tables, Time(2)).len(), 3);
        let lines = |most| NatLog::default().last_lines_of(&tables, Time(3), most);
        let all = "port blocks: the gateway stops: all 3 that are assigned are released";
        assert_eq!(lines(2), [(all.to_owned(), false)]);
        let each = lines(3);
        assert_eq!(each.len(), 4);
        assert!(
            each[..3].iter().all(|(line, _)| line.contains(" released by 10.1.0.1")),
            "{each:?}"
        );
        assert_eq!(each[3].0, all);
    }

    #[test]
    fn a_full_block_is_not_a_full_pool() {
        let whose = Some((0, "100.64.0.1".parse().unwrap()));
        assert_eq!(
            full_block(whose, News::Begins, "192.0.2.1"),
            (
                "NAT pool 192.0.2.1: the port block of 100.64.0.1 zone 0 is full: its new \
                 connections get no port and are dropped (nat_exhausted); those that there are go on"
                    .to_owned(),
                true
            )
        );
        assert_eq!(
            full_block(None, News::Ends(9), "192.0.2.1").0,
            "NAT pool 192.0.2.1: the port blocks of more sources were not asked in vain for a \
             minute; 9 connections got no port"
        );
    }
}
