//! What the log says of other stations that have addresses of the gateway's ports.

use std::collections::BTreeMap;
use std::net::IpAddr;
use std::time::Duration;

use packet::Time;
use tables::{Port, Tables};
use wire::{Mac, PortId};

/// How long nothing more is said of an address of a port. A conflict that lasts is seen by every
/// worker, again and again.
const INTERVAL: Duration = Duration::from_secs(60);

/// The conflicts that were said within [`INTERVAL`]: of addresses of the gateway alone.
#[derive(Default)]
pub(crate) struct ConflictLog {
    said: BTreeMap<(PortId, IpAddr), Time>,
}

/// A conflict that a worker has told of.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Conflict {
    /// By which port, and since when it is what it is: see [`tables::Event::NeighbourSeen`].
    pub port: (PortId, u64),
    pub address: IpAddr,
    /// The other station.
    pub mac: Mac,
}

impl ConflictLog {
    /// The name of the VRF and the line, if there is to be one.
    pub(crate) fn line<'t>(
        &mut self,
        conflict: &Conflict,
        tables: &'t Tables,
        now: Time,
    ) -> Option<(&'t str, String)> {
        let &Conflict { port: (id, since), address, mac } = conflict;
        let is_still_so = |port: &&Port| port.since == since && port.owns(address);
        let port = tables.port(id).filter(is_still_so)?;
        self.said.retain(|_, said| now.since(*said) < INTERVAL);
        if self.said.contains_key(&(id, address)) {
            return None;
        }
        self.said.insert((id, address), now);
        let vrf = tables.vrf(port.spec.vrf).map_or("?", |vrf| &*vrf.name);
        let name = &port.spec.name;
        Some((vrf, format!("another station has {address}, an address of port {name}: {mac}")))
    }
}

#[cfg(test)]
mod tests {
    use tables::PortSpec;

    use super::*;

    #[test]
    fn a_conflict_that_lasts_is_said_once_a_minute() {
        let mut tables = Tables::new(1, 7);
        let id = PortId(3);
        let mut spec = PortSpec::new("lan", Mac([2, 0, 0, 0, 0, 1]));
        spec.addresses = vec!["10.1.0.1/24".parse().unwrap(), "fd01::1/64".parse().unwrap()];
        tables.add_port(id, spec).unwrap();
        let since = tables.port(id).unwrap().since;
        let conflict = |address: &str| Conflict {
            port: (id, since),
            address: address.parse().unwrap(),
            mac: Mac([0x52, 0x54, 0, 0x12, 0x34, 0x56]),
        };
        let mut log = ConflictLog::default();
        let mut line = |conflict: &Conflict, seconds: u64| {
            let line = log.line(conflict, &tables, Time(seconds * 1_000_000_000));
            line.map(|(vrf, line)| (vrf.to_owned(), line))
        };
        let text = "another station has 10.1.0.1, an address of port lan: 52:54:00:12:34:56";
        assert_eq!(line(&conflict("10.1.0.1"), 100), Some(("main".to_owned(), text.to_owned())));
        assert_eq!(line(&conflict("10.1.0.1"), 159), None);
        assert!(line(&conflict("fd01::1"), 159).is_some(), "another address");
        assert!(line(&conflict("10.1.0.1"), 160).is_some());
        assert_eq!(line(&conflict("fd01::1"), 161), None);
        // What is not so any more.
        let earlier = Conflict { port: (id, since + 1), ..conflict("10.1.0.1") };
        assert_eq!(line(&earlier, 1000), None);
        assert_eq!(line(&conflict("10.1.0.9"), 1000), None, "no address of the port");
        assert_eq!(line(&Conflict { port: (PortId(4), 0), ..earlier }, 1000), None);
    }
}
