//! The latest changes, in a form in which most packets see quickly that they are none of theirs.
//!
//! While policies change a thousand times a second, nearly every packet that is found in the cache
//! was last looked at before some change. What changes most is policies, and a policy concerns few.
//! Two steps settle nearly all:
//!
//! - The address space is divided into regions, and each has the generation of the last change that
//!   may concern it ([`Recent::last_change`]). This is two reads for a packet, no branch, and an
//!   entry older than changes elsewhere need not be written to.
//! - Its addresses are compared with the ranges of the latest changed policies
//!   ([`Recent::spares`]).
//!
//! Whatever is not settled is left to [`super::validity`].

use core::ops::RangeInclusive;
use std::net::IpAddr;

use arrayvec::ArrayVec;
use tables::{Change, FilterHook, Scope, Selector, Tables};
use wire::IpRange;

use crate::cache::key;
use crate::cache::validity::MOST_CHANGES;

/// Regions of source addresses, and as many of destination addresses: /24 of IPv4 and /48 of IPv6,
/// which share a place if their hashes do. Both arrays together are 16 KiB.
const REGIONS: usize = 1024;

/// A policy with more regions than this is held to concern all addresses.
const MOST_REGIONS: u64 = 64;

/// Changes come so fast that entries had better not be stamped for each: each change adds
/// [`CHANGE`], each batch takes one, and more than this is fast. That is one change in fewer than
/// [`CHANGE`] batches, for a while.
const FAST: u32 = 8 * CHANGE;
const CHANGE: u32 = 256;

/// The latest changes of one snapshot.
pub(crate) struct Recent {
    /// The latest first.
    changes: ArrayVec<Brief, MOST_CHANGES>,
    /// All changes after this generation are in `changes`.
    since: u64,
    /// The snapshot's.
    generation: u64,
    /// The generation of the last change that may concern any address.
    anywhere: u64,
    by_source: Box<[u64; REGIONS]>,
    by_destination: Box<[u64; REGIONS]>,
    /// How fast changes come; see [`FAST`].
    pressure: u32,
}

/// An entry that was confirmed longer ago than so many changes is confirmed anew, so that it can be
/// held against all changes since whatever they are.
const CONFIRMED: usize = MOST_CHANGES / 2;

/// A change, as far as it can be judged quickly.
struct Brief {
    generation: u64,
    concerned: Concerned,
}

/// Whom a change may concern.
enum Concerned {
    V4 { vrf: u16, source: Range<u32>, destination: Range<u32> },
    V6 { vrf: u16, source: Range<u128>, destination: Range<u128> },
    Anyone,
}

struct Range<T> {
    first: T,
    last: T,
}

impl<T: Copy + PartialOrd> Range<T> {
    #[inline(always)]
    fn contains(&self, address: T) -> bool {
        (self.first <= address) & (address <= self.last)
    }
}

impl Recent {
    /// Before the first snapshot.
    pub(crate) fn new() -> Self {
        Self {
            changes: ArrayVec::new(),
            since: 0,
            generation: 0,
            anywhere: 0,
            by_source: Box::new([0; REGIONS]),
            by_destination: Box::new([0; REGIONS]),
            pressure: 0,
        }
    }

    /// Goes on to a later snapshot.
    pub(crate) fn advance(&mut self, tables: &Tables) {
        self.changes.clear();
        self.since = tables.changes_known_since();
        if self.since > self.generation {
            self.anywhere = tables.generation();
        }
        for (generation, change) in tables.latest_changes() {
            let concerned = match tables.has_flows() {
                // Policies may concern packets by what they are translated to.
                true => Concerned::Anyone,
                false => Concerned::by(change, tables.leaves_elsewhere()),
            };
            let is_new = generation > self.generation;
            if is_new {
                self.mark(&concerned, generation);
            }
            if self.changes.is_full() {
                self.since = self.since.max(generation);
                if !is_new {
                    break;
                }
            } else {
                self.changes.push(Brief { generation, concerned });
            }
        }
        // Before the first snapshot there were no entries.
        if self.generation > 0 && self.generation < tables.generation() {
            self.pressure = (self.pressure + CHANGE).min(2 * FAST);
        }
        self.generation = tables.generation();
    }

    /// Whether changes come so fast that [`Recent::last_change`] is better than asking for entries
    /// of this very generation. To be called once a batch.
    #[inline]
    pub(crate) fn is_busy(&mut self) -> bool {
        self.pressure = self.pressure.saturating_sub(1);
        self.pressure > FAST
    }

    /// Entries of this generation and later need not be confirmed anew for a while.
    #[inline]
    pub(crate) fn confirmed_since(&self) -> u64 {
        self.changes.get(CONFIRMED).map_or(self.since, |change| change.generation)
    }

    /// The generation of the last change that may concern packets with this key. It concerns no
    /// entry that was made or confirmed in this generation or later.
    #[inline(always)]
    pub(crate) fn last_change<const KEY: usize>(&self, key: &[u64; KEY]) -> u64 {
        let [source, destination] = match KEY {
            key::V4 => [region_v4((key[0] >> 32) as u32), region_v4(key[0] as u32)],
            _ => [region_v6(key[0]), region_v6(key[2 % KEY])],
        };
        self.anywhere
            .max(self.by_source[place(source)])
            .max(self.by_destination[place(destination)])
    }

    /// Notes a change in the regions of the addresses that it names fewer of.
    fn mark(&mut self, concerned: &Concerned, generation: u64) {
        let [source, destination] = concerned.regions();
        let size = |regions: &RangeInclusive<u64>| regions.end() - regions.start();
        let (regions, marked) = match size(&source) < size(&destination) {
            true => (source, &mut self.by_source),
            false => (destination, &mut self.by_destination),
        };
        if size(&regions) >= MOST_REGIONS {
            self.anywhere = self.anywhere.max(generation);
            return;
        }
        for region in regions {
            let last = &mut marked[place(region)];
            *last = (*last).max(generation);
        }
    }

    /// Whether no change after `generation` concerns packets with this key, as far as can be seen
    /// quickly. No means that it is not known.
    #[inline(always)]
    pub(crate) fn spares<const KEY: usize>(&self, key: &[u64; KEY], generation: u64) -> bool {
        generation >= self.since
            && self
                .changes
                .iter()
                .take_while(|change| change.generation > generation)
                .all(|change| !change.concerned.may_be(key))
    }
}

impl Concerned {
    /// `leaves_anywhere` says that packets may leave by ports of other VRFs, and so meet the filters
    /// there.
    fn by(change: &Change, leaves_anywhere: bool) -> Self {
        let (vrf, selector) = match change {
            Change::Filter { place, .. } if leaves_anywhere && place.hook == FilterHook::Egress => {
                return Self::Anyone;
            }
            Change::Policy { scope: Scope::Vrf(vrf), selector }
            | Change::Filter { vrf, selector, .. } => (vrf, selector),
            _ => return Self::Anyone,
        };
        let Selector { source, destination, .. } = selector;
        let vrf = vrf.0;
        match (v4(source), v4(destination)) {
            (Some(source), Some(destination)) => Self::V4 { vrf, source, destination },
            _ => match (v6(source), v6(destination)) {
                (Some(source), Some(destination)) => Self::V6 { vrf, source, destination },
                _ => Self::Anyone,
            },
        }
    }

    /// The regions of the source and the destination addresses.
    fn regions(&self) -> [RangeInclusive<u64>; 2] {
        let v4 = |range: &Range<u32>| region_v4(range.first)..=region_v4(range.last);
        let high = |address: u128| region_v6((address >> 64) as u64);
        let v6 = |range: &Range<u128>| high(range.first)..=high(range.last);
        match self {
            Self::V4 { source, destination, .. } => [v4(source), v4(destination)],
            Self::V6 { source, destination, .. } => [v6(source), v6(destination)],
            Self::Anyone => [0..=u64::MAX, 0..=u64::MAX],
        }
    }

    /// The keys of [`super::key`]: addresses first, the VRF in the last word but one.
    #[inline(always)]
    fn may_be<const KEY: usize>(&self, key: &[u64; KEY]) -> bool {
        let in_vrf = |vrf: u16| key::vrf(key[KEY - 2]) == vrf;
        match *self {
            Self::V4 { vrf, ref source, ref destination } => {
                KEY == 3
                    && source.contains((key[0] >> 32) as u32)
                    && destination.contains(key[0] as u32)
                    && in_vrf(vrf)
            }
            Self::V6 { vrf, ref source, ref destination } => {
                let address =
                    |at: usize| u128::from(key[at % KEY]) << 64 | u128::from(key[(at + 1) % KEY]);
                KEY == 6
                    && source.contains(address(0))
                    && destination.contains(address(2))
                    && in_vrf(vrf)
            }
            Self::Anyone => true,
        }
    }
}

#[inline(always)]
fn region_v4(address: u32) -> u64 {
    u64::from(address >> 8)
}

/// Of the first half of an address.
#[inline(always)]
fn region_v6(address: u64) -> u64 {
    address >> 16
}

/// Where a region stands. Regions side by side are spread over all places (Knuth's multiplicative
/// hash).
#[inline(always)]
fn place(region: u64) -> usize {
    (region.wrapping_mul(0x9e37_79b9_7f4a_7c15) >> (64 - REGIONS.ilog2())) as usize
}

fn v4(range: &IpRange) -> Option<Range<u32>> {
    match (range.first(), range.last()) {
        (IpAddr::V4(first), IpAddr::V4(last)) => {
            Some(Range { first: first.to_bits(), last: last.to_bits() })
        }
        _ => None,
    }
}

fn v6(range: &IpRange) -> Option<Range<u128>> {
    match (range.first(), range.last()) {
        (IpAddr::V6(first), IpAddr::V6(last)) => {
            Some(Range { first: first.to_bits(), last: last.to_bits() })
        }
        _ => None,
    }
}
