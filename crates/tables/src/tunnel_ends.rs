//! The addresses in which tunnels end, and the ports that hold them or lead to them.

use core::ops::RangeInclusive;
use std::collections::BTreeMap;
use std::net::IpAddr;
use std::sync::Arc;

use wire::{IpPrefix, PortId, VrfId};

/// The ends of all tunnels: of SAs and of policies' templates.
#[derive(Clone, Debug)]
pub(crate) struct TunnelEnds {
    /// By address, so that the ends that a route leads to stand side by side; in parts, so that a
    /// change copies one of them.
    parts: [Arc<BTreeMap<(VrfId, IpAddr), End>>; PARTS],
    /// How many ends each port holds or leads to. None is zero.
    by_port: BTreeMap<PortId, usize>,
    /// How many ends are in each VRF. None is zero.
    by_vrf: BTreeMap<VrfId, usize>,
}

/// In how many parts the ends stand.
const PARTS: usize = 64;

#[derive(Clone, Debug, Default)]
struct End {
    /// SAs and templates that name it.
    users: usize,
    /// Who holds the address, or else by whom the route to it leaves. Each once.
    ports: Box<[PortId]>,
}

impl Default for TunnelEnds {
    fn default() -> Self {
        let parts = core::array::from_fn(|_| Arc::default());
        Self { parts, by_port: BTreeMap::new(), by_vrf: BTreeMap::new() }
    }
}

/// In which part an end stands: ends side by side in different ones.
fn part(address: IpAddr) -> usize {
    let number = match address {
        IpAddr::V4(address) => u64::from(address.to_bits()),
        IpAddr::V6(address) => (address.to_bits() >> 64) as u64 ^ address.to_bits() as u64,
    };
    (number.wrapping_mul(0x9e37_79b9_7f4a_7c15) >> (64 - PARTS.ilog2())) as usize
}

impl TunnelEnds {
    fn part_mut(&mut self, address: IpAddr) -> &mut BTreeMap<(VrfId, IpAddr), End> {
        Arc::make_mut(&mut self.parts[part(address)])
    }

    /// Counts one more user of an end. Returns whether it is the first.
    pub(crate) fn hold(&mut self, vrf: VrfId, address: IpAddr) -> bool {
        let end = self.part_mut(address).entry((vrf, address)).or_default();
        end.users += 1;
        let is_first = end.users == 1;
        if is_first {
            *self.by_vrf.entry(vrf).or_default() += 1;
        }
        is_first
    }

    /// Counts one user of an end less. Returns the ports of the end if it was the last.
    pub(crate) fn release(&mut self, vrf: VrfId, address: IpAddr) -> Box<[PortId]> {
        let ends = self.part_mut(address);
        let Some(end) = ends.get_mut(&(vrf, address)) else { return Box::default() };
        end.users -= 1;
        if end.users > 0 {
            return Box::default();
        }
        let ports = self.place(vrf, address, &[]);
        self.part_mut(address).remove(&(vrf, address));
        take_one(&mut self.by_vrf, &vrf);
        ports
    }

    /// The VRFs in which tunnels end: few, where the tunnels of many tenants are in one.
    pub(crate) fn vrfs(&self) -> impl Iterator<Item = VrfId> {
        self.by_vrf.keys().copied()
    }

    /// The ends in a VRF, or those in a prefix of it, with their ports.
    pub(crate) fn within(
        &self,
        vrf: VrfId,
        prefix: Option<IpPrefix>,
    ) -> impl Iterator<Item = (IpAddr, &[PortId])> {
        let has_some = self.by_vrf.contains_key(&vrf);
        let all: RangeInclusive<IpAddr> = match prefix.map(|prefix| prefix.range()) {
            Some(range) => range.first()..=range.last(),
            None => IpAddr::from([0; 4])..=IpAddr::from([0xff; 16]),
        };
        let range = (vrf, *all.start())..=(vrf, *all.end());
        let one = (all.start() == all.end()).then(|| part(*all.start()));
        let parts = match one {
            _ if !has_some => &[],
            Some(part) => &self.parts[part..=part],
            None => &self.parts[..],
        };
        let ends = parts.iter().flat_map(move |part| part.range(range.clone()));
        ends.map(|((_, address), end)| (*address, &*end.ports))
    }

    /// Sets the ports of an end. Returns those that it had.
    pub(crate) fn place(&mut self, vrf: VrfId, address: IpAddr, ports: &[PortId]) -> Box<[PortId]> {
        let Some(end) = self.part_mut(address).get_mut(&(vrf, address)) else {
            return Box::default();
        };
        let before = core::mem::replace(&mut end.ports, ports.into());
        for port in ports {
            *self.by_port.entry(*port).or_default() += 1;
        }
        before.iter().for_each(|port| take_one(&mut self.by_port, port));
        before
    }

    /// Whether a tunnel ends in an address of the port or leaves by it.
    pub(crate) fn are_at(&self, port: PortId) -> bool {
        self.by_port.contains_key(&port)
    }

    /// The first end at a port, to say why it is on the unprotected side.
    pub(crate) fn first_at(&self, port: PortId) -> Option<IpAddr> {
        self.are_at(port).then(|| {
            let mut ends = self.parts.iter().flat_map(|part| part.iter());
            ends.find(|(_, end)| end.ports.contains(&port)).map(|((_, address), _)| *address)
        })?
    }
}

/// Counts one less.
fn take_one<K: Ord>(counts: &mut BTreeMap<K, usize>, key: &K) {
    if let Some(count) = counts.get_mut(key) {
        *count -= 1;
        if *count == 0 {
            counts.remove(key);
        }
    }
}
