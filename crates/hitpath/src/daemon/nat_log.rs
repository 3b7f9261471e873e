//! The log of NAT: whose blocks of ports are, and that a pool has no ports left.

use std::collections::BTreeMap;

use conntrack::nat::BlockEvent;
use packet::Time;
use tables::{NatPool, PoolId, Tables};

use crate::daemon::alarm::{Alarm, News};

/// What was said of pools.
#[derive(Default)]
pub(crate) struct NatLog(BTreeMap<PoolId, Alarm>);

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
            let news = self.0.entry(number).or_default().look(exhausted, now);
            lines.extend(news.map(|news| said(news, &name(pool))));
        }
        lines
    }
}

fn said(news: News, pool: &str) -> (String, bool) {
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
