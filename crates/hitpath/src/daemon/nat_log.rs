//! The log of NAT: whose blocks of ports are, and that a pool has no ports left.

use std::collections::BTreeMap;
use std::time::Duration;

use conntrack::nat::BlockEvent;
use packet::Time;
use tables::{NatPool, PoolId, Tables};

/// A pool has ports again if every connection has got one for so long.
const QUIET: Duration = Duration::from_secs(60);

/// What was said of pools.
#[derive(Default)]
pub(crate) struct NatLog(BTreeMap<PoolId, Exhausted>);

/// A pool that ran out of ports.
#[derive(Clone, Copy, Default)]
struct Exhausted {
    /// Connections without a port that are accounted for in the log.
    told: u64,
    /// Connections without a port when it was last looked at, and since when they are so many.
    seen: u64,
    since: Time,
    is_alarmed: bool,
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
            let exhausted = pool.pool.counts().exhausted;
            lines.extend(self.0.entry(number).or_default().line(&name(pool), exhausted, now));
        }
        lines
    }
}

impl Exhausted {
    /// Once when ports run out, and once when there were enough for a while.
    fn line(&mut self, pool: &str, exhausted: u64, now: Time) -> Option<(String, bool)> {
        // Another pool has the number.
        if exhausted < self.seen {
            *self = Self::default();
        }
        if exhausted != self.seen {
            (self.seen, self.since) = (exhausted, now);
            if !self.is_alarmed {
                self.is_alarmed = true;
                let text = format!(
                    "NAT pool {pool} is exhausted: new connections get no port and are dropped \
                    (nat_exhausted); those that there are go on"
                );
                return Some((text, true));
            }
        } else if self.is_alarmed && now.since(self.since) >= QUIET {
            self.is_alarmed = false;
            let count = exhausted - std::mem::replace(&mut self.told, exhausted);
            let text = format!("NAT pool {pool} has ports again; {count} connections got none");
            return Some((text, false));
        }
        None
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
fn block(address: std::net::IpAddr, event: &BlockEvent) -> String {
    let BlockEvent { is_assigned, zone, source, first, last, .. } = *event;
    let what = if is_assigned { "assigned to" } else { "released by" };
    format!("port block {address} ports {first}-{last} {what} {source} zone {zone}")
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn exhaustion_is_said_once_and_so_is_its_end() {
        let (mut log, at) = (Exhausted::default(), |seconds: u64| Time(seconds * 1_000_000_000));
        assert_eq!(log.line("p", 0, at(1)), None);
        let (said, is_warning) = log.line("p", 3, at(2)).unwrap();
        assert!(is_warning && said.starts_with("NAT pool p is exhausted"), "{said}");
        assert_eq!(log.line("p", 500, at(3)), None);
        assert_eq!(log.line("p", 500, at(62)), None);
        let said = log.line("p", 500, at(63)).unwrap();
        assert_eq!(said, ("NAT pool p has ports again; 500 connections got none".into(), false));
        assert_eq!(log.line("p", 500, at(200)), None);
        assert!(log.line("p", 501, at(201)).unwrap().1);
        assert!(log.line("p", 501, at(261)).unwrap().0.ends_with("; 1 connections got none"));
    }

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
}
