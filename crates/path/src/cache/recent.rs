//! The latest changes, in a form in which most packets see quickly that they are none of theirs.
//!
//! While policies change a thousand times a second, nearly every packet that is found in the cache
//! was last looked at before some change. What changes most is policies, and a policy concerns few:
//! comparing addresses with its selector's ranges settles nearly all. Whatever is not settled is
//! left to [`super::validity`].

use std::net::IpAddr;

use arrayvec::ArrayVec;
use tables::{Change, Selector, Tables};
use wire::IpRange;

use crate::cache::key;
use crate::cache::validity::MOST_CHANGES;

/// The latest changes of one snapshot.
#[derive(Default)]
pub(crate) struct Recent {
    /// The latest first.
    changes: ArrayVec<Brief, MOST_CHANGES>,
    /// All changes after this generation are there.
    since: u64,
}

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
    pub(crate) fn of(tables: &Tables) -> Self {
        let mut recent = Self { changes: ArrayVec::new(), since: tables.changes_known_since() };
        for (generation, change) in tables.latest_changes() {
            if recent.changes.is_full() {
                recent.since = generation;
                break;
            }
            recent.changes.push(Brief { generation, concerned: Concerned::by(change) });
        }
        recent
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
    fn by(change: &Change) -> Self {
        let Change::Policy { vrf, selector: Selector { source, destination, .. } } = change else {
            return Self::Anyone;
        };
        let vrf = vrf.0;
        match (v4(source), v4(destination)) {
            (Some(source), Some(destination)) => Self::V4 { vrf, source, destination },
            _ => match (v6(source), v6(destination)) {
                (Some(source), Some(destination)) => Self::V6 { vrf, source, destination },
                _ => Self::Anyone,
            },
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
