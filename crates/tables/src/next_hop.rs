//! Next hops: where a packet leaves the gateway, and what is put in front of it.
//!
//! A next hop is an object with an id of its own, as VPP's adjacencies and the next-hop objects of
//! Linux and grout are. Routes name one, and so do decisions. The next hop may change; its id does
//! not. So a neighbour that is resolved, moves or fails, and a port that gets another MTU or
//! Ethernet address or goes down, change one object, and no route and no decision.

use core::fmt;
use core::net::IpAddr;
use std::sync::Arc;

use packet::LinkKind;
use types::Side;
use wire::ethernet::{self, EtherType};
use wire::{Mac, PortId};

use crate::cells::{CellCounters, CellId, Cells};
use crate::error::TableError;
use crate::limit::MAX_NEXT_HOPS;
use crate::port::PortSpec;
use crate::slots::Slots;
use crate::vlan::Vlan;

/// Names a next hop. It names the same one for as long as that exists; later, another one may get
/// it.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct NextHopId(pub u32);

/// What can be done with a packet to a next hop.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[repr(u8)]
pub enum NextHopState {
    /// It can be sent, behind [`NextHop::link_header`].
    Resolved,
    /// The same, and what is sent there passes a queueing discipline. A state and no flag, so that
    /// packets to other next hops pay nothing for it.
    Queued,
    /// It has to wait until [`NextHop::address`] was asked for its Ethernet address.
    Pending,
    /// Its destination is on the link and has no next hop of its own: it has to wait until the
    /// destination itself was asked for its Ethernet address. VPP's glean adjacency.
    OnLink,
    /// The port is down.
    Down,
}

impl NextHopState {
    /// Whether packets can be sent, at once or through a queueing discipline.
    pub const fn is_resolved(self) -> bool {
        matches!(self, Self::Resolved | Self::Queued)
    }
}

/// The longest link header: Ethernet with two VLAN tags (IEEE 802.1ad).
pub const MAX_LINK_HEADER: usize = 22;

/// A next hop: everything that sending a packet there takes, in one cache line.
#[derive(Clone, Copy, PartialEq, Eq)]
#[repr(C, align(64))]
pub struct NextHop {
    /// By which port.
    pub port: PortId,
    /// By whose queue: the port's, or that of the port by which a VLAN sub-port's frames go.
    pub queue: PortId,
    /// The largest IP packet in bytes that the port takes.
    pub mtu: u16,
    /// What can be done now.
    pub state: NextHopState,
    /// On which side of the IPsec boundary the port is.
    pub side: Side,
    /// What is put in front of the IP packet. Nothing unless the state is
    /// [`NextHopState::Resolved`] or [`NextHopState::Queued`].
    pub link: LinkHeader,
    /// The neighbour. `None` if it is the port's own next hop, which serves every destination on
    /// the link that has none of its own.
    pub address: Option<IpAddr>,
    /// Where IP packets that are sent to it are counted. `None` outside of the tables.
    pub counted: Option<CellId>,
    /// Where the frames are counted: if the port is a VLAN sub-port, for it, unless `counted` says as
    /// much of its frames, and for its parent if that is one itself.
    pub frames: [Option<CellId>; 2],
}

const _: () = assert!(size_of::<NextHop>() == 64 && size_of::<Line>() == 64);

/// The bytes in front of an IP packet on a link.
#[derive(Clone, Copy, PartialEq, Eq)]
pub struct LinkHeader {
    /// 14 on Ethernet, 18 on a VLAN of it, 22 on a VLAN of that, 0 on links without a header.
    length: u8,
    /// The header, and zeros behind it.
    bytes: [u8; MAX_LINK_HEADER],
}

impl LinkHeader {
    /// That of a link without one.
    pub const NONE: Self = Self { length: 0, bytes: [0; MAX_LINK_HEADER] };

    /// An Ethernet header, with the tags of a VLAN if it is of one. They have priority 0.
    pub fn ethernet(
        destination: Mac,
        source: Mac,
        vlan: Option<&Vlan>,
        ether_type: EtherType,
    ) -> Self {
        let mut header = Self::NONE;
        header.append(&destination.0);
        header.append(&source.0);
        for tag in vlan.into_iter().flat_map(Vlan::tags) {
            header.append(&tag.protocol.ether_type().to_be_bytes());
            header.append(&tag.id.number().to_be_bytes());
        }
        header.append(&ether_type.0.to_be_bytes());
        header
    }

    fn append(&mut self, bytes: &[u8]) {
        let at = usize::from(self.length);
        self.bytes[at..at + bytes.len()].copy_from_slice(bytes);
        self.length += bytes.len() as u8;
    }

    /// How many bytes it is.
    #[inline(always)]
    pub fn length(&self) -> usize {
        usize::from(self.length)
    }

    /// Its bytes.
    #[inline(always)]
    pub fn bytes(&self) -> &[u8] {
        &self.bytes[..self.length().min(MAX_LINK_HEADER)]
    }

    /// Its bytes, and zeros behind them.
    #[inline(always)]
    pub fn padded(&self) -> &[u8; MAX_LINK_HEADER] {
        &self.bytes
    }
}

const _: () = assert!(ethernet::HEADER_LENGTH + 2 * ethernet::VLAN_TAG_LENGTH == MAX_LINK_HEADER);

impl NextHop {
    /// The next hop at `address` by the port `id`, or the port's own. `mac` is the neighbour's
    /// Ethernet address, if it is known.
    pub(crate) fn new(
        id: PortId,
        (spec, side): (&PortSpec, Side),
        address: Option<IpAddr>,
        mac: Option<Mac>,
    ) -> Self {
        let mut next_hop = Self {
            port: id,
            queue: spec.vlan.map_or(id, |vlan| vlan.queue()),
            mtu: spec.mtu,
            state: NextHopState::Resolved,
            side,
            link: LinkHeader::NONE,
            address,
            counted: None,
            frames: [None; 2],
        };
        match (spec.link, address, mac) {
            _ if !spec.up => next_hop.state = NextHopState::Down,
            (LinkKind::Ip, ..) => {}
            (LinkKind::Ethernet, None, _) => next_hop.state = NextHopState::OnLink,
            (LinkKind::Ethernet, Some(_), None) => next_hop.state = NextHopState::Pending,
            (LinkKind::Ethernet, Some(address), Some(mac)) => {
                let ether_type = if address.is_ipv6() { EtherType::IPV6 } else { EtherType::IPV4 };
                next_hop.link = spec.link_header(mac, ether_type);
            }
        }
        next_hop
    }

    /// The same by a port whose packets pass a queueing discipline, if `is_queued`.
    pub(crate) fn queued_if(mut self, is_queued: bool) -> Self {
        if is_queued && self.state == NextHopState::Resolved {
            self.state = NextHopState::Queued;
        }
        self
    }

    /// The same, whose frames are counted there.
    pub(crate) fn counted_in(self, frames: [Option<CellId>; 2]) -> Self {
        Self { frames, ..self }
    }

    /// Whether packets can be sent there.
    pub fn is_resolved(&self) -> bool {
        self.state.is_resolved()
    }

    /// The link header.
    pub fn link_header(&self) -> &[u8] {
        self.link.bytes()
    }
}

/// The link header without the zeros behind it.
impl fmt::Debug for NextHop {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("NextHop")
            .field("port", &self.port)
            .field("queue", &self.queue)
            .field("mtu", &self.mtu)
            .field("state", &self.state)
            .field("link_header", &self.link_header())
            .field("address", &self.address)
            .finish()
    }
}

/// Packets and bytes of a next hop. Copies share what they count.
#[derive(Clone, Debug)]
pub struct NextHopCounters {
    /// Of packets that were handed to the parent of a sub-port at once, whose frames this counts.
    beside: Option<CellCounters>,
    /// Of others: made when it is first needed.
    own: Option<CellCounters>,
}

impl NextHopCounters {
    /// The next hop with where it counts. A frame that passes a queueing discipline leaves later, or
    /// not at all.
    fn count(&mut self, next_hop: NextHop, cells: &Cells) -> NextHop {
        match &self.beside {
            Some(beside) if next_hop.state != NextHopState::Queued => {
                let [_, outer] = next_hop.frames;
                NextHop { counted: Some(beside.id()), frames: [None, outer], ..next_hop }
            }
            _ => {
                let own = self.own.get_or_insert_with(|| cells.take());
                NextHop { counted: Some(own.id()), ..next_hop }
            }
        }
    }

    /// Adds to what `worker` has counted, which alone may do so.
    pub fn add(&self, worker: usize, packets: u64, bytes: u64) {
        if let Some(counters) = self.own.as_ref().or(self.beside.as_ref()) {
            counters.add(worker, packets, bytes);
        }
    }

    /// Packets and bytes of all workers.
    pub fn read(&self) -> (u64, u64) {
        let all = [&self.beside, &self.own].into_iter().flatten().map(CellCounters::read);
        all.fold((0, 0), |(packets, bytes), (p, b)| (packets + p, bytes + b))
    }
}

/// Lines that are copied together when one changes: 4 KiB.
const PAGE: usize = 64;
/// Pages under one node.
const NODE: usize = 64;
/// No line.
const END: u32 = u32::MAX;

/// A next hop, or a place for one.
#[derive(Clone, Copy)]
enum Line {
    Used(NextHop),
    /// The next free line, or [`END`].
    Free(u32),
}

type Page = [Line; PAGE];
type Node = [Arc<Page>; NODE];

/// Every next hop, by id. A copy shares all of them, and a change copies one page and the way to
/// it.
///
/// The first level is a plain vector, since copying it is a few pointers for each thousand next
/// hops; a level more than that keeps it so. Both are small and hot where next hops are few; where
/// they are many, finding one waits for memory twice, for the node's entry and for the line.
#[derive(Clone)]
pub(crate) struct NextHops {
    nodes: Vec<Arc<Node>>,
    /// Of each that is there. Beside them, so that a next hop stays one line of plain data, and a
    /// change of one copies none of these.
    counters: Slots<NextHopCounters, PAGE>,
    cells: Cells,
    /// The first free line below `made`, or [`END`].
    free: u32,
    /// Lines that were ever used. All behind them are free.
    made: u32,
    length: usize,
    limit: usize,
}

impl NextHops {
    pub(crate) fn new(cells: Cells) -> Self {
        Self::with_limit(cells, MAX_NEXT_HOPS)
    }

    fn with_limit(cells: Cells, limit: usize) -> Self {
        let (nodes, counters) = (Vec::new(), Slots::new());
        Self { nodes, counters, cells, free: END, made: 0, length: 0, limit }
    }

    #[inline(always)]
    fn line(&self, id: NextHopId) -> Option<&Line> {
        let number = id.0 as usize;
        let node = self.nodes.get(number / PAGE / NODE)?;
        Some(&node[number / PAGE % NODE][number % PAGE])
    }

    #[inline(always)]
    pub(crate) fn get(&self, id: NextHopId) -> Option<&NextHop> {
        match self.line(id)? {
            Line::Used(next_hop) => Some(next_hop),
            Line::Free(_) => None,
        }
    }

    /// Asks for the memory that [`NextHops::get`] will read last.
    #[inline(always)]
    pub(crate) fn prefetch(&self, id: NextHopId) {
        if let Some(line) = self.line(id) {
            packet::prefetch(line);
        }
    }

    /// What was sent to it since it came.
    pub(crate) fn counters(&self, id: NextHopId) -> Option<&NextHopCounters> {
        self.counters.get(id.0)
    }

    /// One more, which counts in cells that `beside` or nobody has. What is counted in those beside is
    /// a frame of the sub-port as well.
    pub(crate) fn add(
        &mut self,
        next_hop: NextHop,
        beside: impl FnOnce() -> Option<CellCounters>,
    ) -> Result<NextHopId, TableError> {
        if self.length >= self.limit {
            return Err(TableError::Limit { what: "next hops", limit: self.limit });
        }
        let id = match self.line(NextHopId(self.free)) {
            Some(&Line::Free(next)) => {
                let id = NextHopId(self.free);
                self.free = next;
                id
            }
            Some(Line::Used(_)) | None => {
                self.made += 1;
                NextHopId(self.made - 1)
            }
        };
        self.length += 1;
        // New ones: whoever still uses an older snapshot counts for what had the id there.
        let mut counters = NextHopCounters { beside: beside(), own: None };
        let next_hop = counters.count(next_hop, &self.cells);
        self.counters.set(id.0, counters);
        *self.line_mut(id) = Line::Used(next_hop);
        Ok(id)
    }

    /// Changes one that is there, and goes on counting. Nothing is copied if it is like this already.
    pub(crate) fn set(&mut self, id: NextHopId, next_hop: NextHop) {
        let Some(mut counters) = self.counters(id).cloned() else { return };
        let had_own = counters.own.is_some();
        let next_hop = counters.count(next_hop, &self.cells);
        if counters.own.is_some() != had_own {
            self.counters.set(id.0, counters);
        }
        if self.get(id).is_some_and(|now| *now != next_hop) {
            *self.line_mut(id) = Line::Used(next_hop);
        }
    }

    pub(crate) fn remove(&mut self, id: NextHopId) {
        if self.get(id).is_some() {
            *self.line_mut(id) = Line::Free(self.free);
            self.free = id.0;
            self.length -= 1;
            self.counters.remove(id.0);
        }
    }

    pub(crate) fn len(&self) -> usize {
        self.length
    }

    /// All that are there, by id.
    pub(crate) fn iter(&self) -> impl Iterator<Item = (NextHopId, &NextHop)> {
        (0..self.made).map(NextHopId).filter_map(|id| Some((id, self.get(id)?)))
    }

    fn line_mut(&mut self, id: NextHopId) -> &mut Line {
        let number = id.0 as usize;
        while self.nodes.len() <= number / PAGE / NODE {
            // One page stands for all that were not used yet.
            let page = Arc::new([Line::Free(END); PAGE]);
            self.nodes.push(Arc::new(core::array::from_fn(|_| Arc::clone(&page))));
        }
        let node = Arc::make_mut(&mut self.nodes[number / PAGE / NODE]);
        &mut Arc::make_mut(&mut node[number / PAGE % NODE])[number % PAGE]
    }
}

/// By id.
impl fmt::Debug for NextHops {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_map().entries(self.iter()).finish()
    }
}

#[cfg(test)]
mod tests {
    use std::collections::BTreeMap;

    use proptest::prelude::*;

    use super::*;

    fn next_hop(number: u16) -> NextHop {
        let spec =
            PortSpec { link: LinkKind::Ip, mtu: number, ..PortSpec::new("port", Mac([0; 6])) };
        NextHop::new(PortId(number), (&spec, Side::Unset), None, None)
    }

    #[derive(Clone, Debug)]
    enum Step {
        Add(u16),
        Set(prop::sample::Index, u16),
        Remove(prop::sample::Index),
        /// Adds enough to need another node, or removes all.
        Many(bool),
        Snapshot,
    }

    fn step() -> impl Strategy<Value = Step> {
        let which = any::<prop::sample::Index>;
        prop_oneof![
            6 => any::<u16>().prop_map(Step::Add),
            2 => (which(), any::<u16>()).prop_map(|(which, number)| Step::Set(which, number)),
            4 => which().prop_map(Step::Remove),
            1 => any::<bool>().prop_map(Step::Many),
            2 => Just(Step::Snapshot),
        ]
    }

    proptest! {
        #![proptest_config(ProptestConfig::with_cases(64))]
        #[test]
        fn is_a_map_that_chooses_its_keys(steps in proptest::collection::vec(step(), 1..60)) {
            let mut store = NextHops::with_limit(Cells::new(1), 1 << 20);
            let mut naive = BTreeMap::new();
            let mut snapshots = Vec::new();
            let mut most = 0;
            for step in steps {
                let pick = |naive: &BTreeMap<NextHopId, NextHop>, which: prop::sample::Index| {
                    let nth = |nth| naive.keys().nth(nth).copied();
                    (!naive.is_empty()).then(|| nth(which.index(naive.len()))).flatten()
                };
                let more = match step {
                    Step::Add(_) => 1,
                    Step::Many(true) => PAGE * NODE,
                    _ => 0,
                };
                match step {
                    Step::Add(number) | Step::Set(_, number) if more > 0 || naive.is_empty() => {
                        let id = store.add(next_hop(number), || None).unwrap();
                        prop_assert!(naive.insert(id, next_hop(number)).is_none());
                    }
                    Step::Add(_) => unreachable!(),
                    Step::Set(which, number) => {
                        let id = pick(&naive, which).unwrap();
                        store.set(id, next_hop(number));
                        naive.insert(id, next_hop(number));
                    }
                    Step::Remove(which) => {
                        if let Some(id) = pick(&naive, which) {
                            store.remove(id);
                            naive.remove(&id);
                        }
                    }
                    Step::Many(true) => {
                        for _ in 0..more {
                            let id = store.add(next_hop(7), || None).unwrap();
                            prop_assert!(naive.insert(id, next_hop(7)).is_none());
                        }
                    }
                    Step::Many(false) => {
                        for id in core::mem::take(&mut naive).into_keys() {
                            store.remove(id);
                        }
                    }
                    Step::Snapshot => snapshots.push((store.clone(), naive.clone())),
                }
                most = most.max(naive.len());
            }
            prop_assert_eq!(store.made as usize, most, "no more lines than ever were in use");
            snapshots.push((store, naive));
            for (store, naive) in snapshots {
                prop_assert_eq!(store.len(), naive.len());
                // Where each counts is its own matter.
                let plain = |is: &NextHop| NextHop { counted: None, ..*is };
                let listed: Vec<_> = store.iter().map(|(id, is)| (id, plain(is))).collect();
                prop_assert_eq!(&listed, &naive.clone().into_iter().collect::<Vec<_>>());
                for number in (0..20_000).chain([u32::MAX - 1, u32::MAX]) {
                    let id = NextHopId(number);
                    prop_assert_eq!(store.get(id).map(plain), naive.get(&id).copied());
                }
            }
        }
    }

    #[test]
    fn a_change_copies_one_page() {
        let mut store = NextHops::with_limit(Cells::new(1), 1 << 20);
        for number in 0..5000 {
            store.add(next_hop(number), || None).unwrap();
        }
        let before = store.clone();
        store.set(NextHopId(4100), next_hop(9));
        let shared = |node: usize, page: usize| {
            Arc::ptr_eq(&store.nodes[node][page], &before.nodes[node][page])
        };
        for (node, page) in (0..2).flat_map(|node| (0..NODE).map(move |page| (node, page))) {
            assert_eq!(shared(node, page), (node, page) != (1, 0), "{node} {page}");
        }
        // What is the same already is not written.
        let before = store.clone();
        store.set(NextHopId(4100), next_hop(9));
        assert!(Arc::ptr_eq(&store.nodes[1], &before.nodes[1]));
    }

    #[test]
    fn there_is_a_limit() {
        let mut store = NextHops::with_limit(Cells::new(1), 2);
        let ids = [1, 2].map(|number| store.add(next_hop(number), || None).unwrap());
        let more = store.add(next_hop(3), || None).unwrap_err().to_string();
        assert_eq!(more, "there are 2 next hops already, and there may not be more");
        store.remove(ids[0]);
        assert_eq!(store.add(next_hop(3), || None), Ok(ids[0]));
    }
}
