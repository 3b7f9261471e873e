//! What the log says of connections: that there is no room for them, or that a limit refuses them.

use conntrack::{LimitKind, ReachedLimit};
use packet::Time;
use tables::Tables;

use crate::daemon::alarm::{Alarm, Alarms, News};

/// What was said of connections.
#[derive(Default)]
pub(crate) struct ConnectionLog {
    room: Alarm,
    ipv6_room: Alarm,
    limits: Alarms<ReachedLimit>,
    helpers: Alarm,
}

impl ConnectionLog {
    /// What is new: lines, and whether each is a warning. `zone` names the zone of the
    /// firewall that a class of connections stands for.
    pub(crate) fn lines(
        &mut self,
        tables: &Tables,
        zone: &dyn Fn(u16) -> Option<String>,
        now: Time,
    ) -> Vec<(String, bool)> {
        let Some(connections) = tables.connections() else { return Vec::new() };
        let (counts, helped) = (connections.counts(), connections.helper_counts());
        let (most, most_ipv6) =
            (connections.settings().connections, connections.settings().ipv6_connections);
        let in_use = format!("{} of {most}", counts.connections);
        let in_use_ipv6 = format!("all {most_ipv6} of ipv6-connections; of both families {in_use}");
        let without_place = counts.without_place + counts.bucket_full;
        let all = self
            .room
            .look(without_place, now)
            .map(|news| room(news, "connections", [&in_use, &in_use]));
        let ipv6 = self.ipv6_room.look(counts.ipv6_full, now);
        let ipv6 = ipv6.map(|news| room(news, "IPv6 connections", [&in_use_ipv6, &in_use]));
        let limits = self.limits.look(connections.take_reached_limits(), now);
        let limits = limits.into_iter().map(|(which, news)| limit(which, zone, news));
        let helpers = self.helpers.look(helped.refused, now).map(helpers);
        all.into_iter().chain(ipv6).chain(limits).chain(helpers).collect()
    }
}

/// `in_use` is how many there are: as it begins, and as it ends.
fn room(news: News, what: &str, in_use: [&str; 2]) -> (String, bool) {
    let [begins, ends] = in_use;
    match news {
        News::Begins => {
            let text = format!(
                "no room for more {what} ({begins} are in use): half-open and closed ones make \
                 room, and where there are none new ones are dropped (connection_full); \
                 established ones go on"
            );
            (text, true)
        }
        News::Ends(count) => {
            let text = format!(
                "for a minute no {what} had to make room ({ends} are in use); {count} times one \
                 made room, or none could"
            );
            (text, false)
        }
    }
}

fn limit(
    which: Option<ReachedLimit>,
    zone: &dyn Fn(u16) -> Option<String>,
    news: News,
) -> (String, bool) {
    let what = which.map_or_else(|| "of more sources".to_owned(), |which| named(&which, zone));
    match news {
        News::Begins => {
            let text = format!(
                "a limit of connections is reached, {what}: new ones that it counts are dropped \
                 (connection_limit); those that there are go on"
            );
            (text, true)
        }
        News::Ends(count) => {
            let text = format!(
                "a limit of connections has refused nothing for a minute, {what}; {count} were \
                 dropped"
            );
            (text, false)
        }
    }
}

/// Which limit, and whose: `500 of source address 10.1.0.5 in conntrack zone 0`
fn named(limit: &ReachedLimit, zone: &dyn Fn(u16) -> Option<String>) -> String {
    let ReachedLimit { kind, of, source, connections } = *limit;
    let place = match kind {
        // A zone that is gone meanwhile has its number alone.
        LimitKind::Class | LimitKind::ClassSource => {
            format!("firewall zone {}", zone(of).unwrap_or_else(|| of.to_string()))
        }
        LimitKind::Zone | LimitKind::Source | LimitKind::Prefix => format!("conntrack zone {of}"),
    };
    let what = match kind {
        LimitKind::Source | LimitKind::ClassSource => "source address",
        _ => "source prefix",
    };
    match source {
        None => format!("{connections} of {place}"),
        Some(source) if source.is_host() => {
            format!("{connections} of {what} {} in {place}", source.address())
        }
        Some(source) => format!("{connections} of {what} {source} in {place}"),
    }
}

fn helpers(news: News) -> (String, bool) {
    match news {
        News::Begins => {
            let text = "helpers have no room for what FTP or TFTP announces: such data connections \
                        are not expected (expect_failed)";
            (text.to_owned(), true)
        }
        News::Ends(count) => {
            let text = format!(
                "for a minute helpers had room for all that is announced; {count} announcements \
                 found none"
            );
            (text, false)
        }
    }
}

#[cfg(test)]
mod tests {
    use std::sync::Arc;

    use conntrack::{ClassLimits, Connections, New, Packet, Settings, SourceLimits, Tuple};
    use wire::{Addresses, Protocol};

    use super::*;

    #[test]
    fn a_full_table_is_said_once_and_so_is_its_end() {
        let at = |seconds: u64| Time(seconds * 1_000_000_000);
        let settings = Settings { connections: 4, ipv6_connections: 4, ..Settings::default() };
        let connections = Arc::new(Connections::new(&settings, [1, 2], at(1)).unwrap());
        let mut tables = Tables::new(1, 7);
        let mut log = ConnectionLog::default();
        assert_eq!(log.lines(&tables, &|_| None, at(1)), [], "without connections");
        tables.set_connections(connections.clone());
        let open = |port: u16| {
            let addresses =
                Addresses::V4 { source: [10, 0, 0, 1].into(), destination: [10, 0, 0, 2].into() };
            let new = New::plain(0, Tuple::new(addresses, Protocol::UDP, port, 53));
            _ = connections.commit(&new, &Packet::Datagram, 60, at(2), &mut |_| ());
        };
        (0..4).for_each(open);
        assert_eq!(log.lines(&tables, &|_| None, at(2)), [], "as many as there may be");
        (4..40).for_each(open);
        let [(line, is_warning)] = &log.lines(&tables, &|_| None, at(3))[..] else {
            panic!("one line")
        };
        assert!(is_warning, "{line}");
        assert!(line.starts_with("no room for more connections (4 of 4 are in use): "), "{line}");
        (40..50).for_each(open);
        assert_eq!(log.lines(&tables, &|_| None, at(4)), [], "it is known");
        let [(line, false)] = &log.lines(&tables, &|_| None, at(70))[..] else {
            panic!("one line")
        };
        assert!(line.ends_with("; 46 times one made room, or none could"), "{line}");
    }

    /// There are places for IPv4: which setting it is has to be said.
    #[test]
    fn the_share_of_ipv6_is_named() {
        let at = |seconds: u64| Time(seconds * 1_000_000_000);
        let settings = Settings { connections: 64, ipv6_connections: 8, ..Settings::default() };
        let connections = Arc::new(Connections::new(&settings, [1, 2], at(1)).unwrap());
        let mut tables = Tables::new(1, 7);
        let mut log = ConnectionLog::default();
        tables.set_connections(connections.clone());
        let open = |port: u16| {
            let addresses = Addresses::V6 {
                source: "fd00::1".parse().unwrap(),
                destination: "fd00::2".parse().unwrap(),
            };
            let new = New::plain(0, Tuple::new(addresses, Protocol::UDP, port, 53));
            _ = connections.commit(&new, &Packet::Datagram, 60, at(2), &mut |_| ());
        };
        (0..8).for_each(open);
        assert_eq!(log.lines(&tables, &|_| None, at(2)), []);
        (8..20).for_each(open);
        let [(line, true)] = &log.lines(&tables, &|_| None, at(3))[..] else { panic!("one line") };
        let told = "no room for more IPv6 connections (all 8 of ipv6-connections; of both families 8 of \
                    64 are in use): ";
        assert!(line.starts_with(told), "{line}");
        let [(line, false)] = &log.lines(&tables, &|_| None, at(70))[..] else {
            panic!("one line")
        };
        let told =
            "for a minute no IPv6 connections had to make room (8 of 64 are in use); 12 times ";
        assert!(line.starts_with(told), "{line}");
    }

    /// Who reads the line knows which limit it is and whose connections it refuses.
    #[test]
    fn a_limit_is_named_and_so_is_whose_it_is() {
        let at = |seconds: u64| Time(seconds * 1_000_000_000);
        let connections = Connections::new(&Settings::default(), [1, 2], at(1)).unwrap();
        let connections = Arc::new(connections);
        let source = SourceLimits { source: 3, prefix: 5, ipv4_length: 24, ipv6_length: 64 };
        connections.limit_sources(source);
        connections.limit_zone(7, 2);
        connections.limit_classes([(1, ClassLimits { connections: 2, source: 1 })]);
        let mut tables = Tables::new(1, 7);
        tables.set_connections(connections.clone());
        let open = |zone: u16, class: u16, last: u8, port: u16| {
            let addresses = Addresses::V4 {
                source: [10, 0, 0, last].into(),
                destination: [10, 0, 1, 2].into(),
            };
            let tuple = Tuple::new(addresses, Protocol::UDP, port, 53);
            let new = New { class, ..New::plain(zone, tuple) };
            _ = connections.commit(&new, &Packet::Datagram, 60, at(2), &mut |_| ());
        };
        let mut log = ConnectionLog::default();
        let named = |class: u16| (class == 1).then(|| "guest".to_owned());
        let mut said = |open: &dyn Fn()| {
            open();
            let lines = log.lines(&tables, &named, at(3)).into_iter();
            let lines = lines.map(|(line, is_warning)| {
                assert!(is_warning, "{line}");
                let (limit, rest) = line.split_once(": new ones that it counts").unwrap();
                assert!(rest.starts_with(" are dropped (connection_limit)"), "{line}");
                limit.strip_prefix("a limit of connections is reached, ").unwrap().to_owned()
            });
            lines.collect::<Vec<_>>()
        };
        assert_eq!(
            said(&|| (0..9).for_each(|port| open(0, 0, 1, port))),
            ["3 of source address 10.0.0.1 in conntrack zone 0"]
        );
        assert_eq!(
            said(&|| (2..9).for_each(|last| open(0, 0, last, 1))),
            ["5 of source prefix 10.0.0.0/24 in conntrack zone 0"]
        );
        assert_eq!(
            said(&|| (1..4).for_each(|last| open(7, 0, last, 1))),
            ["2 of conntrack zone 7"]
        );
        let of_class = |last| (0..9).for_each(|port| open(9, 1, last, port));
        assert_eq!(said(&|| of_class(1)), ["1 of source address 10.0.0.1 in firewall zone guest"]);
        open(9, 1, 2, 1);
        assert_eq!(said(&|| open(9, 1, 3, 1)), ["2 of firewall zone guest"]);
        let lines = log.lines(&tables, &named, at(70));
        assert_eq!(lines.len(), 5, "{lines:?}");
        let over = "a limit of connections has refused nothing for a minute, 2 of conntrack zone 7; 1 \
                    were dropped";
        assert!(lines.contains(&(over.to_owned(), false)), "{lines:?}");
    }
}
