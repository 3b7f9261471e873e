//! Next hops, and the neighbours that they lead to.

use std::net::IpAddr;
use std::sync::Arc;

use packet::LinkKind;
use types::station::{check_station, check_station_mac};
use wire::{Mac, PortId};

use super::Tables;
use crate::cells::CellId;
use crate::error::{NotAPeer, TableError};
use crate::log::Change;
use crate::neighbour::{MAX_NEIGHBOURS, Neighbour};
use crate::next_hop::{NextHop, NextHopCounters, NextHopId};
use crate::port::{Port, PortSpec};
use crate::vlan::VlanCounters;

impl Tables {
    /// A next hop. Constant work: workers ask for each packet.
    #[inline(always)]
    pub fn next_hop(&self, id: NextHopId) -> Option<&NextHop> {
        self.next_hops.get(id)
    }

    /// Asks for the memory that [`Tables::next_hop`] will read.
    #[inline(always)]
    pub fn prefetch_next_hop(&self, id: NextHopId) {
        self.next_hops.prefetch(id);
    }

    /// Packets and bytes that were sent to a next hop since it came: IP packets, those of tunnels
    /// with their outer header.
    pub fn next_hop_counters(&self, id: NextHopId) -> Option<&NextHopCounters> {
        self.next_hops.counters(id)
    }

    /// The next hop of packets to `address` on the link of `port`: that of the neighbour, if it is
    /// known or a route leads to it; otherwise the port's own. `None` if there is no such port.
    ///
    /// What this returns for an address changes with [`Change::NextHop`] alone, or with the port.
    #[inline(always)]
    pub fn on_link_next_hop(&self, port: PortId, address: IpAddr) -> Option<NextHopId> {
        let port = self.port(port)?;
        Some(port.neighbours.next_hop(address).unwrap_or(port.next_hop))
    }

    /// Every next hop, by id.
    pub fn next_hops(&self) -> impl Iterator<Item = (NextHopId, &NextHop)> {
        self.next_hops.iter()
    }

    /// How many next hops there are.
    pub fn next_hop_count(&self) -> usize {
        self.next_hops.len()
    }

    /// Sets a neighbour's Ethernet address. Packets to it can be sent from now on.
    ///
    /// # Errors
    /// [`TableError::NoPort`], [`TableError::NoEthernet`], [`TableError::NeighbourAddress`],
    /// [`TableError::NeighbourMac`], [`TableError::NeighboursFull`], [`TableError::Limit`].
    pub fn set_neighbour(
        &mut self,
        port: PortId,
        address: IpAddr,
        mac: Mac,
    ) -> Result<(), TableError> {
        let found = self.existing_port(port)?;
        if found.spec.link != LinkKind::Ethernet {
            return Err(TableError::NoEthernet(Arc::clone(&found.spec.name)));
        }
        let refused = |why| Err(TableError::NeighbourAddress { address, why });
        if found.owns(address) {
            return refused(NotAPeer::Own);
        }
        if found.has_broadcast(address) {
            return refused(NotAPeer::Broadcast);
        }
        if let Err(why) = check_station(address) {
            return refused(NotAPeer::Station(why));
        }
        check_station_mac(mac).map_err(|why| TableError::NeighbourMac { address, mac, why })?;
        match found.neighbours.lookup(address) {
            Some(known) if known == mac => return Ok(()),
            None if found.neighbours.len() >= MAX_NEIGHBOURS => {
                return Err(TableError::NeighboursFull(Arc::clone(&found.spec.name)));
            }
            _ => {}
        }
        let changed = self.change_neighbour(port, address, |known| known.mac = Some(mac))?;
        self.next_hop_changed(port, address, changed);
        Ok(())
    }

    /// Forgets a neighbour. Packets by a route to it wait until it is known again.
    ///
    /// # Errors
    /// [`TableError::NoPort`], [`TableError::NoNeighbour`].
    pub fn remove_neighbour(&mut self, port: PortId, address: IpAddr) -> Result<Mac, TableError> {
        let found = self.existing_port(port)?;
        let missing = TableError::NoNeighbour { port: Arc::clone(&found.spec.name), address };
        let mac = found.neighbours.lookup(address).ok_or(missing)?;
        let changed = self.change_neighbour(port, address, |known| known.mac = None)?;
        self.next_hop_changed(port, address, changed);
        Ok(mac)
    }

    /// The next hop for one more route.
    pub(super) fn hold_next_hop(
        &mut self,
        port: PortId,
        address: IpAddr,
    ) -> Result<NextHopId, TableError> {
        let changed = self.change_neighbour(port, address, |wanted| wanted.routes += 1)?;
        self.next_hop_changed(port, address, changed);
        self.on_link_next_hop(port, address).ok_or(TableError::NoPort(port))
    }

    /// The next hop is needed by one route less.
    pub(super) fn release_next_hop(&mut self, id: NextHopId) -> Result<(), TableError> {
        let Some(&NextHop { port, address: Some(address), .. }) = self.next_hop(id) else {
            return Ok(());
        };
        let changed = self.change_neighbour(port, address, |wanted| wanted.routes -= 1)?;
        self.next_hop_changed(port, address, changed);
        Ok(())
    }

    /// Changes what is known of a neighbour or wanted of it, and its next hop with that. Both come
    /// when it is first known or wanted, and go when it is neither. Returns whether they came or
    /// went. On refusal nothing is changed.
    pub(super) fn change_neighbour(
        &mut self,
        port: PortId,
        address: IpAddr,
        change: impl FnOnce(&mut Neighbour),
    ) -> Result<bool, TableError> {
        let Port { spec, side, neighbours, is_queued, .. } = self.existing_port(port)?;
        let old = neighbours.get(address).copied();
        let mut new = old.unwrap_or(Neighbour { next_hop: NextHopId(0), mac: None, routes: 0 });
        change(&mut new);
        let is_needed = new.mac.is_some() || new.routes > 0;
        let next_hop = NextHop::new(port, (spec, *side), Some(address), new.mac);
        let next_hop = next_hop.queued_if(*is_queued).counted_in(self.frames_of(port, spec));
        match old {
            Some(old) if is_needed => self.next_hops.set(old.next_hop, next_hop),
            Some(old) => self.next_hops.remove(old.next_hop),
            None if is_needed => {
                let counters = &mut self.port_counters;
                let beside = || counters.get_mut(port.0.into())?.take_beside();
                new.next_hop = self.next_hops.add(next_hop, beside)?;
            }
            None => return Ok(false),
        }
        let neighbours = Arc::make_mut(&mut self.port_mut(port)?.neighbours);
        match is_needed {
            true => neighbours.set(address, new),
            false => neighbours.remove(address),
        }
        Ok(old.is_some() != is_needed)
    }

    /// Notes that a next hop came or went. One that only changed concerns no decision: decisions
    /// name its id, which stays.
    fn next_hop_changed(&mut self, port: PortId, address: IpAddr, came_or_went: bool) {
        if came_or_went {
            self.changed(Change::NextHop { port, address });
        }
    }

    /// Makes the next hops of a port what the port is now. `old` is the port before.
    pub(super) fn refresh_next_hops(&mut self, old: &Port) -> Result<(), TableError> {
        let port = self.existing_port(old.id)?;
        if port.spec.link != old.spec.link {
            let known: Vec<_> = port.neighbours.iter().collect();
            for (address, _) in in_order(known) {
                self.change_neighbour(old.id, address, |known| known.mac = None)?;
            }
        }
        let port = self.existing_port(old.id)?.clone();
        let parts = |port: &Port| (port.spec.link, port.spec.mac, port.spec.mtu, port.spec.up);
        if parts(&port) == parts(old) && (port.side, port.is_queued) == (old.side, old.is_queued) {
            return Ok(());
        }
        let like = (&port.spec, port.side);
        let frames = self.frames_of(port.id, &port.spec);
        let own = NextHop::new(port.id, like, None, None).queued_if(port.is_queued);
        self.next_hops.set(port.next_hop, own.counted_in(frames));
        for (address, neighbour) in port.neighbours.all() {
            let next_hop = NextHop::new(port.id, like, Some(*address), neighbour.mac);
            let next_hop = next_hop.queued_if(port.is_queued).counted_in(frames);
            self.next_hops.set(neighbour.next_hop, next_hop);
        }
        if port.spec.up != old.spec.up {
            self.refresh_groups(port.id);
        }
        Ok(())
    }

    /// See [`NextHop::frames`].
    pub(super) fn frames_of(&self, id: PortId, spec: &PortSpec) -> [Option<CellId>; 2] {
        let Some(vlan) = spec.vlan else { return [None; 2] };
        let sent = |port| self.port_counters(port).map(VlanCounters::sent_id);
        [sent(id), vlan.is_inner().then(|| sent(vlan.parent)).flatten()]
    }

    /// Removes the next hops of all neighbours of a port that is gone from its VRF.
    pub(super) fn remove_next_hops(&mut self, old: &Port) {
        // In order, so that the ids given out next do not depend on the secret of the hash tables.
        let ids = old.neighbours.all().map(|(_, neighbour)| neighbour.next_hop).collect();
        for id in in_order(ids) {
            self.next_hops.remove(id);
        }
    }
}

fn in_order<T: Ord>(mut all: Vec<T>) -> Vec<T> {
    all.sort_unstable();
    all
}
