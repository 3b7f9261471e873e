//! What the log says of connections: that there is no room for them, or that a limit refuses them.

use packet::Time;
use tables::Tables;

use crate::daemon::alarm::{Alarm, News};

/// What was said of connections.
#[derive(Default)]
pub(crate) struct ConnectionLog {
    room: Alarm,
    limits: Alarm,
    helpers: Alarm,
}

impl ConnectionLog {
    /// What is new: lines, and whether each is a warning.
    pub(crate) fn lines(&mut self, tables: &Tables, now: Time) -> Vec<(String, bool)> {
        let Some(connections) = tables.connections() else { return Vec::new() };
        let (counts, helped) = (connections.counts(), connections.helper_counts());
        let without_room = counts.early_drop + counts.full + counts.bucket_full;
        let in_use = format!("{} of {}", counts.connections, connections.settings().connections);
        [
            self.room.look(without_room, now).map(|news| room(news, &in_use)),
            self.limits.look(counts.limit, now).map(limits),
            self.helpers.look(helped.refused, now).map(helpers),
        ]
        .into_iter()
        .flatten()
        .collect()
    }
}

fn room(news: News, in_use: &str) -> (String, bool) {
    match news {
        News::Begins => {
            let text = format!(
                "no room for more connections ({in_use} are in use): half-open and closed ones make \
                 room, and where there are none new ones are dropped (connection_full); \
                 established ones go on"
            );
            (text, true)
        }
        News::Ends(count) => {
            let text = format!(
                "room for connections again ({in_use} are in use); {count} times one made room, or \
                 none could"
            );
            (text, false)
        }
    }
}

fn limits(news: News) -> (String, bool) {
    match news {
        News::Begins => {
            let text = "a limit of connections is reached: new ones that it counts are dropped \
                        (connection_limit); those that there are go on";
            (text.to_owned(), true)
        }
        News::Ends(count) => {
            (format!("no limit of connections is reached any more; {count} were dropped"), false)
        }
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
            let text = format!("helpers have room again; {count} announcements found none");
            (text, false)
        }
    }
}

#[cfg(test)]
mod tests {
    use std::sync::Arc;

    use conntrack::{Connections, New, Packet, Settings, Tuple};
    use wire::{Addresses, Protocol};

    use super::*;

    #[test]
    fn a_full_table_is_said_once_and_so_is_its_end() {
        let at = |seconds: u64| Time(seconds * 1_000_000_000);
        let settings = Settings { connections: 4, ipv6_connections: 4, ..Settings::default() };
        let connections = Arc::new(Connections::new(&settings, [1, 2], at(1)).unwrap());
        let mut tables = Tables::new(1, 7);
        let mut log = ConnectionLog::default();
        assert_eq!(log.lines(&tables, at(1)), [], "without connections");
        tables.set_connections(connections.clone());
        let open = |port: u16| {
            let addresses =
                Addresses::V4 { source: [10, 0, 0, 1].into(), destination: [10, 0, 0, 2].into() };
            let new = New::plain(0, Tuple::new(addresses, Protocol::UDP, port, 53));
            _ = connections.commit(&new, &Packet::Datagram, 60, at(2), &mut |_| ());
        };
        (0..4).for_each(open);
        assert_eq!(log.lines(&tables, at(2)), [], "as many as there may be");
        (4..40).for_each(open);
        let [(line, is_warning)] = &log.lines(&tables, at(3))[..] else { panic!("one line") };
        assert!(is_warning, "{line}");
        assert!(line.starts_with("no room for more connections (4 of 4 are in use): "), "{line}");
        (40..50).for_each(open);
        assert_eq!(log.lines(&tables, at(4)), [], "it is known");
        let [(line, false)] = &log.lines(&tables, at(70))[..] else { panic!("one line") };
        assert!(line.ends_with("; 46 times one made room, or none could"), "{line}");
    }
}
