//! Memory for tables: all zeros, given by the system when first touched, and refused rather than half given.

use memmap2::{MmapMut, MmapOptions};

/// A fixed number of bytes that begin at a page.
#[derive(Debug)]
pub(super) struct Memory(MmapMut);

impl Memory {
    /// `None` where the system refuses.
    pub(super) fn new(bytes: usize) -> Option<Self> {
        let map = MmapOptions::new().len(bytes.max(1)).map_anon().ok()?;
        // Large pages spare the processor most of its address translation. Where there are none, it works all the same.
        #[cfg(target_os = "linux")]
        let _ = map.advise(memmap2::Advice::HugePage);
        Some(Self(map))
    }

    #[inline(always)]
    pub(super) fn bytes<const N: usize>(&self, at: usize) -> &[u8; N] {
        let (bytes, _) = self.0[at..].split_first_chunk().expect("an index below the table's size");
        bytes
    }

    #[inline(always)]
    pub(super) fn word(&self, at: usize) -> u64 {
        u64::from_ne_bytes(*self.bytes(at))
    }

    #[inline(always)]
    pub(super) fn set_word(&mut self, at: usize, value: u64) {
        let (bytes, _) = self.0[at..].split_first_chunk_mut().expect("an index below the table's size");
        *bytes = value.to_ne_bytes();
    }

    #[inline(always)]
    pub(super) fn words<const N: usize>(&self, at: usize) -> [u64; N] {
        core::array::from_fn(|word| self.word(at + 8 * word))
    }

    #[inline(always)]
    pub(super) fn set_words<const N: usize>(&mut self, at: usize, words: &[u64; N]) {
        for (word, value) in words.iter().enumerate() {
            self.set_word(at + 8 * word, *value);
        }
    }
}
