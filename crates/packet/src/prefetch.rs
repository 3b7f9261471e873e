//! Asking the processor for memory before it is needed, and waiting for it.
//!
//! JUSTIFICATION: looking one flow up in a large table costs a wait for memory; asking for the
//! whole batch's memory first and looking then lets those waits overlap. The standard library has
//! no safe function for it. A plain read would do the same, but it holds its place in the
//! processor's queue until the memory has come. Nor has it one that holds back the reading of a
//! clock: `atomic::fence` orders memory, and a clock is none.
#![allow(unsafe_code)]

/// Has the cache line where `value` begins brought near, if the processor knows how. It changes
/// nothing and is never wrong, only useless.
#[inline(always)]
pub fn prefetch<T: ?Sized>(value: &T) {
    #[cfg(target_arch = "x86_64")]
    {
        use core::arch::x86_64::{_MM_HINT_T0, _mm_prefetch};
        // SAFETY: a prefetch is a hint that reads and writes nothing as far as the program can
        // tell, whatever the address; SSE, which has it, is part of x86-64.
        unsafe { _mm_prefetch::<_MM_HINT_T0>(core::ptr::from_ref(value).cast::<i8>()) };
    }
    #[cfg(not(target_arch = "x86_64"))]
    let _ = value;
}

/// As [`prefetch`], of all cache lines of a value that begins with one.
#[inline(always)]
pub fn prefetch_whole<T>(value: &T) {
    #[cfg(target_arch = "x86_64")]
    for line in (0..size_of::<T>()).step_by(64) {
        use core::arch::x86_64::{_MM_HINT_T0, _mm_prefetch};
        let place = core::ptr::from_ref(value).cast::<i8>().wrapping_add(line);
        // SAFETY: as above; the address is computed without being used.
        unsafe { _mm_prefetch::<_MM_HINT_T0>(place) };
    }
    #[cfg(not(target_arch = "x86_64"))]
    let _ = value;
}

/// As [`prefetch`], of a place in a slice. It need not be inside: then the hint is useless.
#[inline(always)]
pub fn prefetch_at<T>(slice: &[T], index: usize) {
    #[cfg(target_arch = "x86_64")]
    {
        use core::arch::x86_64::{_MM_HINT_T0, _mm_prefetch};
        let place = slice.as_ptr().wrapping_add(index);
        // SAFETY: as above; the address is computed without being used.
        unsafe { _mm_prefetch::<_MM_HINT_T0>(place.cast()) };
    }
    #[cfg(not(target_arch = "x86_64"))]
    let _ = (slice, index);
}

/// Waits until everything that was read has come, if the processor knows how. A processor goes on
/// while it waits for memory, and on to the reading of a clock: without this, the waits are missing
/// in what is measured between two readings, and with a packet at a time they are most of it.
#[inline(always)]
pub fn wait_for_reads() {
    #[cfg(target_arch = "x86_64")]
    {
        // SAFETY: it reads and writes nothing; SSE2, which has it, is part of x86-64.
        unsafe { core::arch::x86_64::_mm_lfence() };
    }
}
