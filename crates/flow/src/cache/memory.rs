//! Memory for tables: all zeros, given by the system when first touched; what it does not even
//! promise is refused with an error.

use memmap2::{MmapMut, MmapOptions};
use zerocopy::FromBytes;

/// A fixed number of rows of `WORDS` words. The first begins at a page.
#[derive(Debug)]
pub struct Memory<const WORDS: usize>(MmapMut);

impl<const WORDS: usize> Memory<WORDS> {
    /// `None` if the system refuses.
    pub fn new(rows: u64) -> Option<Self> {
        let bytes = usize::try_from(rows).ok()?.checked_mul(8 * WORDS)?;
        let map = MmapOptions::new().len(bytes).map_anon().ok()?;
        // Large pages spare the processor most of its address translation. Where there are none, it
        // works all the same.
        #[cfg(target_os = "linux")]
        let _ = map.advise(memmap2::Advice::HugePage);
        Some(Self(map))
    }

    /// All rows. Asked for once a batch: that bytes are words is checked here and not at each use.
    #[inline]
    pub fn rows(&mut self) -> &mut [[u64; WORDS]] {
        <[[u64; WORDS]]>::mut_from_bytes(&mut self.0).expect("whole rows from the start of a page")
    }

    /// The same, to be read.
    #[inline]
    pub fn read(&self) -> &[[u64; WORDS]] {
        <[[u64; WORDS]]>::ref_from_bytes(&self.0).expect("whole rows from the start of a page")
    }
}
