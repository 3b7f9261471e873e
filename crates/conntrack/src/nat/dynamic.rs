//! Port blocks that are assigned when a source needs one (RFC 7422 section 3, RFC 6888 REQ-14): one
//! line in a log says whose the ports are, for all connections that use them.

use core::net::IpAddr;
use core::ops::RangeInclusive;
use std::collections::{HashMap, VecDeque};
use std::hash::BuildHasher;

use crate::limits::Keyed;
use crate::sync::{Mutex, lock};

/// The most blocks of a pool.
pub(super) const MOST_BLOCKS: u32 = 1 << 20;

/// Events that wait to be logged, at most.
const WAITING: usize = 4096;

/// A block was assigned or released.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct BlockEvent {
    /// Whether it was assigned.
    pub is_assigned: bool,
    /// The zone of the source.
    pub zone: u16,
    /// Whose it is, or was.
    pub source: IpAddr,
    /// The number of the pool's address.
    pub address: u32,
    /// The first port.
    pub first: u16,
    /// The last port.
    pub last: u16,
}

struct State {
    /// Block and connections that use it, by zone and source.
    of: HashMap<(u16, IpAddr), (u32, u32), Keyed>,
    whose: HashMap<u32, (u16, IpAddr), Keyed>,
    free: Vec<u32>,
    events: VecDeque<BlockEvent>,
    lost: u64,
}

/// Blocks of `size` ports of some addresses. A source has one at a time, as long as a connection
/// uses it.
pub(super) struct DynamicBlocks {
    first_port: u16,
    size: u16,
    /// Blocks of an address.
    each: u32,
    keyed: Keyed,
    state: Mutex<State>,
}

impl DynamicBlocks {
    /// `None` if there are more than [`MOST_BLOCKS`], or no memory for them.
    pub(super) fn new(
        range: &RangeInclusive<u16>,
        size: u16,
        addresses: u32,
        keyed: Keyed,
    ) -> Option<Self> {
        let ports = u32::from(*range.end()) - u32::from(*range.start()) + 1;
        let each = ports / u32::from(size.max(1));
        let count = each.checked_mul(addresses).filter(|count| *count <= MOST_BLOCKS)?;
        let mut free = Vec::new();
        free.try_reserve_exact(count as usize).ok()?;
        free.extend(0..count);
        let state = State {
            of: HashMap::with_hasher(keyed),
            whose: HashMap::with_hasher(keyed),
            free,
            events: VecDeque::new(),
            lost: 0,
        };
        let first_port = *range.start();
        Some(Self { first_port, size, each, keyed, state: Mutex::new(state) })
    }

    /// The address and ports of a source, which one connection more uses. `None` if it has none and
    /// all are taken.
    pub(super) fn take(&self, zone: u16, source: IpAddr) -> Option<(u32, RangeInclusive<u16>)> {
        let mut state = lock(&self.state);
        if let Some((block, users)) = state.of.get_mut(&(zone, source)) {
            *users += 1;
            return Some(self.place(*block));
        }
        let chosen = self.chosen(&state, zone, source)?;
        let block = state.free.swap_remove(chosen);
        state.of.insert((zone, source), (block, 1));
        state.whose.insert(block, (zone, source));
        self.tell(&mut state, block, (zone, source), true);
        Some(self.place(block))
    }

    /// The place in `free` of the block that a source without one gets. `None` if all are taken.
    fn chosen(&self, state: &State, zone: u16, source: IpAddr) -> Option<usize> {
        let count = state.free.len().try_into().ok().filter(|count: &u64| *count > 0)?;
        Some((self.keyed.hash_one((zone, source, count)) % count) as usize)
    }

    /// What [`DynamicBlocks::take`] would return.
    pub(super) fn foresee(&self, zone: u16, source: IpAddr) -> Option<(u32, RangeInclusive<u16>)> {
        let state = lock(&self.state);
        let block = match state.of.get(&(zone, source)) {
            Some((block, _)) => *block,
            None => *state.free.get(self.chosen(&state, zone, source)?)?,
        };
        Some(self.place(block))
    }

    /// The ports of a source, if it has some.
    pub(super) fn of(&self, zone: u16, source: IpAddr) -> Option<RangeInclusive<u16>> {
        let (block, _) = *lock(&self.state).of.get(&(zone, source))?;
        Some(self.place(block).1)
    }

    /// One connection less uses the block that a port is of.
    pub(super) fn give(&self, address: u32, port: u16) {
        let Some(offset) = port.checked_sub(self.first_port) else { return };
        let block = address * self.each + u32::from(offset / self.size);
        let mut state = lock(&self.state);
        let Some(owner) = state.whose.get(&block).copied() else { return };
        let Some((_, users)) = state.of.get_mut(&owner) else { return };
        *users -= 1;
        if *users == 0 {
            state.of.remove(&owner);
            state.whose.remove(&block);
            state.free.push(block);
            self.tell(&mut state, block, owner, false);
        }
    }

    /// Whether no source has a block, and nothing has happened since this was last asked.
    pub(super) fn is_idle(&self) -> bool {
        let state = lock(&self.state);
        state.of.is_empty() && state.events.is_empty() && state.lost == 0
    }

    /// What has happened since this was last asked, and how much of it was lost.
    pub(super) fn take_events(&self) -> (Vec<BlockEvent>, u64) {
        let mut state = lock(&self.state);
        (state.events.drain(..).collect(), core::mem::take(&mut state.lost))
    }

    /// The blocks that sources have, `most` of them, each as if it was released now; and how many more
    /// there are.
    pub(super) fn assigned(&self, most: usize) -> (Vec<BlockEvent>, usize) {
        let state = lock(&self.state);
        let blocks = state.whose.iter().take(most);
        let blocks = blocks.map(|(block, owner)| self.event(*block, *owner, false)).collect();
        (blocks, state.whose.len().saturating_sub(most))
    }

    fn tell(&self, state: &mut State, block: u32, owner: (u16, IpAddr), is_assigned: bool) {
        if state.events.len() >= WAITING {
            state.lost += 1;
            return;
        }
        state.events.push_back(self.event(block, owner, is_assigned));
    }

    fn event(&self, block: u32, (zone, source): (u16, IpAddr), is_assigned: bool) -> BlockEvent {
        let (address, ports) = self.place(block);
        let (first, last) = ports.into_inner();
        BlockEvent { is_assigned, zone, source, address, first, last }
    }

    fn place(&self, block: u32) -> (u32, RangeInclusive<u16>) {
        let first = self.first_port + (block % self.each) as u16 * self.size;
        (block / self.each, first..=first + (self.size - 1))
    }
}

#[cfg(all(test, not(feature = "loom")))]
mod tests {
    use super::*;

    #[test]
    fn a_source_has_one_block_as_long_as_it_uses_it() {
        let source = |last: u8| IpAddr::from([10, 0, 0, last]);
        let blocks = DynamicBlocks::new(&(1000..=1999), 300, 1, Keyed([1, 2])).unwrap();
        let (address, ports) = blocks.take(0, source(1)).unwrap();
        assert_eq!((address, ports.len()), (0, 300));
        assert_eq!(blocks.take(0, source(1)), Some((0, ports.clone())));
        // The same address in another zone is somebody else.
        let others = [blocks.take(5, source(1)).unwrap(), blocks.take(0, source(2)).unwrap()];
        assert!(others.iter().all(|(_, other)| other.start().abs_diff(*ports.start()) >= 300));
        assert_eq!(blocks.take(0, source(3)), None);
        blocks.give(0, *ports.end());
        assert_eq!(blocks.take(0, source(3)), None);
        blocks.give(0, *ports.start());
        assert_eq!(blocks.take(0, source(3)), Some((0, ports.clone())));
        // Nobody's, and outside of the range.
        [(0, 999), (0, 1999), (7, 1000)].into_iter().for_each(|(at, port)| blocks.give(at, port));
        let (events, lost) = blocks.take_events();
        let told: Vec<_> = events.iter().map(|event| (event.is_assigned, event.source)).collect();
        let [one, two, three] = [1, 2, 3].map(source);
        assert_eq!(told, [(true, one), (true, one), (true, two), (false, one), (true, three)]);
        assert_eq!((lost, events[0].first, events[0].last), (0, *ports.start(), *ports.end()));
        assert_eq!(blocks.take_events().0, []);
        // What is still lent when the gateway stops.
        let (mut lent, more) = blocks.assigned(2);
        assert_eq!((lent.len(), more), (2, 1));
        lent = blocks.assigned(9).0;
        lent.sort_by_key(|event| (event.zone, event.source));
        let told: Vec<_> = lent.iter().map(|it| (it.is_assigned, it.zone, it.source)).collect();
        assert_eq!(told, [(false, 0, two), (false, 0, three), (false, 5, one)]);
        assert_eq!((lent[1].first, lent[1].last), (*ports.start(), *ports.end()));
    }

    #[test]
    fn there_are_not_too_many() {
        assert!(DynamicBlocks::new(&(1..=u16::MAX), 1, 65_536, Keyed([1, 2])).is_none());
    }
}
