//! VLAN sub-ports (IEEE 802.1Q and 802.1ad): ports whose frames go by another port, their parent,
//! with a tag. The parent may be a sub-port itself; then frames have two.

use core::fmt;
use std::sync::Arc;

use types::{VlanId, VlanProtocol, VlanTag};
use wire::{PortId, VrfId, ethernet};

use crate::cells::{CellCounters, CellId, Cells};

/// Which VLAN of which port a sub-port is.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Vlan {
    /// The port that its frames go by.
    pub parent: PortId,
    /// The tag of its frames, behind that of the parent if the parent is a sub-port itself.
    pub tag: VlanTag,
    /// What the parent is, if that is a sub-port. The tables fill it in.
    outer: Option<(PortId, VlanTag)>,
}

impl Vlan {
    /// The VLAN of this tag on `parent`.
    pub const fn new(parent: PortId, tag: VlanTag) -> Self {
        Self { parent, tag, outer: None }
    }

    /// The port by whose queue frames leave, which is no sub-port.
    #[inline(always)]
    pub fn queue(&self) -> PortId {
        self.outer.map_or(self.parent, |(port, _)| port)
    }

    /// The tags of its frames, the first in the frame first.
    pub fn tags(&self) -> impl Iterator<Item = VlanTag> {
        self.outer.map(|(_, tag)| tag).into_iter().chain([self.tag])
    }

    /// Whether it is a VLAN of a VLAN.
    pub fn is_inner(&self) -> bool {
        self.outer.is_some()
    }

    /// Whether both are the same VLAN of the same port.
    pub(crate) fn is(&self, other: &Self) -> bool {
        (self.parent, self.tag) == (other.parent, other.tag)
    }

    /// Takes note of what the parent is.
    pub(crate) fn follow(&mut self, parent: Option<Self>) {
        self.outer = parent.map(|parent| (parent.parent, parent.tag));
    }
}

/// A sub-port, as receiving its frames needs it: eight bytes, of which a line has eight.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct VlanPort {
    /// Its number.
    pub port: PortId,
    /// The VRF it is in.
    pub vrf: VrfId,
    /// Where its frames are counted. `None` while it is down: then they are dropped.
    pub received: Option<CellId>,
}

impl VlanPort {
    /// What stands where there is none.
    const NONE: Self = Self { port: PortId(0), vrf: VrfId(0), received: None };
}

/// Entries of a page, and pages of a directory: together the values that a tag has room for.
const PAGE: usize = 64;
const PAGES: usize = (1 << 12) / PAGE;

/// What is found by the last bits of a tag.
#[derive(Clone)]
struct Page {
    ports: [VlanPort; PAGE],
    /// A bit for each that is there. Apart, so that frames of those that are up do not ask for it.
    known: u64,
}

/// The sub-ports of a port that have one kind of tag.
#[derive(Clone)]
pub struct VlanDirectory([Option<Arc<Page>>; PAGES]);

impl VlanDirectory {
    /// The sub-port of the VLAN `number`, of which the lowest 12 bits count, if it is up, and where
    /// its frames are counted.
    #[inline(always)]
    pub fn receiving(&self, number: u16) -> Option<(&VlanPort, CellId)> {
        let port = &self.page(number)?.ports[usize::from(number) % PAGE];
        Some((port, port.received?))
    }

    #[inline(always)]
    fn page(&self, number: u16) -> Option<&Page> {
        self.0[usize::from(number) / PAGE % PAGES].as_deref()
    }
}

/// The sub-ports of a port, by the tag of a frame: finding one is the same work however many there
/// are. It is changed when a port changes.
///
/// Pages, as Linux has them, so that a port with few sub-ports, of which there may be thousands
/// where VLANs have VLANs, takes little memory, and a change copies little.
#[derive(Clone, Default)]
pub struct VlanTable {
    /// By the kind of tag.
    kinds: [Option<Arc<VlanDirectory>>; VlanProtocol::ALL.len()],
}

impl VlanTable {
    /// The sub-port of the VLAN `number`, of which the lowest 12 bits count.
    pub fn get(&self, protocol: VlanProtocol, number: u16) -> Option<&VlanPort> {
        let (page, at) = (self.of_kind(protocol)?.page(number)?, usize::from(number) % PAGE);
        (page.known >> at & 1 != 0).then_some(&page.ports[at])
    }

    /// Those with this kind of tag, if there are any.
    #[inline(always)]
    pub fn of_kind(&self, protocol: VlanProtocol) -> Option<&VlanDirectory> {
        self.kinds[protocol as usize].as_deref()
    }

    /// Every sub-port with its tag.
    pub fn iter(&self) -> impl Iterator<Item = (VlanTag, &VlanPort)> {
        VlanProtocol::ALL.into_iter().flat_map(move |protocol| {
            let numbers = VlanId::MIN..=VlanId::MAX;
            let directory = self.kinds[protocol as usize].is_some();
            let numbers = directory.then_some(numbers).into_iter().flatten();
            numbers.filter_map(move |number| {
                let id = VlanId::new(number).ok()?;
                Some((VlanTag { protocol, id }, self.get(protocol, number)?))
            })
        })
    }

    /// Whether there is none.
    pub fn is_empty(&self) -> bool {
        self.kinds.iter().all(Option::is_none)
    }

    pub(crate) fn set(&mut self, tag: VlanTag, port: VlanPort) {
        let number = usize::from(tag.id.number());
        let directory = self.kinds[tag.protocol as usize].get_or_insert_with(no_pages);
        let page = Arc::make_mut(directory).0[number / PAGE].get_or_insert_with(no_page);
        let page = Arc::make_mut(page);
        page.ports[number % PAGE] = port;
        page.known |= 1 << (number % PAGE);
    }

    pub(crate) fn remove(&mut self, tag: VlanTag) {
        let number = usize::from(tag.id.number());
        let kind = &mut self.kinds[tag.protocol as usize];
        let Some(VlanDirectory(pages)) = kind.as_mut().map(Arc::make_mut) else { return };
        let place = &mut pages[number / PAGE];
        let Some(page) = place.as_mut().map(Arc::make_mut) else { return };
        page.ports[number % PAGE] = VlanPort::NONE;
        page.known &= !(1 << (number % PAGE));
        if page.known == 0 {
            *place = None;
            if pages.iter().all(Option::is_none) {
                *kind = None;
            }
        }
    }
}

fn no_pages() -> Arc<VlanDirectory> {
    Arc::new(VlanDirectory([const { None }; PAGES]))
}

fn no_page() -> Arc<Page> {
    Arc::new(Page { ports: [VlanPort::NONE; PAGE], known: 0 })
}

impl fmt::Debug for VlanTable {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_map().entries(self.iter()).finish()
    }
}

/// What a sub-port has received and sent: frames and bytes. Its parent counts the same frames. Copies
/// share what they count.
#[derive(Clone, Debug)]
pub struct VlanCounters {
    received: CellCounters,
    /// Frames that are not counted in `beside`.
    sent: CellCounters,
    /// Where its first next hops count packets that are handed to its parent at once. Their frames
    /// are counted nowhere else, so that a packet is counted once.
    beside: [CellCounters; 2],
    /// How many of these next hops have had.
    given: usize,
    /// Bytes in front of each of these packets.
    header: usize,
}

impl VlanCounters {
    /// Of a sub-port, or of an xfrm link, for which next hops do not count.
    pub(crate) fn new(cells: &Cells, vlan: Option<&Vlan>) -> Self {
        // What nearly all packets count in, and apart from that what others do.
        let ([received, first], sent, second) = (cells.take_pair(), cells.take(), cells.take());
        let tags = vlan.map_or(0, |vlan| vlan.tags().count());
        let beside = [first, second];
        let given = if vlan.is_some() { 0 } else { beside.len() };
        let header = ethernet::HEADER_LENGTH + tags * ethernet::VLAN_TAG_LENGTH;
        Self { received, sent, beside, given, header }
    }

    /// Cells for one more next hop. Those that were had by one before are not given again, as a worker
    /// may still count for it.
    pub(crate) fn take_beside(&mut self) -> Option<CellCounters> {
        let cell = self.beside.get(self.given)?.clone();
        self.given += 1;
        Some(cell)
    }

    /// Where frames are counted that came with its tag while it was up.
    pub fn received_id(&self) -> CellId {
        self.received.id()
    }

    /// Where frames are counted that were handed to its parent, but for those of its first next hops.
    pub fn sent_id(&self) -> CellId {
        self.sent.id()
    }

    /// Frames that came, of all workers, and their bytes.
    pub fn received(&self) -> (u64, u64) {
        self.received.read()
    }

    /// Frames that were handed to the parent, by all workers, and their bytes.
    pub fn sent(&self) -> (u64, u64) {
        let header = self.header as u64;
        self.beside.iter().fold(self.sent.read(), |(frames, bytes), next_hop| {
            let (packets, of_packets) = next_hop.read();
            (frames + packets, bytes + of_packets + packets * header)
        })
    }
}

/// Why a port cannot have a sub-port.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum NotAVlanParent {
    /// Its frames have no link header, so no tags.
    NoEthernet,
    /// It is a VLAN of a VLAN itself. A third tag is not supported.
    IsInnerVlan,
    /// The named port is that VLAN of it already.
    Taken(Arc<str>),
}

impl fmt::Display for NotAVlanParent {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::NoEthernet => f.write_str("that has no Ethernet, so no VLANs"),
            Self::IsInnerVlan => {
                f.write_str("that is a VLAN of a VLAN itself, and frames have two tags at most")
            }
            Self::Taken(owner) => write!(f, "port '{owner}' is that VLAN already"),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const CUSTOMER: VlanProtocol = VlanProtocol::Customer;
    const SERVICE: VlanProtocol = VlanProtocol::Service;

    fn port_of(number: u16, counters: &VlanCounters) -> VlanPort {
        let received = Some(counters.received_id());
        VlanPort { port: PortId(number), vrf: VrfId(0), received }
    }

    #[test]
    fn sub_ports_are_found_by_the_lowest_12_bits() {
        let mut table = VlanTable::default();
        let counters = VlanCounters::new(&Cells::new(1), None);
        let port = |number| port_of(number, &counters);
        let customer = |number| VlanTag::customer(VlanId::new(number).unwrap());
        assert!(table.is_empty() && table.get(CUSTOMER, 1).is_none());
        table.set(customer(1), port(7));
        table.set(customer(4094), port(8));
        let before = table.clone();
        table.remove(customer(1));
        let get = |number| before.get(CUSTOMER, number);
        assert_eq!(get(0xf001), Some(&port(7)), "priority bits do not count");
        assert_eq!((get(0), get(2), get(4095)), (None, None, None));
        assert_eq!(table.iter().collect::<Vec<_>>(), [(customer(4094), &port(8))]);
        table.remove(customer(4094));
        assert!(table.is_empty());
    }

    #[test]
    fn a_number_is_another_vlan_with_another_kind_of_tag() {
        let mut table = VlanTable::default();
        let id = VlanId::new(10).unwrap();
        let counters = VlanCounters::new(&Cells::new(1), None);
        let port = |number| port_of(number, &counters);
        table.set(VlanTag::service(id), port(1));
        assert_eq!((table.get(SERVICE, 10), table.get(CUSTOMER, 10)), (Some(&port(1)), None));
        table.set(VlanTag::customer(id), port(2));
        table.remove(VlanTag::service(id));
        assert_eq!((table.get(SERVICE, 10), table.get(CUSTOMER, 10)), (None, Some(&port(2))));
        table.remove(VlanTag::service(id));
        assert_eq!(table.iter().count(), 1);
    }

    #[test]
    fn a_sub_port_that_is_down_is_known_and_receives_nothing() {
        let mut table = VlanTable::default();
        let id = VlanId::new(10).unwrap();
        let down = VlanPort { port: PortId(0), vrf: VrfId(0), received: None };
        table.set(VlanTag::customer(id), down);
        let receiving = |table: &VlanTable| {
            table.of_kind(CUSTOMER)?.receiving(10).map(|(port, id)| (*port, id))
        };
        assert_eq!((table.get(CUSTOMER, 10), receiving(&table)), (Some(&down), None));
        let counters = VlanCounters::new(&Cells::new(1), None);
        let up = port_of(7, &counters);
        table.set(VlanTag::customer(id), up);
        assert_eq!(receiving(&table), Some((up, counters.received_id())));
        assert!(table.of_kind(CUSTOMER).unwrap().receiving(11).is_none());
        assert!(table.of_kind(SERVICE).is_none());
        table.set(VlanTag::customer(VlanId::new(11).unwrap()), down);
        table.remove(VlanTag::customer(id));
        assert_eq!((table.get(CUSTOMER, 10), receiving(&table)), (None, None));
    }

    #[test]
    fn a_sub_ports_table_is_small() {
        assert_eq!((size_of::<VlanDirectory>(), size_of::<Page>()), (512, 520));
    }
}
