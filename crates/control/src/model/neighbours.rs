//! Neighbours: permanent ones, and those learned from the link, which grow old.
//!
//! A learned neighbour that sent nothing for [`REACHABLE`] is asked whether it is still there, up
//! to [`PROBES`] times, and used meanwhile (RFC 4861 section 7.3). If it does not answer it is
//! removed, and the next packet to it resolves it anew. Only the answer to a question of the
//! gateway makes a neighbour known; an unsolicited message can at most move one that is known (RFC
//! 4861 section 7.2.5).

use std::collections::BTreeMap;
use std::net::IpAddr;
use std::time::Duration;

use api::{NeighbourCounts, NeighbourState, Origin};
use packet::Time;
use tables::{Event, Probe, Tables};
use types::{LinkKind, Mac, PortId};

use super::tree::Tree;

/// How long a neighbour counts as reachable after its last message.
pub(super) const REACHABLE: Duration = Duration::from_secs(60);

/// How long a neighbour has to answer a question.
pub(super) const PROBE_INTERVAL: Duration = Duration::from_secs(1);

/// How often it is asked.
pub(super) const PROBES: u8 = 3;

/// The most questions asked at once; more wait until the next time.
const MAX_PROBES_AT_ONCE: usize = 256;

/// The most neighbours of one family learned on one port. Both families together are less than the
/// tables hold, so that permanent ones always find room.
pub(super) const MAX_LEARNED: usize = 16_384;

/// All neighbours, by port and address.
#[derive(Clone, Debug, Default)]
pub(super) struct Neighbours {
    entries: Tree<(PortId, IpAddr), Neighbour>,
    /// When to look at each learned one again.
    due: Tree<(Time, PortId, IpAddr), ()>,
    /// By port and whether they are of IPv6.
    learned: Tree<(PortId, bool), usize>,
    /// Answers on a port that there was no room for.
    refused: Tree<PortId, u64>,
    /// As they were when they were about to change, if somebody follows.
    touched: Option<BTreeMap<(PortId, IpAddr), Option<Neighbour>>>,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct Neighbour {
    pub(super) mac: Mac,
    pub(super) how: How,
}

/// How a neighbour came to be known.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum How {
    /// By the configuration file or a command.
    Permanent(Origin),
    /// By a message of its own.
    Learned {
        /// When its last message came.
        seen: Time,
        /// How often it has been asked since.
        probes: u8,
        /// When to look at it again.
        due: Time,
    },
}

impl Neighbour {
    pub(super) fn state(&self) -> NeighbourState {
        match self.how {
            How::Permanent(_) => NeighbourState::Permanent,
            How::Learned { probes: 0, .. } => NeighbourState::Reachable,
            How::Learned { .. } => NeighbourState::Probe,
        }
    }

    pub(super) fn origin(&self) -> Origin {
        match self.how {
            How::Permanent(origin) => origin,
            How::Learned { .. } => Origin::Gateway,
        }
    }
}

impl Neighbours {
    pub(super) fn get(&self, port: PortId, address: IpAddr) -> Option<&Neighbour> {
        self.entries.get(&(port, address))
    }

    pub(super) fn iter(&self) -> impl Iterator<Item = (PortId, IpAddr, &Neighbour)> {
        self.entries.iter().map(|((port, address), neighbour)| (*port, *address, neighbour))
    }

    pub(super) fn of_port(&self, port: PortId) -> impl Iterator<Item = (IpAddr, &Neighbour)> {
        let from = (port, IpAddr::from([0; 4]));
        self.entries
            .from(from)
            .take_while(move |((of, _), _)| *of == port)
            .map(|((_, address), neighbour)| (*address, neighbour))
    }

    /// Puts a permanent one, in place of what was known.
    pub(super) fn put_permanent(
        &mut self,
        port: PortId,
        address: IpAddr,
        mac: Mac,
        origin: Origin,
    ) {
        self.put(port, address, Neighbour { mac, how: How::Permanent(origin) });
    }

    pub(super) fn remove(&mut self, port: PortId, address: IpAddr) -> Option<Neighbour> {
        self.touch(port, address);
        let neighbour = self.entries.remove(&(port, address))?;
        if let How::Learned { due, .. } = neighbour.how {
            self.due.remove(&(due, port, address));
            if let Some(count) = self.learned.get_mut(&(port, address.is_ipv6())) {
                *count -= 1;
            }
        }
        Some(neighbour)
    }

    /// Notes from now on what changes, or nothing any more.
    pub(super) fn watch(&mut self, is_on: bool) {
        self.touched = is_on.then(BTreeMap::new);
    }

    /// What there was of those that may have changed since this was called last.
    pub(super) fn touched(&mut self) -> BTreeMap<(PortId, IpAddr), Option<Neighbour>> {
        self.touched.as_mut().map(std::mem::take).unwrap_or_default()
    }

    fn touch(&mut self, port: PortId, address: IpAddr) {
        if let Some(touched) = &mut self.touched {
            let entries = &self.entries;
            touched
                .entry((port, address))
                .or_insert_with(|| entries.get(&(port, address)).copied());
        }
    }

    /// Removes all of a port. Returns them.
    pub(super) fn remove_port(&mut self, port: PortId) -> Vec<(IpAddr, Neighbour)> {
        let addresses: Vec<_> = self.of_port(port).map(|(address, _)| address).collect();
        let removed = addresses
            .into_iter()
            .filter_map(|address| Some((address, self.remove(port, address)?)))
            .collect();
        for is_ipv6 in [false, true] {
            self.learned.remove(&(port, is_ipv6));
        }
        self.refused.remove(&port);
        removed
    }

    /// Forgets the learned ones of a port.
    pub(super) fn forget_learned(&mut self, tables: &mut Tables, port: PortId) {
        let learned = |(address, neighbour): (IpAddr, &Neighbour)| {
            matches!(neighbour.how, How::Learned { .. }).then_some(address)
        };
        for address in self.of_port(port).filter_map(learned).collect::<Vec<_>>() {
            self.remove(port, address);
            // An error means that the tables have removed it already.
            let _ = tables.remove_neighbour(port, address);
        }
    }

    /// Applies a worker's event. Returns whether the tables changed.
    pub(super) fn hear(&mut self, tables: &mut Tables, event: Event, now: Time) -> bool {
        match event {
            Event::NeighbourSeen { port, since, address, mac, solicited } => {
                if tables.port(port).is_none_or(|port| port.since != since) {
                    return false;
                }
                let known = self.get(port, address).copied();
                match known.map(|neighbour| neighbour.how) {
                    Some(How::Permanent(_)) => return false,
                    Some(How::Learned { .. }) => {}
                    None if !solicited || !may_be(tables, port, address) => return false,
                    None if self.learned(port, address.is_ipv6()) >= MAX_LEARNED => {
                        self.refused.change_or_add(port, |count| *count += 1);
                        return false;
                    }
                    None => {}
                }
                if tables.set_neighbour(port, address, mac).is_err() {
                    return false;
                }
                self.put(
                    port,
                    address,
                    Neighbour {
                        mac,
                        how: How::Learned { seen: now, probes: 0, due: now + REACHABLE },
                    },
                );
                known.is_none_or(|known| known.mac != mac)
            }
            Event::NeighbourSilent { port, since, address } => {
                if tables.port(port).is_none_or(|port| port.since != since) {
                    return false;
                }
                match self.get(port, address).map(|neighbour| neighbour.how) {
                    Some(How::Learned { .. }) => {
                        self.remove(port, address);
                        tables.remove_neighbour(port, address).is_ok()
                    }
                    _ => false,
                }
            }
            Event::AddressConflict { .. } | Event::SequenceNumbers { .. } | Event::Logged(_) => {
                false
            }
        }
    }

    /// Returns the neighbours to ask now, and whether the tables changed. Neighbours that did not
    /// answer are removed.
    pub(super) fn age(&mut self, tables: &mut Tables, now: Time) -> (Vec<Probe>, bool) {
        let (mut asked, mut changed) = (Vec::new(), false);
        while let Some((due, port, address)) = self.next_due(now) {
            let Some(neighbour) = self.get(port, address).copied() else {
                self.due.remove(&(due, port, address));
                continue;
            };
            let How::Learned { seen, probes, .. } = neighbour.how else {
                self.due.remove(&(due, port, address));
                continue;
            };
            if probes == PROBES {
                self.remove(port, address);
                changed |= tables.remove_neighbour(port, address).is_ok();
                continue;
            }
            if asked.len() == MAX_PROBES_AT_ONCE {
                break;
            }
            asked.push(Probe { port, address, mac: neighbour.mac });
            let how = How::Learned { seen, probes: probes + 1, due: now + PROBE_INTERVAL };
            self.put(port, address, Neighbour { how, ..neighbour });
        }
        (asked, changed)
    }

    /// Brings the tables' neighbours of a changed port in line with those here, and removes learned
    /// ones that the change made wrong.
    pub(super) fn settle(&mut self, tables: &mut Tables, port: PortId) {
        let all: Vec<_> =
            self.of_port(port).map(|(address, neighbour)| (address, *neighbour)).collect();
        for (address, neighbour) in all {
            let on_link = tables
                .port(port)
                .is_some_and(|port| tables.may_be_on_link(port, address) && !port.owns(address));
            let learned = matches!(neighbour.how, How::Learned { .. });
            if learned && !on_link {
                self.remove(port, address);
                // An error means that the port has removed it already.
                let _ = tables.remove_neighbour(port, address);
            } else if tables.set_neighbour(port, address, neighbour.mac).is_err() {
                // It is the port's own address now. It stays desired until it is not.
                let _ = tables.remove_neighbour(port, address);
            }
        }
    }

    /// The learned one that is to be looked at first, if its time has come.
    fn next_due(&self, now: Time) -> Option<(Time, PortId, IpAddr)> {
        self.due.keys().next().copied().filter(|(due, ..)| *due <= now)
    }

    /// How many of a family were learned on a port.
    fn learned(&self, port: PortId, is_ipv6: bool) -> usize {
        self.learned.get(&(port, is_ipv6)).copied().unwrap_or(0)
    }

    /// How many were learned on a port, and how many answers there was no room for.
    pub(super) fn counts(&self, port: PortId) -> NeighbourCounts {
        NeighbourCounts {
            ipv4: self.learned(port, false) as u64,
            ipv6: self.learned(port, true) as u64,
            limit: MAX_LEARNED as u64,
            refused: self.refused.get(&port).copied().unwrap_or(0),
        }
    }

    fn put(&mut self, port: PortId, address: IpAddr, neighbour: Neighbour) {
        self.remove(port, address);
        if let How::Learned { due, .. } = neighbour.how {
            self.due.insert((due, port, address), ());
            self.learned.change_or_add((port, address.is_ipv6()), |count| *count += 1);
        }
        self.entries.insert((port, address), neighbour);
    }
}

/// Whether a station on the port's link may have the address.
fn may_be(tables: &Tables, port: PortId, address: IpAddr) -> bool {
    let Some(found) = tables.port(port) else { return false };
    found.spec.link == LinkKind::Ethernet
        && tables.may_be_on_link(found, address)
        && !tables.is_local(found.spec.vrf, port, address)
}
