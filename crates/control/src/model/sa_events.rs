//! What becomes of SAs, for those who write it down: who adds and removes them, and what packets do
//! to them.
//!
//! SAs that a change may concern are noted before it is made, with what there was. Whatever is
//! different afterwards has happened, so a change that is refused, or undone by the next command of
//! a batch, leaves no event.

use std::collections::{BTreeMap, VecDeque};
use std::ops::Bound;

use tables::Tables;

use super::desired::{Desired, StateKey};
use crate::describe;

/// SAs that a tick looks at, so that it takes a fraction of a millisecond.
const LOOKED_AT_ONCE: usize = 1024;

/// Events that may wait to be taken. Who takes them does so after each change, so there are no more
/// than one change makes, which a batch bounds. Of what packets do, further ones are looked at
/// later.
const MAX_WAITING: usize = 65_536;

/// From here on an SA is said to be nearly out of sequence numbers: nine tenths of all.
const NEARLY: u32 = u32::MAX / 10 * 9;

/// Something that happened to an SA.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct SaEvent {
    /// What.
    pub kind: SaEventKind,
    /// Which SA, as a command names it, without algorithms and keys.
    pub sa: String,
    /// The SPI of the SA for the same traffic that it takes over from, if there is one.
    pub instead_of: Option<u32>,
}

/// What may happen to an SA.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum SaEventKind {
    /// It is new.
    Added,
    /// There is another one in its place, with the same SPI.
    Replaced,
    /// It is gone.
    Removed,
    /// It has sent or received its first packet.
    FirstUse,
    /// It has used nine tenths of its sequence numbers.
    NearlyExhausted,
    /// It has used all of its sequence numbers, and sends nothing any more.
    Exhausted,
}

impl SaEventKind {
    /// A word for it.
    pub const fn name(self) -> &'static str {
        match self {
            Self::Added => "added",
            Self::Replaced => "replaced",
            Self::Removed => "removed",
            Self::FirstUse => "first-use",
            Self::NearlyExhausted => "nearly-exhausted",
            Self::Exhausted => "exhausted",
        }
    }

    /// Whether packets alone make it happen.
    pub const fn is_by_packets(self) -> bool {
        matches!(self, Self::FirstUse | Self::NearlyExhausted | Self::Exhausted)
    }
}

/// How far an SA has come.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
enum Stage {
    Used,
    NearlyExhausted,
    Exhausted,
}

/// Follows SAs, if somebody wants to know.
#[derive(Debug, Default)]
pub(super) struct SaEvents {
    is_wanted: bool,
    /// What there was of SAs that a change may concern: their number in the tables, and their text.
    touched: BTreeMap<StateKey, Option<(u64, String)>>,
    /// By SA: which one it was, and how far it had come. Unused ones are not here.
    stages: BTreeMap<StateKey, (u64, Stage)>,
    /// The last SA that was looked at.
    last: Option<StateKey>,
    events: VecDeque<SaEvent>,
}

impl SaEvents {
    /// Notes what happens from now on.
    pub(super) fn begin(&mut self, tables: &Tables, desired: &Desired) {
        self.is_wanted = true;
        // What is used already was used before.
        for key in desired.states.keys() {
            if let Some((serial, Some(stage))) = stage(tables, *key) {
                self.stages.insert(*key, (serial, stage));
            }
        }
    }

    /// An SA may be about to change.
    pub(super) fn touch(&mut self, tables: &Tables, desired: &Desired, key: StateKey) {
        if self.is_wanted {
            self.touched.entry(key).or_insert_with(|| is(tables, desired, key));
        }
    }

    /// A change is made, or was refused.
    pub(super) fn settle(&mut self, tables: &Tables, desired: &Desired) {
        for (key, was) in std::mem::take(&mut self.touched) {
            let is = is(tables, desired, key);
            let (kind, sa) = match (was, is) {
                (None, None) => continue,
                (Some((was, _)), Some((is, _))) if was == is => continue,
                (Some(_), Some((_, sa))) => (SaEventKind::Replaced, sa),
                (None, Some((_, sa))) => (SaEventKind::Added, sa),
                (Some((_, sa)), None) => (SaEventKind::Removed, sa),
            };
            if kind != SaEventKind::Added {
                self.stages.remove(&key);
            }
            let instead_of = match kind {
                SaEventKind::Removed => None,
                _ => instead_of(tables, key),
            };
            self.events.push_back(SaEvent { kind, sa, instead_of });
        }
    }

    /// Looks at some of the SAs, what packets have done to them.
    pub(super) fn tick(&mut self, tables: &Tables, desired: &Desired) {
        if !self.is_wanted || self.events.len() >= MAX_WAITING {
            return;
        }
        let from = self.last.map_or(Bound::Unbounded, Bound::Excluded);
        self.last = None;
        for (at, (key, entry)) in
            desired.states.range((from, Bound::Unbounded)).take(LOOKED_AT_ONCE).enumerate()
        {
            if at + 1 == LOOKED_AT_ONCE {
                self.last = Some(*key);
            }
            let Some((serial, Some(stage))) = stage(tables, *key) else { continue };
            let known = self.stages.get(key).filter(|(of, _)| *of == serial).map(|(_, it)| *it);
            if known.is_some_and(|known| known >= stage) {
                continue;
            }
            self.stages.insert(*key, (serial, stage));
            let mut event = |kind| {
                let sa = describe::state(&entry.spec);
                self.events.push_back(SaEvent { kind, sa, instead_of: None });
            };
            if known.is_none() && is_used(tables, *key) {
                event(SaEventKind::FirstUse);
            }
            match stage {
                Stage::Used => {}
                Stage::NearlyExhausted => event(SaEventKind::NearlyExhausted),
                Stage::Exhausted => event(SaEventKind::Exhausted),
            }
        }
    }

    /// What has happened since this was asked last.
    pub(super) fn take(&mut self) -> VecDeque<SaEvent> {
        std::mem::take(&mut self.events)
    }
}

fn is(tables: &Tables, desired: &Desired, key: StateKey) -> Option<(u64, String)> {
    let entry = desired.states.get(&key)?;
    let sa = tables.sad().inbound(key.0, key.1, key.2)?;
    Some((sa.serial, describe::state(&entry.spec)))
}

fn stage(tables: &Tables, key: StateKey) -> Option<(u64, Option<Stage>)> {
    let sa = tables.sad().inbound(key.0, key.1, key.2)?;
    let sent = sa.outbound.sequence();
    let stage = if sent == u32::MAX {
        Some(Stage::Exhausted)
    } else if sent >= NEARLY {
        Some(Stage::NearlyExhausted)
    } else if sa.counters.read().0 > 0 {
        Some(Stage::Used)
    } else {
        None
    };
    Some((sa.serial, stage))
}

/// Whether packets have passed by it. Numbers may be used by its key before.
fn is_used(tables: &Tables, (vrf, destination, spi): StateKey) -> bool {
    let sa = tables.sad().inbound(vrf, destination, spi);
    sa.is_some_and(|sa| sa.counters.read().0 > 0)
}

/// The SPI of the SA that had sent what this one, as the newest of its slot, sends from now on.
fn instead_of(tables: &Tables, key: StateKey) -> Option<u32> {
    let sa = tables.sad().inbound(key.0, key.1, key.2)?;
    let slot = tables.sad().slot(sa.slot)?;
    let at = slot.sas.iter().position(|other| other.serial == sa.serial)?;
    Some(slot.sas.get(at.checked_sub(1)?)?.spec.spi.0)
}
