//! Numbered places whose copies are cheap.

use std::sync::Arc;

/// Places that are copied together when one of them changes.
const CHUNK: usize = 256;

/// Places by number, dense from 0. A copy shares all of them; a change copies one chunk.
#[derive(Clone, Debug)]
pub(crate) struct Slots<T>(Vec<Arc<[Option<T>; CHUNK]>>);

impl<T: Clone> Slots<T> {
    pub(crate) const fn new() -> Self {
        Self(Vec::new())
    }

    #[inline]
    pub(crate) fn get(&self, number: u32) -> Option<&T> {
        let number = number as usize;
        self.0.get(number / CHUNK)?[number % CHUNK].as_ref()
    }

    /// Asks for the memory that [`Slots::get`] will read.
    #[inline]
    pub(crate) fn prefetch(&self, number: u32) {
        let number = number as usize;
        if let Some(chunk) = self.0.get(number / CHUNK) {
            packet::prefetch(&chunk[number % CHUNK]);
        }
    }

    pub(crate) fn get_mut(&mut self, number: u32) -> Option<&mut T> {
        self.get(number)?;
        let number = number as usize;
        Arc::make_mut(&mut self.0[number / CHUNK])[number % CHUNK].as_mut()
    }

    pub(crate) fn set(&mut self, number: u32, value: T) {
        let number = number as usize;
        while self.0.len() <= number / CHUNK {
            self.0.push(Arc::new([const { None }; CHUNK]));
        }
        Arc::make_mut(&mut self.0[number / CHUNK])[number % CHUNK] = Some(value);
    }

    pub(crate) fn remove(&mut self, number: u32) -> Option<T> {
        self.get(number)?;
        let number = number as usize;
        Arc::make_mut(&mut self.0[number / CHUNK])[number % CHUNK].take()
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
}
