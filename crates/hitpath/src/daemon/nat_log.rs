//! The log of NAT: whose blocks of ports are, and that a pool or a block has no ports left.

use std::collections::BTreeMap;
use std::net::IpAddr;

use conntrack::nat::BlockEvent;
use packet::Time;
use tables::{NatPool, PoolId, Tables};

use crate::daemon::alarm::{Alarm, Alarms, News};

/// The most lines about blocks that are still assigned when the gateway stops.
const LINES_AT_END: usize = 1 << 16;

/// What was said of pools.
#[derive(Default)]
pub(crate) struct NatLog(BTreeMap<PoolId, OfPool>);

#[derive(Default)]
struct OfPool {
    exhausted: Alarm,
    strangers: Alarm,
    /// By zone and source.
    full_blocks: Alarms<(u16, IpAddr)>,
}

impl NatLog {
    /// What is new: lines, and whether each is a warning.
    pub(crate) fn lines(&mut self, tables: &Tables, now: Time) -> Vec<(String, bool)> {
        let mut lines = Vec::new();
        for (number, pool) in tables.nat_pools() {
            let (events, lost) = pool.pool.take_block_events();
            lines.extend(events.iter().map(|(address, event)| (block(*address, event), false)));
            if lost > 0 {
                let text = format!("{lost} port blocks were assigned or released without a line");
                lines.push((text, true));
            }
            let (counts, said) = (pool.pool.counts(), self.0.entry(number).or_default());
            let name = name(pool);
            let news = said.exhausted.look(counts.exhausted, now);
            lines.extend(news.map(|news| exhausted(news, &name)));
            let news = said.full_blocks.look(pool.pool.take_full_blocks(), now);
            lines.extend(news.into_iter().map(|(whose, news)| full_block(whose, news, &name)));
            let news = said.strangers.look(counts.no_subscriber, now);
            lines.extend(news.map(|news| strangers(news, &name)));
        }
        lines
    }

    /// The last lines, when no connection is any more: blocks that are assigned are released. How
    /// many lines there are is bounded; what is left out is said.
    pub(crate) fn last_lines(&mut self, tables: &Tables, now: Time) -> Vec<(String, bool)> {
        let mut lines = self.lines(tables, now);
        let (mut room, mut more) = (LINES_AT_END, 0);
        for (_, pool) in tables.nat_pools() {
            let (blocks, left_out) = pool.pool.assigned_blocks(room);
            lines.extend(blocks.iter().map(|(address, event)| (block(*address, event), false)));
            room -= blocks.len();
            more += left_out;
        }
        if more > 0 {
            let text = format!("port blocks: {more} more are released without a line");
            lines.push((text, true));
        }
        lines
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
            (format!("NAT pool {pool} has ports again; {count} connections got none"), false)
        }
    }
}

fn full_block(whose: Option<(u16, IpAddr)>, news: News, pool: &str) -> (String, bool) {
    let (what, is, has, its) = match whose {
        Some((zone, source)) => {
            (format!("the port block of {source} zone {zone}"), "is", "has", "its")
        }
        None => ("the port blocks of more sources".to_owned(), "are", "have", "their"),
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
            let text =
                format!("NAT pool {pool}: {what} {has} ports again; {count} connections got none");
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
                "NAT pool {pool}: sources that are no subscribers come no more; {count} \
                 connections got no port"
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
    use super::*;

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
            "NAT pool 192.0.2.1: the port blocks of more sources have ports again; 9 connections \
             got none"
        );
    }
}
