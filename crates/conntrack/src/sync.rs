//! Atomics and locks: the standard library's, or loom's where loom checks every order of steps.

#[cfg(not(all(test, feature = "loom")))]
pub(crate) use core::sync::atomic::{AtomicU32, AtomicU64, Ordering};
#[cfg(not(all(test, feature = "loom")))]
pub(crate) use std::sync::{Mutex, MutexGuard};

#[cfg(all(test, feature = "loom"))]
pub(crate) use loom::sync::atomic::{AtomicU32, AtomicU64, Ordering};
#[cfg(all(test, feature = "loom"))]
pub(crate) use loom::sync::{Mutex, MutexGuard};

/// Locks. A thread that panicked while it held the lock has left whole words behind: what is
/// under these locks is right after each store.
pub(crate) fn lock<T>(mutex: &Mutex<T>) -> MutexGuard<'_, T> {
    mutex.lock().unwrap_or_else(std::sync::PoisonError::into_inner)
}

/// Allocates a fixed number of values. Every page is written, so that memory that is not there is
/// missed now and not later. `None` if the system refuses.
pub(crate) fn allocate<T: Default>(count: usize) -> Option<Box<[T]>> {
    let mut all = Vec::new();
    all.try_reserve_exact(count).ok()?;
    all.resize_with(count, T::default);
    Some(all.into_boxed_slice())
}
