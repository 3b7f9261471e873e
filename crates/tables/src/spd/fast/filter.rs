//! Which prefixes occur in any policy, and with which levels of the other address.

use super::directory::{Directory, NoRoom, Page};

/// What the filter says about a prefix: the levels of the other address that policies with this
/// prefix have, a bit for each. Another prefix's may be among them, because only a hash tells
/// prefixes apart here; that costs a look in vain and nothing else.
pub(super) type Levels = u16;

/// A table of [`Levels`] by the hash of a prefix. Two bytes a place, so that what lookups read of
/// it stays near.
#[derive(Clone)]
pub(super) struct Filter(Directory<FilterPage>);

#[derive(Clone)]
struct FilterPage {
    /// By the hash's last bits; what the pairs of each place have in all.
    places: [Levels; PLACES],
    pairs: Vec<Pair>,
}

/// Policies with a prefix of this hash whose other address has this level.
#[derive(Clone, Copy)]
struct Pair {
    hash: u64,
    policies: u32,
    level: u8,
}

const PLACES: usize = 256;
/// With more pairs than this, a page is split.
const FULL: usize = 96;

impl Filter {
    pub(super) fn new() -> Self {
        Self(Directory::new())
    }

    #[inline(always)]
    pub(super) fn levels(&self, hash: u64) -> Levels {
        self.0.page(hash).places[place(hash)]
    }

    /// One policy more has a prefix with this hash, and the other address at `level`.
    pub(super) fn add(&mut self, hash: u64, level: u8) -> Result<(), NoRoom> {
        self.0.make_room(hash, 1)?;
        self.0.change(hash, |page| match page.find(hash, level) {
            Some(at) => page.pairs[at].policies += 1,
            None => page.push(Pair { hash, policies: 1, level }),
        });
        Ok(())
    }

    /// One policy fewer.
    pub(super) fn remove(&mut self, hash: u64, level: u8) {
        self.0.change(hash, |page| {
            let Some(at) = page.find(hash, level) else { return };
            page.pairs[at].policies -= 1;
            if page.pairs[at].policies == 0 {
                page.pairs.swap_remove(at);
                let same = page.pairs.iter().filter(|pair| place(pair.hash) == place(hash));
                page.places[place(hash)] = same.fold(0, |levels, pair| levels | 1 << pair.level);
            }
        });
        self.0.tidy(hash);
    }
}

impl FilterPage {
    fn find(&self, hash: u64, level: u8) -> Option<usize> {
        self.pairs.iter().position(|pair| (pair.hash, pair.level) == (hash, level))
    }

    fn push(&mut self, pair: Pair) {
        self.places[place(pair.hash)] |= 1 << pair.level;
        self.pairs.push(pair);
    }
}

impl Default for FilterPage {
    fn default() -> Self {
        Self { places: [0; PLACES], pairs: Vec::new() }
    }
}

impl Page for FilterPage {
    fn has_room(&self, more: usize) -> bool {
        self.pairs.len() + more <= FULL
    }

    fn split(&self, bit: u64) -> [Self; 2] {
        let mut halves = [Self::default(), Self::default()];
        for pair in &self.pairs {
            halves[usize::from(pair.hash & bit != 0)].push(*pair);
        }
        halves
    }

    fn join(&self, other: &Self) -> Option<Self> {
        if self.pairs.len() + other.pairs.len() > FULL / 2 {
            return None;
        }
        let mut joined = self.clone();
        other.pairs.iter().for_each(|pair| joined.push(*pair));
        Some(joined)
    }
}

/// The directory has the first bits.
#[inline(always)]
fn place(hash: u64) -> usize {
    hash as usize & (PLACES - 1)
}
