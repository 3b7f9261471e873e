//! Who was refused something, for a log that names a few of them.

use core::mem;

use arrayvec::ArrayVec;

use crate::sync::{Mutex, lock};

/// The most that are named between two questions.
const NAMED: usize = 16;

/// Who was refused something since this was last asked.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct RefusedOnes<K> {
    /// The first 16 of them, and how often each was.
    pub named: Vec<(K, u64)>,
    /// How often others were.
    pub others: u64,
}

/// Those who were refused, until somebody asks. It takes no memory for them.
pub(crate) struct RefusedSince<K>(Mutex<(ArrayVec<(K, u64), NAMED>, u64)>);

impl<K: PartialEq> RefusedSince<K> {
    pub(crate) fn new() -> Self {
        Self(Mutex::new((ArrayVec::new(), 0)))
    }

    pub(crate) fn note(&self, who: K) {
        let mut state = lock(&self.0);
        let (named, others) = &mut *state;
        match named.iter_mut().find(|(known, _)| *known == who) {
            Some((_, count)) => *count += 1,
            None => *others += u64::from(named.try_push((who, 1)).is_err()),
        }
    }

    pub(crate) fn take(&self) -> RefusedOnes<K> {
        let (named, others) = mem::take(&mut *lock(&self.0));
        RefusedOnes { named: named.into_iter().collect(), others }
    }
}

#[cfg(all(test, not(feature = "loom")))]
mod tests {
    use super::*;

    #[test]
    fn a_few_are_named() {
        let refused = RefusedSince::new();
        (0..20).chain(0..20).chain([3]).for_each(|who| refused.note(who));
        let RefusedOnes { named, others } = refused.take();
        assert_eq!(named.iter().map(|(who, _)| *who).collect::<Vec<_>>(), Vec::from_iter(0..16));
        assert_eq!((named[3].1, named[4].1, others), (3, 2, 8));
        assert_eq!(refused.take(), RefusedOnes { named: Vec::new(), others: 0 });
    }
}
