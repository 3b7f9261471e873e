//! Numbers by name.

use std::sync::Arc;

use siphasher::sip::SipHasher13;

use crate::map::{Map, MapKey};

/// The numbers of what has a name. A copy shares them, a change copies little.
///
/// Only hashes of names are kept: whoever asks has what has the numbers, and knows its name.
#[derive(Clone)]
pub(crate) struct Names {
    hasher: SipHasher13,
    numbers: Map<NameHash, Arc<[u16]>>,
}

#[derive(Clone, Copy, PartialEq, Eq)]
struct NameHash(u64);

impl MapKey for NameHash {
    type Words = [u64; 1];

    fn to_words(&self) -> [u64; 1] {
        [self.0]
    }
}

impl Names {
    pub(crate) fn new(secret: u64) -> Self {
        Self { hasher: SipHasher13::new_with_keys(secret, 1), numbers: Map::new(secret) }
    }

    /// The numbers of what may have this name: nearly always those alone of what has it.
    pub(crate) fn of(&self, name: &str) -> impl Iterator<Item = u16> {
        self.numbers.get(&self.hash(name)).into_iter().flat_map(|all| all.iter()).copied()
    }

    /// What has this number has this name.
    pub(crate) fn add(&mut self, name: &str, number: u16) {
        let all: Arc<[u16]> = self.of(name).chain([number]).collect();
        self.numbers.insert(self.hash(name), all);
    }

    /// What had this number and this name has it no longer.
    pub(crate) fn remove(&mut self, name: &str, number: u16) {
        let mut left = self.of(name).filter(|other| *other != number).peekable();
        match left.peek() {
            Some(_) => {
                let left = left.collect();
                self.numbers.insert(self.hash(name), left);
            }
            None => {
                drop(left);
                self.numbers.remove(&self.hash(name));
            }
        }
    }

    fn hash(&self, name: &str) -> NameHash {
        NameHash(self.hasher.hash(name.as_bytes()))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_name_has_the_numbers_that_were_added() {
        let mut names = Names::new(7);
        (0..1000).for_each(|number| names.add(&format!("name{number}"), number));
        // As if their hashes were the same.
        names.add("name5", 2000);
        let of = |names: &Names, name| names.of(name).collect::<Vec<_>>();
        let before = names.clone();
        assert_eq!((of(&names, "name5"), of(&names, "name999")), (vec![5, 2000], vec![999]));
        names.remove("name5", 5);
        assert_eq!(of(&names, "name5"), [2000]);
        names.remove("name5", 2000);
        names.remove("name6", 6);
        assert!(of(&names, "name5").is_empty() && of(&names, "name6").is_empty());
        assert_eq!((of(&before, "name5"), names.numbers.len()), (vec![5, 2000], 998));
    }
}
