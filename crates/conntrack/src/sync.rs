//! Atomics and locks: the standard library's, or loom's where loom checks every order of steps. And the
//! memory that tables of them stand in.

#[cfg(not(all(test, feature = "loom")))]
pub(crate) use core::sync::atomic::{AtomicU8, AtomicU32, AtomicU64, Ordering};
#[cfg(not(all(test, feature = "loom")))]
pub(crate) use std::sync::{Mutex, MutexGuard};

#[cfg(all(test, feature = "loom"))]
pub(crate) use loom::sync::atomic::{AtomicU8, AtomicU32, AtomicU64, Ordering};
#[cfg(all(test, feature = "loom"))]
pub(crate) use loom::sync::{Mutex, MutexGuard};

pub(crate) use packet::allocate;
/// Loom's atomics are no plain memory.
#[cfg(all(test, feature = "loom"))]
pub(crate) use packet::allocate as allocate_zeroed;
#[cfg(not(all(test, feature = "loom")))]
pub(crate) use packet::allocate_zeroed;

/// Stores. For loom it is an exchange: an exchange of another thread that came before stays before it, as
/// its words say it does; loom takes a plain store for the earlier one as well.
#[inline(always)]
pub(crate) fn store(place: &AtomicU64, value: u64, ordering: Ordering) {
    #[cfg(all(test, feature = "loom"))]
    place.swap(value, ordering);
    #[cfg(not(all(test, feature = "loom")))]
    place.store(value, ordering);
}

/// Locks. A thread that panicked while it held the lock has left whole words behind: what is
/// under these locks is right after each store.
pub(crate) fn lock<T>(mutex: &Mutex<T>) -> MutexGuard<'_, T> {
    mutex.lock().unwrap_or_else(std::sync::PoisonError::into_inner)
}
