//! VLAN sub-ports (IEEE 802.1Q): ports whose frames go by another port, their parent, with a tag.

use core::fmt;
use std::sync::Arc;

use types::VlanId;
use wire::{PortId, VrfId};

use crate::counters::FlowCounters;

/// Which VLAN of which port a sub-port is.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Vlan {
    /// The port that its frames go by.
    pub parent: PortId,
    /// The number in its frames' tags.
    pub id: VlanId,
}

/// A sub-port, as receiving its frames needs it.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct VlanPort {
    /// Its number.
    pub port: PortId,
    /// The VRF it is in.
    pub vrf: VrfId,
    /// Whether it may send and receive.
    pub up: bool,
}

/// Values that a tag has room for.
const NUMBERS: usize = 1 << 12;

/// The sub-ports of a port, by the number in a frame's tag: finding one is the same work however
/// many there are. It is made when a port changes.
#[derive(Clone, Default)]
pub struct VlanTable(Option<Arc<[Option<VlanPort>; NUMBERS]>>);

impl VlanTable {
    /// The sub-port of the VLAN `number`, of which the lowest 12 bits count.
    #[inline(always)]
    pub fn get(&self, number: u16) -> Option<&VlanPort> {
        self.0.as_ref()?[usize::from(number) % NUMBERS].as_ref()
    }

    /// Every sub-port with its VLAN's number.
    pub fn iter(&self) -> impl Iterator<Item = (u16, &VlanPort)> {
        let all = self.0.iter().flat_map(|all| (0u16..).zip(&**all));
        all.filter_map(|(number, port)| Some((number, port.as_ref()?)))
    }

    /// Whether there is none.
    pub fn is_empty(&self) -> bool {
        self.0.is_none()
    }

    pub(crate) fn set(&mut self, id: VlanId, port: VlanPort) {
        let all = self.0.get_or_insert_with(|| Arc::new([None; NUMBERS]));
        Arc::make_mut(all)[usize::from(id.number())] = Some(port);
    }

    pub(crate) fn remove(&mut self, id: VlanId) {
        if let Some(all) = &mut self.0 {
            let all = Arc::make_mut(all);
            all[usize::from(id.number())] = None;
            if all.iter().all(Option::is_none) {
                self.0 = None;
            }
        }
    }
}

impl fmt::Debug for VlanTable {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_map().entries(self.iter()).finish()
    }
}

/// What a sub-port has received and sent. Its parent counts the same frames.
#[derive(Clone, Debug)]
pub struct VlanCounters {
    /// Frames that came with its tag while it was up.
    pub received: FlowCounters,
    /// Frames that were handed to its parent.
    pub sent: FlowCounters,
}

impl VlanCounters {
    pub(crate) fn new(workers: usize) -> Self {
        Self { received: FlowCounters::new(workers), sent: FlowCounters::new(workers) }
    }
}

/// Why a port cannot have a sub-port.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum NotAVlanParent {
    /// Its frames have no link header, so no tags.
    NoEthernet,
    /// It is a sub-port itself. Frames with two tags (IEEE 802.1ad) are not supported.
    IsVlan,
    /// The named port is its VLAN of that number already.
    Taken(Arc<str>),
}

impl fmt::Display for NotAVlanParent {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::NoEthernet => f.write_str("that has no Ethernet, so no VLANs"),
            Self::IsVlan => {
                f.write_str("that is a VLAN itself, and two tags (802.1ad) are not supported")
            }
            Self::Taken(owner) => write!(f, "port '{owner}' is that VLAN already"),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn sub_ports_are_found_by_the_lowest_12_bits() {
        let mut table = VlanTable::default();
        let port = |number| VlanPort { port: PortId(number), vrf: VrfId(0), up: true };
        let id = |number| VlanId::new(number).unwrap();
        assert!(table.is_empty() && table.get(1).is_none());
        table.set(id(1), port(7));
        table.set(id(4094), port(8));
        let before = table.clone();
        table.remove(id(1));
        assert_eq!(before.get(0xf001), Some(&port(7)), "priority bits do not count");
        assert_eq!((before.get(0), before.get(4095)), (None, None));
        assert_eq!(table.iter().collect::<Vec<_>>(), [(4094, &port(8))]);
        table.remove(id(4094));
        assert!(table.is_empty());
    }
}
