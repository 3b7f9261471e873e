//! Memory for tables: all zeros, given by the system when first touched; what it does not even
//! promise is refused with an error.

use memmap2::{MmapMut, MmapOptions};

/// A fixed number of bytes that begin at a page.
#[derive(Debug)]
pub(super) struct Memory(MmapMut);

impl Memory {
    /// `None` where the system refuses.
    pub(super) fn new(bytes: usize) -> Option<Self> {
        let map = MmapOptions::new().len(bytes.max(1)).map_anon().ok()?;
        // Large pages spare the processor most of its address translation. Where there are none, it
        // works all the same.
        #[cfg(target_os = "linux")]
        let _ = map.advise(memmap2::Advice::HugePage);
        Some(Self(map))
    }

    /// `length` bytes.
    #[inline(always)]
    pub(super) fn bytes(&self, at: usize, length: usize) -> &[u8] {
        &self.0[at..at + length]
    }

    /// `length` bytes.
    #[inline(always)]
    pub(super) fn bytes_mut(&mut self, at: usize, length: usize) -> &mut [u8] {
        &mut self.0[at..at + length]
    }
}

/// The word of this number.
#[inline(always)]
pub(super) fn word(bytes: &[u8], number: usize) -> u64 {
    let (word, _) = bytes[8 * number..].split_first_chunk().expect("a word inside");
    u64::from_ne_bytes(*word)
}

/// Changes the word of this number.
#[inline(always)]
pub(super) fn set_word(bytes: &mut [u8], number: usize, value: u64) {
    let (word, _) = bytes[8 * number..].split_first_chunk_mut().expect("a word inside");
    *word = value.to_ne_bytes();
}
