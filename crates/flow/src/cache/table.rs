//! One table of the decision cache.
//!
//! Four places make a set. What a search reads of a set first is one word with 15 bits of each
//! key's hash, and one bit for whether the place was used lately; a search that finds nothing, as
//! most do in a flood of new flows, ends there. Only the place whose bits are right is read, a
//! cache line (two for IPv6). So a batch is searched in three passes, each asking for the memory of
//! the next: the sets' words, the places, the keys.
//!
//! A flow that finds its set full goes to a second set, which follows from the set and the bits. If
//! there are half as many flows as buckets, one in 28 is there, and one in 300 has no place, where
//! without second sets it would be one in 27. Second sets are searched for those flows only that are
//! not in their first, after the whole batch has been looked for there.
//!
//! Two sets with all their places taken admit a new flow when it comes for the second time soon: the
//! bits of the last four flows that were turned away or had to give way are kept beside the first
//! set's word. Thus flows of one packet replace nothing.

use packet::{KeyHasher, prefetch_at};
use thiserror::Error;

use super::controller::PART;
use super::memory::Memory;
use super::settings::{Associativity, CacheSettings, CacheTable};

/// Has the caches' hashes differ from others of the same secret.
const CACHE: u64 = 0x6869_7470_6174_6821;

/// Words of a value.
const VALUE: usize = 4;

/// What a table keeps for a flow. The first word is never zero.
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

/// A table whose keys have `KEY` words and whose places `PLACE`: key, stamp and value, in whole
/// cache lines.
pub struct Table<const KEY: usize, const PLACE: usize> {
    hasher: KeyHasher,
    /// For each set: the word of its places, and that of the flows it turned away.
    sets: Memory<SET>,
    places: Memory<PLACE>,
    mask: u32,
    is_direct: bool,
    turn: u32,
    policy_generation: u64,
    /// What it has done.
    pub counts: Counts,
}

/// A table while a batch is looked up: its memory as words.
pub struct Open<'t, const KEY: usize, const PLACE: usize> {
    hasher: &'t KeyHasher,
    sets: &'t mut [[u64; SET]],
    places: &'t mut [[u64; PLACE]],
    mask: u32,
    is_direct: bool,
    turn: &'t mut u32,
    policy_generation: u64,
    counts: &'t mut Counts,
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

/// The place that a key most likely is in, by its hash alone.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Candidate {
    /// The place, if it was used lately; [`UNUSED`] more if not. So both this and [`Candidate::NONE`]
    /// are outside the table, and one comparison tells all three.
    word: u64,
}

/// More than there are places.
const UNUSED: u64 = 1 << 32;

impl Candidate {
    /// No place.
    pub const NONE: Self = Self { word: u64::MAX };
}

/// What is known of a flow.
#[derive(Clone, Copy, Debug)]
pub struct Found {
    /// Where it is, until the next insertion.
    pub place: Place,
    /// The generation that it was last known to be valid for.
    pub stamp: u64,
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
/// Spreads the bits that a set keeps of a hash over the number of another set.
const SPREAD: u32 = 0x9e37_79b1;
/// Words of a set.
const SET: usize = 2;
/// Of new flows that find no place, one in so many is admitted at once, so that flows that have
/// ended give way even where nothing comes twice.
const LUCKY: u32 = 32;

impl<const KEY: usize, const PLACE: usize> Table<KEY, PLACE> {
    /// An empty table of as many buckets as `settings` say, rounded up to a power of two.
    ///
    /// # Errors
    /// The system does not give the memory.
    pub fn new(
        table: CacheTable,
        settings: &CacheSettings,
        secret: u64,
    ) -> Result<Self, CacheTooLarge> {
        const { assert!(KEY + 1 + VALUE <= PLACE && PLACE.is_multiple_of(8)) };
        let is_direct = settings.associativity == Associativity::Direct;
        let least = if is_direct { 1 } else { PLACES };
        let buckets = settings.buckets.clamp(least, CacheSettings::MAX_BUCKETS);
        let buckets = u64::from(buckets).next_power_of_two();
        let sets = buckets.div_ceil(u64::from(PLACES));
        let (Some(places), Some(sets)) = (Memory::new(buckets), Memory::new(sets)) else {
            return Err(CacheTooLarge { table, buckets, bytes: Self::bytes_of(buckets) });
        };
        Ok(Self {
            hasher: KeyHasher::new([secret, CACHE]),
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
        Self::bytes_of(self.buckets().into())
    }

    const fn bytes_of(buckets: u64) -> u64 {
        8 * (buckets * PLACE as u64 + buckets.div_ceil(PLACES as u64) * SET as u64)
    }

    /// How many sets of places there are.
    pub fn sets(&self) -> usize {
        (self.buckets().div_ceil(PLACES)) as usize
    }

    /// Shows the entries of some sets, with key, stamp and value, and removes those for which
    /// `stays` returns false.
    pub fn retain(
        &mut self,
        sets: core::ops::Range<usize>,
        mut stays: impl FnMut(&[u64; KEY], u64, Value) -> bool,
    ) {
        let Open { sets: words, places, policy_generation, counts, .. } = self.open();
        let last = sets.end.min(words.len());
        for (number, word) in (sets.start..last).zip(&mut words[sets.start.min(last)..last]) {
            for place in 0..PLACES {
                // Places that were never used are not read: the system may not have given them yet.
                if word[0] >> (16 * place) & 0x7fff == 0 {
                    continue;
                }
                let line = &mut places[number * PLACES as usize + place as usize];
                let (mut key, mut value) = ([0; KEY], [0; VALUE]);
                key.copy_from_slice(&line[..KEY]);
                value.copy_from_slice(&line[KEY + 1..KEY + 1 + VALUE]);
                if stays(&key, line[KEY], value) {
                    continue;
                }
                counts.occupied -= 1;
                counts.live -= u64::from(line[KEY] >= policy_generation);
                word[0] &= !(0xffff << (16 * place));
                line.fill(0);
            }
        }
    }

    /// Takes note of the generation that last changed a policy: live entries count from there.
    pub fn policies_changed(&mut self, generation: u64) {
        if self.policy_generation != generation {
            self.policy_generation = generation;
            self.counts.live = 0;
        }
    }

    /// The table for one batch.
    #[inline]
    pub fn open(&mut self) -> Open<'_, KEY, PLACE> {
        Open {
            hasher: &self.hasher,
            sets: self.sets.rows(),
            places: self.places.rows(),
            mask: self.mask,
            is_direct: self.is_direct,
            turn: &mut self.turn,
            policy_generation: self.policy_generation,
            counts: &mut self.counts,
        }
    }
}

impl<const KEY: usize, const PLACE: usize> Open<'_, KEY, PLACE> {
    /// The hash that the other functions want.
    #[inline(always)]
    pub fn hash(&self, key: &[u64; KEY]) -> u64 {
        self.hasher.hash(key)
    }

    /// Whether a flow has one place only.
    pub fn is_direct(&self) -> bool {
        self.is_direct
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
        prefetch_at(self.sets, self.set(hash));
    }

    /// The second pass: reads the set's word and asks for the place. `DIRECT` is
    /// [`Open::is_direct`], told at compile time, so that it is asked once a batch.
    #[inline(always)]
    pub fn candidate<const DIRECT: bool>(&self, hash: u64) -> Candidate {
        let reach = if DIRECT { self.reach(hash) } else { USED };
        self.candidate_of(self.set(hash), hash, reach)
    }

    /// For a flow without a candidate: asks for the word of its second set. Not of a direct table,
    /// which has none.
    #[inline(always)]
    pub fn prefetch_second(&self, hash: u64) {
        prefetch_at(self.sets, self.second(hash));
    }

    /// The second pass for a flow that has no candidate in its first set.
    #[inline(always)]
    pub fn second_candidate(&self, hash: u64) -> Candidate {
        self.candidate_of(self.second(hash), hash, USED)
    }

    /// The place that a key most likely is in, wherever that is: for a single search.
    pub fn any_candidate(&self, hash: u64) -> Candidate {
        match self.candidate_of(self.set(hash), hash, self.reach(hash)) {
            Candidate::NONE if !self.is_direct => self.second_candidate(hash),
            candidate => candidate,
        }
    }

    #[inline(always)]
    fn candidate_of(&self, set: usize, hash: u64, reach: u64) -> Candidate {
        let word = self.sets[set][0];
        let bits = equal(word, tag(hash)) & reach;
        if bits == 0 {
            return Candidate::NONE;
        }
        let place = place(set, bits).0 as usize;
        prefetch_at(self.places, place);
        if PLACE > 8 {
            // The second line of a place.
            prefetch_at(self.places.as_flattened(), place * PLACE + 8);
        }
        match word >> bits.trailing_zeros() & 1 {
            0 => Candidate { word: UNUSED + place as u64 },
            _ => Candidate { word: place as u64 },
        }
    }

    /// The third pass for a flow that is known, was used lately, and was stamped with `since` or later;
    /// `None` for any other, which [`Open::find`] tells more of.
    #[inline(always)]
    pub fn find_valid(&self, candidate: Candidate, key: &[u64; KEY], since: u64) -> Option<Value> {
        let line = self.places.get(candidate.word as usize)?;
        let is_valid = is_key(line, key) && line[KEY] >= since;
        is_valid.then(|| core::array::from_fn(|number| line[KEY + 1 + number]))
    }

    /// The third pass: the flow, if it is known.
    #[inline(always)]
    pub fn find(&mut self, hash: u64, candidate: Candidate, key: &[u64; KEY]) -> Option<Found> {
        if candidate == Candidate::NONE {
            return None;
        }
        let place = Place(candidate.word as u32);
        let line = &self.places[place.0 as usize];
        if !is_key(line, key) {
            return self.find_among_all(hash, key);
        }
        let stamp = line[KEY];
        if candidate.word >= UNUSED {
            self.mark_used(place);
        }
        Some(Found { place, stamp })
    }

    /// Two flows of a set have the same fifteen bits: as good as never.
    #[cold]
    fn find_among_all(&mut self, hash: u64, key: &[u64; KEY]) -> Option<Found> {
        let place = self.place_of(hash, key)?;
        let stamp = self.places[place.0 as usize][KEY];
        self.mark_used(place);
        Some(Found { place, stamp })
    }

    /// Where a key is.
    #[inline(always)]
    fn place_of(&self, hash: u64, key: &[u64; KEY]) -> Option<Place> {
        let reach = self.reach(hash);
        for set in self.sets_of(hash) {
            let mut bits = equal(self.sets[set][0], tag(hash)) & reach;
            while bits != 0 {
                let place = place(set, bits);
                if is_key(&self.places[place.0 as usize], key) {
                    return Some(place);
                }
                bits &= bits - 1;
            }
        }
        None
    }

    #[inline(never)]
    fn mark_used(&mut self, place: Place) {
        self.sets[(place.0 / PLACES) as usize][0] |= 1 << (16 * (place.0 % PLACES) + 15);
    }

    /// What is kept in a place.
    #[inline(always)]
    pub fn value(&self, place: Place) -> Value {
        let line = &self.places[place.0 as usize];
        core::array::from_fn(|number| line[KEY + 1 + number])
    }

    /// Whether the flow was seen lately and has no place.
    #[inline]
    pub fn was_turned_away(&self, hash: u64) -> bool {
        equal(self.sets[self.set(hash)][1], tag(hash)) != 0
    }

    /// What was found is valid for a later generation.
    #[inline]
    pub fn stamp(&mut self, place: Place, generation: u64) {
        let line = &mut self.places[place.0 as usize];
        let was_live = line[KEY] >= self.policy_generation;
        line[KEY] = generation;
        self.counts.live += u64::from(!was_live);
    }

    /// Keeps a flow's decision, over what is known of it, or in a free place, or in the place of
    /// another flow, or not at all.
    #[inline(always)]
    pub fn insert(&mut self, hash: u64, key: &[u64; KEY], stamp: u64, value: &Value) {
        if let Some(place) = self.place_of(hash, key) {
            return self.write(place, key, stamp, value);
        }
        let (tag, reach) = (tag(hash), self.reach(hash));
        for set in self.sets_of(hash) {
            let places = self.sets[set][0];
            let free = equal(places, 0) & reach;
            if free != 0 {
                let bit = free & free.wrapping_neg();
                self.counts.occupied += 1;
                self.sets[set][0] = places | u64::from(tag) << (bit.trailing_zeros() - 15);
                return self.write(place(set, bit), key, stamp, value);
            }
        }
        let set = self.set(hash);
        let [places, turned_away] = self.sets[set];
        let Some(bit) = self.victim(hash, places, turned_away) else {
            self.counts.refused += 1;
            self.sets[set][1] = turned_away << 16 | u64::from(tag);
            return;
        };
        let (place, shift) = (place(set, bit), bit.trailing_zeros() - 15);
        let other = places >> shift & 0x7fff;
        // Where all had been used lately, all must be used again to stay.
        let kept = if places & USED == USED { places & !USED } else { places };
        self.sets[set] =
            [kept & !(0xffff << shift) | u64::from(tag) << shift, turned_away << 16 | other];
        if self.places[place.0 as usize][KEY] >= self.policy_generation {
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
        let turn = self.turn.wrapping_add(1);
        *self.turn = turn;
        if equal(turned_away, tag(hash)) == 0 && !turn.is_multiple_of(LUCKY) {
            return None;
        }
        let bit = 1u64 << (16 * ((turn ^ (turn / LUCKY)) % PLACES) + 15);
        let unused = !places & USED;
        // The first unused one at or after the place whose turn it is.
        let after = unused & !(bit - 1);
        Some(match (after, unused) {
            (0, 0) => bit,
            (0, unused) => unused & unused.wrapping_neg(),
            (after, _) => after & after.wrapping_neg(),
        })
    }

    #[inline]
    fn write(&mut self, place: Place, key: &[u64; KEY], stamp: u64, value: &Value) {
        let line = &mut self.places[place.0 as usize];
        let was_live = line[KEY + 1] != 0 && line[KEY] >= self.policy_generation;
        line[..KEY].copy_from_slice(key);
        line[KEY] = stamp;
        line[KEY + 1..KEY + 1 + VALUE].copy_from_slice(value);
        self.counts.inserted += 1;
        self.counts.live += u64::from(!was_live);
    }

    /// Where the words of a hash's set are.
    #[inline(always)]
    fn set(&self, hash: u64) -> usize {
        ((hash as u32 & self.mask) / PLACES) as usize
    }

    /// The set for a key whose first one is full. It is in the same part of the table, as one part
    /// stands for the whole while that is not used; small tables have no other.
    #[inline(always)]
    fn second(&self, hash: u64) -> usize {
        let mixed = u32::from(tag(hash)).wrapping_mul(SPREAD) >> 8;
        self.set(hash) ^ (mixed & (self.mask / PLACES / PART)) as usize
    }

    /// The sets that a key of this hash may be in: the first twice, if there is no other.
    #[inline(always)]
    fn sets_of(&self, hash: u64) -> [usize; 2] {
        let second = if self.is_direct { self.set(hash) } else { self.second(hash) };
        [self.set(hash), second]
    }

    /// The places of a set that a key of this hash may be in.
    #[inline(always)]
    fn reach(&self, hash: u64) -> u64 {
        if self.is_direct { self.reach_directly(hash) } else { USED }
    }

    /// Kept apart, so that the usual case is a branch and no computation.
    #[cold]
    fn reach_directly(&self, hash: u64) -> u64 {
        1 << (16 * (hash as u32 & self.mask & (PLACES - 1)) + 15)
    }
}

/// The place of the lowest of a set's `bits`.
#[inline(always)]
fn place(set: usize, bits: u64) -> Place {
    Place(set as u32 * PLACES + bits.trailing_zeros() / 16)
}

/// Whether a place's key is this one. Word by word: a copy to compare as a whole would have to wait
/// for its own writing.
#[inline(always)]
fn is_key<const KEY: usize, const PLACE: usize>(line: &[u64; PLACE], key: &[u64; KEY]) -> bool {
    let pairs = key.iter().zip(line);
    pairs.fold(0, |different, (word, other)| different | (word ^ other)) == 0
}

/// Fifteen bits of a hash, other than those that choose the set. The lowest is set, as zero is a free
/// place.
#[inline(always)]
fn tag(hash: u64) -> u16 {
    (hash >> 49) as u16 | 1
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

    fn table(buckets: u32, associativity: Associativity) -> Table<3, 8> {
        let settings = CacheSettings { mode: CacheMode::On, buckets, associativity };
        Table::new(CacheTable::V4Outbound, &settings, 7).unwrap()
    }

    /// The value and the stamp of a key, and where they are.
    fn find(table: &mut Table<3, 8>, key: &[u64; 3]) -> Option<(Value, u64, Place)> {
        let mut table = table.open();
        let hash = table.hash(key);
        let found = table.find(hash, table.any_candidate(hash), key)?;
        let value = table.value(found.place);
        // The short way says the same, if that is late enough.
        let candidate = table.any_candidate(hash);
        let valid = table.find_valid(candidate, key, found.stamp);
        assert!(valid == Some(value) || table.find_among_all(hash, key).is_some());
        assert_eq!(table.find_valid(candidate, key, found.stamp + 1), None);
        Some((value, found.stamp, found.place))
    }

    fn insert(table: &mut Table<3, 8>, key: [u64; 3], stamp: u64, number: u64) {
        let mut table = table.open();
        let hash = table.hash(&key);
        table.insert(hash, &key, stamp, &[number + 1, 0, 0, 1]);
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
                if what == 2 {
                    // As a sweep does, in two parts.
                    let half = table.sets() / 2;
                    for part in [0..half, half..usize::MAX] {
                        table.retain(part, |seen, stamp, value| {
                            assert_eq!(kept.get(seen), Some(&(value[0] - 1, stamp)));
                            seen[0] % 5 != key[0] % 5
                        });
                    }
                    kept.retain(|known, _| known[0] % 5 != key[0] % 5);
                }
                if let Some((value, stamp, place)) = find(&mut table, &key) {
                    let (number, known) = kept[&key];
                    prop_assert_eq!((value[0], stamp), (number + 1, known));
                    if what == 1 {
                        table.open().stamp(place, generation);
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
            assert_eq!(find(&mut table, &[key, 0, 0]).unwrap().0[0], key + 1);
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
            match Table::<6, 16>::new(
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

    /// A table of twice as many buckets as there are flows keeps all but one in 200.
    #[test]
    fn a_full_set_has_a_second_one() {
        let mut table = table(1 << 16, Associativity::Four);
        let flows = || (0..1u64 << 15).map(|at| [at, at << 40, 3]);
        flows().for_each(|key| insert(&mut table, key, 1, 5));
        let open = table.open();
        let is_first = |key: &[u64; 3]| open.candidate::<false>(open.hash(key)) != Candidate::NONE;
        let first = flows().filter(is_first).count();
        let known = flows().filter(|key| find(&mut table, key).is_some()).count();
        assert!(first < 32_100, "{first} are in their first set");
        assert!(known > 32_600, "{known} are known");
        assert_eq!(known as u64, table.counts.occupied);
    }

    /// What is used to tell how the whole would do takes nothing of the rest.
    #[test]
    fn a_second_set_is_in_the_same_part() {
        let mut table = table(1 << 12, Associativity::Four);
        for at in 0..20_000u64 {
            let key = [at, 7, 7];
            let open = table.open();
            if !open.is_sampled(open.hash(&key)) {
                continue;
            }
            for _ in 0..2 {
                insert(&mut table, key, 1, at);
            }
            if let Some((_, _, place)) = find(&mut table, &key) {
                assert!(place.0 < 1 << 8, "{place:?}");
            }
        }
        assert_eq!(table.counts.occupied, 1 << 8);
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
        let hash = table.open().hash(&[9, 9, 9]);
        assert!(table.open().was_turned_away(hash));
        insert(&mut table, [9, 9, 9], 1, 9);
        assert_eq!(find(&mut table, &[9, 9, 9]).unwrap().0[0], 10);
    }
}
