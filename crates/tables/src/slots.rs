//! Numbered places whose copies are cheap.

use std::sync::Arc;

/// Places by number, dense from 0. A copy shares all of them; a change copies those `CHUNK` that it
/// is among.
#[derive(Clone, Debug)]
pub(crate) struct Slots<T, const CHUNK: usize = 256>(Vec<Arc<[Option<T>; CHUNK]>>);

impl<T: Clone, const CHUNK: usize> Slots<T, CHUNK> {
    pub(crate) const fn new() -> Self {
        Self(Vec::new())
    }

    #[inline(always)]
    pub(crate) fn get(&self, number: u32) -> Option<&T> {
        let number = number as usize;
        self.0.get(number / CHUNK)?[number % CHUNK].as_ref()
    }

    /// Asks for the memory that [`Slots::get`] will find.
    #[inline]
    pub(crate) fn prefetch(&self, number: u32) {
        let number = number as usize;
        if let Some(chunk) = self.0.get(number / CHUNK) {
            packet::prefetch_whole(&chunk[number % CHUNK]);
        }
    }

    pub(crate) fn get_mut(&mut self, number: u32) -> Option<&mut T> {
        self.get(number)?;
        let number = number as usize;
        Arc::make_mut(&mut self.0[number / CHUNK])[number % CHUNK].as_mut()
    }

    /// Puts a value into its place. Returns what was there.
    pub(crate) fn set(&mut self, number: u32, value: T) -> Option<T> {
        let number = number as usize;
        while self.0.len() <= number / CHUNK {
            self.0.push(Arc::new([const { None }; CHUNK]));
        }
        Arc::make_mut(&mut self.0[number / CHUNK])[number % CHUNK].replace(value)
    }

    pub(crate) fn remove(&mut self, number: u32) -> Option<T> {
        self.get(number)?;
        let number = number as usize;
        Arc::make_mut(&mut self.0[number / CHUNK])[number % CHUNK].take()
    }

    /// Places, whether anything is there or not: more than the highest number that was ever used.
    pub(crate) fn places(&self) -> usize {
        self.0.len() * CHUNK
    }

    /// The places that may be others than those of `before`: all of a chunk of which one is.
    pub(crate) fn changed_since(&self, before: &Self) -> impl Iterator<Item = u32> {
        let is_same =
            |at: usize, now| before.0.get(at).is_some_and(|before| Arc::ptr_eq(before, now));
        let changed = self.0.iter().enumerate().filter(move |(at, now)| !is_same(*at, now));
        changed.flat_map(|(at, _)| (at * CHUNK..(at + 1) * CHUNK).map(|number| number as u32))
    }

    /// What is there, with its number.
    pub(crate) fn numbered(&self) -> impl Iterator<Item = (u32, &T)> {
        let all = self.0.iter().flat_map(|chunk| chunk.iter());
        (0..).zip(all).filter_map(|(number, place)| Some((number, place.as_ref()?)))
    }

    /// What is there, by number.
    pub(crate) fn iter(&self) -> impl Iterator<Item = &T> {
        self.0.iter().flat_map(|chunk| chunk.iter()).flatten()
    }

    /// What is there, by number, to change all of it.
    pub(crate) fn iter_mut(&mut self) -> impl Iterator<Item = &mut T> {
        self.0.iter_mut().flat_map(|chunk| Arc::make_mut(chunk).iter_mut()).flatten()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_change_is_found_without_a_look_at_all() {
        let mut slots = Slots::<u32, 64>::new();
        (0..1000).for_each(|number| _ = slots.set(number, number));
        let before = slots.clone();
        assert_eq!(slots.changed_since(&before).count(), 0);
        assert_eq!(slots.set(70, 1), Some(70));
        slots.remove(999);
        slots.set(1024, 1);
        let changed: Vec<_> = slots.changed_since(&before).collect();
        let expected = (64..128).chain(960..1088);
        assert_eq!(changed, expected.collect::<Vec<_>>());
        assert_eq!((before.places(), slots.places()), (1024, 1088));
        slots.iter_mut().for_each(|value| *value = 7);
        assert!(slots.iter().all(|value| *value == 7) && before.get(999) == Some(&999));
    }
}
