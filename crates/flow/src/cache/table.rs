//! One table of the decision cache.
//!
//! Four places make a set. What a search reads of a set first is one word with 15 bits of each
//! key's hash, and one bit for whether the place was used lately; a search that finds nothing, as
//! most do in a flood of new flows, ends there. Only the place whose bits are right is read, a
//! cache line (two for IPv6). So a batch is searched in three passes, each asking for the memory of
//! the next: the sets' words, the places, the keys.
//!
//! A set with all its places taken admits a new flow when it comes for the second time soon: the
//! bits of the last four flows that were turned away or had to give way are kept beside the set's
//! word. Thus flows of one packet replace nothing.

use packet::prefetch;
use thiserror::Error;

use super::controller::PART;
use super::hash::Hasher;
use super::memory::{Memory, set_word, word};
use super::settings::{Associativity, CacheSettings, CacheTable};

/// Words of a value.
const VALUE: usize = 4;

/// What a table keeps for a flow. The last word is never zero.
pub type Value = [u64; VALUE];

/// Why there is no table.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Error)]
#[error(
    "the {table} flow cache of {buckets} buckets needs {bytes} bytes for each worker, which the \
    system does not give; fewer hash buckets would do"
)]
pub struct CacheTooLarge {
    /// Which table.
    pub table: CacheTable,
    /// How many flows it was to hold.
    pub buckets: u64,
    /// How much memory that takes.
    pub bytes: u64,
}

/// A table whose keys have `KEY` words.
pub struct Table<const KEY: usize> {
    hasher: Hasher,
    /// For each set: the word of its places, and that of the flows it turned away.
    sets: Memory,
    places: Memory,
    mask: u32,
    is_direct: bool,
    turn: u32,
    policy_generation: u64,
    /// What it has done.
    pub counts: Counts,
}

/// What a table has done. See [`crate::CacheStatistics`].
#[derive(Clone, Copy, Debug, Default)]
pub struct Counts {
    /// Entries written.
    pub inserted: u64,
    /// Of those, the ones in the place of a live entry.
    pub evicted: u64,
    /// Decisions not kept.
    pub refused: u64,
    /// Live entries.
    pub live: u64,
    /// Places in use.
    pub occupied: u64,
}

/// The places that a key may be in, by its hash alone.
#[derive(Clone, Copy, Debug, Default)]
pub struct Candidates {
    /// One bit for each place, in the highest bit of its 16.
    lanes: u64,
}

/// What is known of a flow.
#[derive(Clone, Copy, Debug)]
pub struct Found {
    /// Where it is, until the next insertion.
    pub place: Place,
    /// The generation that it was last known to be valid for.
    pub stamp: u64,
    /// What was kept.
    pub value: Value,
}

/// A place of a table.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Place(u32);

/// In a set.
const PLACES: u32 = 4;
/// The bits of one place, in each of a set's four.
const ONES: u64 = 0x0001_0001_0001_0001;
/// Whether a place was used lately, in each of a set's four.
const USED: u64 = ONES << 15;
/// Bytes for a set's two words.
const SET: usize = 16;
/// Of new flows that find no place, one in so many is admitted at once, so that flows that have
/// ended give way even where nothing comes twice.
const LUCKY: u32 = 32;

impl<const KEY: usize> Table<KEY> {
    /// Bytes of one place: key, stamp and value, in whole cache lines.
    const PLACE: usize = (8 * (KEY + 1 + VALUE)).next_multiple_of(64);

    /// An empty table of as many buckets as `settings` say, rounded up to a power of two.
    ///
    /// # Errors
    /// The system does not give the memory.
    pub fn new(
        table: CacheTable,
        settings: &CacheSettings,
        secret: u64,
    ) -> Result<Self, CacheTooLarge> {
        let is_direct = settings.associativity == Associativity::Direct;
        let least = if is_direct { 1 } else { PLACES };
        let buckets = u64::from(settings.buckets.clamp(least, CacheSettings::MAX_BUCKETS))
            .next_power_of_two();
        let sets = buckets.div_ceil(u64::from(PLACES));
        let bytes = (buckets * Self::PLACE as u64, sets * SET as u64);
        let memory = |bytes| usize::try_from(bytes).ok().and_then(Memory::new);
        let (Some(places), Some(sets)) = (memory(bytes.0), memory(bytes.1)) else {
            return Err(CacheTooLarge { table, buckets, bytes: bytes.0 + bytes.1 });
        };
        Ok(Self {
            hasher: Hasher::new(secret),
            sets,
            places,
            mask: (buckets - 1) as u32,
            is_direct,
            turn: 0,
            policy_generation: 0,
            counts: Counts::default(),
        })
    }

    /// How many flows it can hold.
    pub fn buckets(&self) -> u32 {
        self.mask + 1
    }

    /// Memory in bytes. The system gives it when it is first used, in large pages where it can.
    pub fn bytes(&self) -> u64 {
        let buckets = u64::from(self.buckets());
        buckets * Self::PLACE as u64 + buckets.div_ceil(u64::from(PLACES)) * SET as u64
    }

    /// Takes note of the generation that last changed a policy: live entries count from there.
    pub fn policies_changed(&mut self, generation: u64) {
        if self.policy_generation != generation {
            self.policy_generation = generation;
            self.counts.live = 0;
        }
    }

    /// The hash that the other functions want.
    #[inline(always)]
    pub fn hash(&self, key: &[u64; KEY]) -> u64 {
        self.hasher.hash(key)
    }

    /// Whether a flow belongs to the first sixteenth of the table, which stands for the whole while
    /// that is not used.
    #[inline(always)]
    pub fn is_sampled(&self, hash: u64) -> bool {
        hash as u32 & self.mask <= self.mask / PART
    }

    /// The first pass of a search: asks for the set's word.
    #[inline(always)]
    pub fn prefetch(&self, hash: u64) {
        prefetch(&self.set_words(hash)[0]);
    }

    /// The second pass: reads the set's word and asks for the place.
    #[inline(always)]
    pub fn candidates(&self, hash: u64) -> Candidates {
        let lanes = equal(word(self.set_words(hash), 0), tag(hash)) & self.reach(hash);
        if lanes != 0 {
            self.prefetch_place(self.place(hash, lanes));
        }
        Candidates { lanes }
    }

    /// The third pass: the flow, where it is known.
    #[inline(always)]
    pub fn find(&mut self, hash: u64, candidates: Candidates, key: &[u64; KEY]) -> Option<Found> {
        let mut lanes = candidates.lanes;
        while lanes != 0 {
            let place = self.place(hash, lanes);
            let line = self.line(place);
            if is_key(line, key) {
                let found = Found { place, stamp: word(line, KEY), value: value(line, KEY + 1) };
                let (set, used) = (self.set(hash), lanes & lanes.wrapping_neg());
                let set = self.sets.bytes_mut(set, SET);
                let places = word(set, 0);
                if places & used == 0 {
                    set_word(set, 0, places | used);
                }
                return Some(found);
            }
            lanes &= lanes - 1;
        }
        None
    }

    /// Whether the flow was seen lately and has no place.
    #[inline]
    pub fn was_turned_away(&self, hash: u64) -> bool {
        equal(word(self.set_words(hash), 1), tag(hash)) != 0
    }

    /// What was found is valid for a later generation.
    #[inline]
    pub fn stamp(&mut self, place: Place, generation: u64) {
        let live_since = self.policy_generation;
        let line = self.line_mut(place);
        let was_live = word(line, KEY) >= live_since;
        set_word(line, KEY, generation);
        self.counts.live += u64::from(!was_live);
    }

    /// Keeps a flow's decision, over what is known of it, or in a free place, or in the place of
    /// another flow, or not at all.
    #[inline]
    pub fn insert(&mut self, hash: u64, key: &[u64; KEY], stamp: u64, value: &Value) {
        let (set, tag) = (self.set(hash), tag(hash));
        let [places, turned_away] = [0, 1].map(|number| word(self.set_words(hash), number));
        let reach = self.reach(hash);
        let mut same = equal(places, tag) & reach;
        while same != 0 {
            let place = self.place(hash, same);
            if is_key(self.line(place), key) {
                return self.write(place, key, stamp, value);
            }
            same &= same - 1;
        }
        let free = equal(places, 0) & reach;
        if free != 0 {
            let lane = free & free.wrapping_neg();
            self.counts.occupied += 1;
            set_word(
                self.sets.bytes_mut(set, SET),
                0,
                places | u64::from(tag) << (lane.trailing_zeros() - 15),
            );
            return self.write(self.place(hash, lane), key, stamp, value);
        }
        let Some(lane) = self.victim(hash, places, turned_away) else {
            self.counts.refused += 1;
            return set_word(self.sets.bytes_mut(set, SET), 1, turned_away << 16 | u64::from(tag));
        };
        let (place, shift) = (self.place(hash, lane), lane.trailing_zeros() - 15);
        let other = places >> shift & 0x7fff;
        // Where all had been used lately, all must be used again to stay.
        let kept = if places & USED == USED { places & !USED } else { places };
        let words = self.sets.bytes_mut(set, SET);
        set_word(words, 0, kept & !(0xffff << shift) | u64::from(tag) << shift);
        set_word(words, 1, turned_away << 16 | other);
        if word(self.line(place), KEY) >= self.policy_generation {
            self.counts.evicted += 1;
        }
        self.write(place, key, stamp, value);
    }

    /// Which place of a full set a new flow gets, if any.
    #[inline]
    fn victim(&mut self, hash: u64, places: u64, turned_away: u64) -> Option<u64> {
        if self.is_direct {
            return Some(self.reach(hash));
        }
        self.turn = self.turn.wrapping_add(1);
        if equal(turned_away, tag(hash)) == 0 && !self.turn.is_multiple_of(LUCKY) {
            return None;
        }
        let lane = 1u64 << (16 * ((self.turn ^ (self.turn / LUCKY)) % PLACES) + 15);
        let unused = !places & USED;
        // The first unused one at or after the lane whose turn it is.
        let after = unused & !(lane - 1);
        Some(match (after, unused) {
            (0, 0) => lane,
            (0, unused) => unused & unused.wrapping_neg(),
            (after, _) => after & after.wrapping_neg(),
        })
    }

    #[inline]
    fn write(&mut self, place: Place, key: &[u64; KEY], stamp: u64, value: &Value) {
        let live_since = self.policy_generation;
        let line = self.line_mut(place);
        let was_live = word(line, KEY + VALUE) != 0 && word(line, KEY) >= live_since;
        for (number, part) in key.iter().chain([&stamp]).chain(value).enumerate() {
            set_word(line, number, *part);
        }
        self.counts.inserted += 1;
        self.counts.live += u64::from(!was_live);
    }

    /// Where the words of a hash's set are.
    #[inline(always)]
    fn set(&self, hash: u64) -> usize {
        ((hash as u32 & self.mask) / PLACES) as usize * SET
    }

    /// The places of the set that a key of this hash may be in.
    #[inline(always)]
    fn reach(&self, hash: u64) -> u64 {
        if self.is_direct {
            1 << (16 * (hash as u32 & self.mask & (PLACES - 1)) + 15)
        } else {
            USED
        }
    }

    /// The place of the lowest of `lanes`.
    #[inline(always)]
    fn place(&self, hash: u64, lanes: u64) -> Place {
        Place((hash as u32 & self.mask) & !(PLACES - 1) | (lanes.trailing_zeros() / 16))
    }

    #[inline(always)]
    fn prefetch_place(&self, place: Place) {
        let line = self.line(place);
        prefetch(&line[0]);
        if Self::PLACE > 64 {
            prefetch(&line[64]);
        }
    }

    #[inline(always)]
    fn set_words(&self, hash: u64) -> &[u8] {
        self.sets.bytes(self.set(hash), SET)
    }

    #[inline(always)]
    fn line(&self, place: Place) -> &[u8] {
        self.places.bytes(place.0 as usize * Self::PLACE, Self::PLACE)
    }

    #[inline(always)]
    fn line_mut(&mut self, place: Place) -> &mut [u8] {
        self.places.bytes_mut(place.0 as usize * Self::PLACE, Self::PLACE)
    }
}

/// Whether a place's key is this one. Word by word: a copy to compare as a whole would have to wait
/// for its own writing.
#[inline(always)]
fn is_key<const KEY: usize>(line: &[u8], key: &[u64; KEY]) -> bool {
    key.iter()
        .enumerate()
        .fold(0, |different, (number, part)| different | (word(line, number) ^ part))
        == 0
}

#[inline(always)]
fn value(line: &[u8], first: usize) -> Value {
    core::array::from_fn(|number| word(line, first + number))
}

/// Fifteen bits of a hash, other than those that choose the set. Zero is a free place.
#[inline(always)]
fn tag(hash: u64) -> u16 {
    ((hash >> 49) as u16).max(1)
}

/// The places of a set's word whose fifteen bits are `tag`, whether used lately or not.
#[inline(always)]
fn equal(word: u64, tag: u16) -> u64 {
    let different = (word & !USED) ^ (ONES * u64::from(tag));
    // Adding makes the highest bit of each place whose other bits are not all zero.
    !(different + !USED) & USED
}

#[cfg(test)]
mod tests {
    use std::collections::HashMap;

    use proptest::prelude::*;

    use super::super::settings::CacheMode;
    use super::*;

    fn table(buckets: u32, associativity: Associativity) -> Table<3> {
        let settings = CacheSettings { mode: CacheMode::On, buckets, associativity };
        Table::new(CacheTable::V4Outbound, &settings, 7).unwrap()
    }

    fn find(table: &mut Table<3>, key: &[u64; 3]) -> Option<Found> {
        let hash = table.hash(key);
        let candidates = table.candidates(hash);
        table.find(hash, candidates, key)
    }

    fn insert(table: &mut Table<3>, key: [u64; 3], stamp: u64, number: u64) {
        let hash = table.hash(&key);
        table.insert(hash, &key, stamp, &[number, 0, 0, 1]);
    }

    const BOTH: [Associativity; 2] = [Associativity::Direct, Associativity::Four];

    proptest! {
        /// What is found is what was last kept of that very key, and the counts are those of a walk
        /// through the table.
        #[test]
        fn it_never_answers_wrongly(
            operations in proptest::collection::vec((0u64..200, 0u8..8, 0u64..3), 1..2000),
            buckets in 1u32..64,
            direct in any::<bool>(),
        ) {
            let mut table = table(buckets, BOTH[usize::from(!direct)]);
            let mut kept: HashMap<[u64; 3], (u64, u64)> = HashMap::new();
            let mut policy_generation = 0;
            let mut generation = 0;
            for (number, (key, what, step)) in (1..).zip(operations) {
                let key = [key, key << 40, 9];
                generation += step / 2;
                if what == 0 {
                    generation += 1;
                    policy_generation = generation;
                }
                table.policies_changed(policy_generation);
                if let Some(found) = find(&mut table, &key) {
                    let (number, stamp) = kept[&key];
                    prop_assert_eq!((found.value[0], found.stamp), (number, stamp));
                    if what == 1 {
                        table.stamp(found.place, generation);
                        kept.insert(key, (number, generation));
                    }
                }
                if what > 3 {
                    let inserted = table.counts.inserted;
                    insert(&mut table, key, generation, number);
                    if table.counts.inserted > inserted {
                        kept.insert(key, (number, generation));
                        prop_assert!(find(&mut table, &key).is_some());
                    } else {
                        // It was turned away, and what was known before is known no more or was
                        // never known.
                        prop_assert!(find(&mut table, &key).is_none());
                    }
                }
                let known: Vec<_> = kept.iter().filter(|(key, _)| find(&mut table, key).is_some()).collect();
                prop_assert_eq!(table.counts.occupied, known.len() as u64);
                let live = known.iter().filter(|(_, (_, stamp))| *stamp >= policy_generation).count();
                prop_assert_eq!(table.counts.live, live as u64);
            }
        }
    }

    /// As in the published tables: no chain, no second place, the later one wins.
    #[test]
    fn a_direct_table_overwrites() {
        let mut table = table(1, Associativity::Direct);
        for key in 0..100u64 {
            insert(&mut table, [key, 0, 0], 1, key);
            assert_eq!(find(&mut table, &[key, 0, 0]).unwrap().value[0], key);
            assert!(key == 0 || find(&mut table, &[key - 1, 0, 0]).is_none());
        }
        assert_eq!((table.counts.live, table.counts.occupied, table.counts.inserted), (1, 1, 100));
    }

    #[test]
    fn buckets_are_rounded_up_to_a_power_of_two() {
        for (asked, direct, four) in [(1, 1, 4), (3, 4, 4), (5, 8, 8), (1000, 1024, 1024)] {
            assert_eq!(table(asked, Associativity::Direct).buckets(), direct);
            assert_eq!(table(asked, Associativity::Four).buckets(), four);
        }
    }

    #[test]
    fn too_much_is_refused_with_its_size() {
        let mut sizes = Vec::new();
        // Somewhere on the way the system refuses, or the address space ends.
        for _ in 0..4096 {
            match Table::<6>::new(
                CacheTable::V6Inbound,
                &CacheSettings { buckets: CacheSettings::MAX_BUCKETS, ..CacheSettings::default() },
                1,
            ) {
                Ok(table) => sizes.push(table),
                Err(refused) => {
                    assert_eq!(refused.buckets, 1 << 30);
                    assert!(
                        refused
                            .to_string()
                            .contains("ipv6-inbound flow cache of 1073741824 buckets")
                    );
                    return;
                }
            }
        }
        panic!("the system gave {} tables", sizes.len());
    }

    /// Flows in use stay while a hundred times as many others pass that come once.
    #[test]
    fn a_flood_does_not_evict_what_is_used() {
        let mut table = table(1024, Associativity::Four);
        let elephants: Vec<[u64; 3]> = (0..400).map(|at| [at, 1, 1]).collect();
        for _ in 0..3 {
            for key in &elephants {
                insert(&mut table, *key, 1, 5);
            }
        }
        let (mut hits, mut looks) = (0, 0);
        for packet in 0..400_000u64 {
            let key = [packet, 2, 2];
            if find(&mut table, &key).is_none() {
                insert(&mut table, key, 1, 6);
            }
            if packet % 10 == 0 {
                let elephant = elephants[(packet / 10 % 400) as usize];
                looks += 1;
                match find(&mut table, &elephant) {
                    Some(_) => hits += 1,
                    None => insert(&mut table, elephant, 1, 5),
                }
            }
        }
        assert!(hits * 100 >= looks * 85, "{hits} of {looks}");
        assert!(table.counts.refused > 300_000);
    }

    /// A flow that comes again soon gets the place of one that has ended.
    #[test]
    fn a_new_flow_that_comes_again_is_admitted() {
        let mut table = table(4, Associativity::Four);
        for old in 0..4 {
            insert(&mut table, [old, 0, 0], 1, old);
        }
        insert(&mut table, [9, 9, 9], 1, 9);
        assert!(find(&mut table, &[9, 9, 9]).is_none());
        let hash = table.hash(&[9, 9, 9]);
        assert!(table.was_turned_away(hash));
        insert(&mut table, [9, 9, 9], 1, 9);
        assert_eq!(find(&mut table, &[9, 9, 9]).unwrap().value[0], 9);
    }
}
