//! Sealing and opening allocate nothing, in Rust or in the C of a crypto library.
//!
//! A Rust allocator would not see what C allocates, so the C library's own functions are stood in
//! front of. glibc lets a program do that, and keeps the originals under other names; elsewhere
//! there is nothing to test with.
#![cfg(all(target_os = "linux", target_env = "gnu"))]

use std::cell::Cell;
use std::ffi::{c_int, c_void};

use esp::{Algorithm, InboundSa, KeyMaterial, OpenError, OpenJob, OutboundSa, SealJob, WindowSize};
use rand_chacha::ChaCha20Rng;
use rand_chacha::rand_core::SeedableRng;
use types::{Protocol, Spi};

thread_local! {
    /// Allocations of this thread. Constant at first and without a destructor, so that touching it
    /// allocates nothing.
    static ALLOCATIONS: Cell<usize> = const { Cell::new(0) };
}

unsafe extern "C" {
    fn __libc_malloc(size: usize) -> *mut c_void;
    fn __libc_calloc(count: usize, size: usize) -> *mut c_void;
    fn __libc_realloc(old: *mut c_void, size: usize) -> *mut c_void;
    fn __libc_memalign(alignment: usize, size: usize) -> *mut c_void;
}

fn count() {
    ALLOCATIONS.set(ALLOCATIONS.get() + 1);
}

// JUSTIFICATION of the unsafe functions below: the linker must find the C library's own names, with
// its own contracts.

/// # Safety
/// As C's.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn malloc(size: usize) -> *mut c_void {
    count();
    // SAFETY: the caller keeps C's contract, and this is C's malloc under its other name.
    unsafe { __libc_malloc(size) }
}

/// # Safety
/// As C's.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn calloc(items: usize, size: usize) -> *mut c_void {
    count();
    // SAFETY: as for malloc.
    unsafe { __libc_calloc(items, size) }
}

/// # Safety
/// As C's.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn realloc(old: *mut c_void, size: usize) -> *mut c_void {
    count();
    // SAFETY: as for malloc.
    unsafe { __libc_realloc(old, size) }
}

/// # Safety
/// As C's.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn posix_memalign(
    place: *mut *mut c_void,
    alignment: usize,
    size: usize,
) -> c_int {
    count();
    // SAFETY: the caller gives a place to write to; memalign takes every alignment that
    // posix_memalign takes.
    unsafe {
        *place = __libc_memalign(alignment, size);
        if (*place).is_null() { libc::ENOMEM } else { 0 }
    }
}

#[test]
fn sealing_and_opening_allocate_nothing() {
    assert_ne!(
        allocations(|| drop(std::hint::black_box(Box::new(1)))),
        0,
        "what counts does not count"
    );

    let mut randomness = ChaCha20Rng::seed_from_u64(1);
    for algorithm in Algorithm::ALL {
        let hash: &[u8] =
            if matches!(algorithm, Algorithm::Separate { .. }) { &[1; 20] } else { &[] };
        let keys =
            KeyMaterial::new(algorithm, &vec![2; algorithm.encryption_key_length()], hash).unwrap();
        let outbound = OutboundSa::new(Spi(1), &keys, 0, &mut randomness);
        let inbound = InboundSa::new(Spi(1), &keys, WindowSize::MAX, 0);
        let mut buffers: Vec<_> = (0..256).map(|_| vec![0; 2048]).collect();

        // The second round counts: a library may set itself up in the first.
        for round in 0..2 {
            let mut jobs: Vec<_> = buffers
                .iter_mut()
                .zip(0..)
                .map(|(buffer, i)| SealJob::new(buffer, 64, 5 * i, Protocol::IPV4))
                .collect();
            let sealing = allocations(|| _ = outbound.seal(&mut jobs, &mut randomness));
            assert!(jobs.iter().all(|job| job.result.is_ok()));

            let packets: Vec<_> = jobs.iter().map(|job| (job.start, job.length)).collect();
            let mut jobs: Vec<_> = buffers
                .iter_mut()
                .zip(packets)
                .map(|(buffer, (start, length))| OpenJob::new(buffer, start, length))
                .collect();
            // Each way of being refused, too.
            for job in jobs.iter_mut().step_by(4) {
                job.buffer[job.start + job.length - 1] ^= 1;
            }
            jobs[1].length = 9;
            let sequence = jobs[2].start + 4;
            jobs[2].buffer[sequence..][..4].fill(0);
            let opening = allocations(|| _ = inbound.open(&mut jobs));
            if algorithm.icv_length() > 0 {
                assert_eq!(jobs[0].result, Err(OpenError::BadIcv));
                assert_eq!(jobs[3].result, Ok(()));
            }
            if round == 1 {
                assert_eq!((sealing, opening), (0, 0), "allocations of {algorithm}");
            }
        }
    }
}

/// How often this thread allocates in `work`.
fn allocations(work: impl FnOnce()) -> usize {
    let before = ALLOCATIONS.get();
    work();
    ALLOCATIONS.get() - before
}
