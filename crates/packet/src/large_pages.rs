//! Large pages for tables that are read all over: they spare the processor most of its address
//! translation.
//!
//! JUSTIFICATION of the unsafe code: values that change while they are shared, such as atomics, cannot
//! be a view of a mapping's bytes, so their tables are on the heap, of which the standard library
//! does not say how its pages are to be made. The advice changes no byte of it.
#![allow(unsafe_code)]

use zerocopy::FromZeros;

/// Bytes below which large pages are not asked for.
const WORTH: usize = 2 << 20;
const PAGE: usize = 4096;

/// Allocates a fixed number of values, in large pages if they fill some and the system has them. Every
/// page is written, so that memory that is not there is missed now and not later. `None` if the
/// system refuses.
pub fn allocate<T: Default>(count: usize) -> Option<Box<[T]>> {
    let mut all = Vec::<T>::new();
    all.try_reserve_exact(count).ok()?;
    // Before anything is written: pages that are there stay as they are.
    ask(all.spare_capacity_mut());
    all.resize_with(count, T::default);
    Some(all.into_boxed_slice())
}

/// Allocates zeroed values of which few are used at first, or ever: memory that nobody has written to is
/// not taken from the system. `None` if it refuses.
pub fn allocate_zeroed<T: FromZeros>(count: usize) -> Option<Box<[T]>> {
    let mut all = <[T]>::new_box_zeroed_with_elems(count).ok()?;
    ask(&mut all);
    Some(all)
}

/// Asks for large pages for the whole pages of `room`.
fn ask<T>(room: &mut [T]) {
    let bytes = size_of_val(room);
    if bytes < WORTH {
        return;
    }
    let first = room.as_mut_ptr().cast::<core::ffi::c_void>();
    let front = first.align_offset(PAGE);
    let length = bytes.saturating_sub(front) / PAGE * PAGE;
    // SAFETY: the range is inside `room`, which nobody else uses meanwhile; and this advice leaves
    // what is there as it is. Where there are no large pages, all works the same.
    let _ = unsafe {
        rustix::mm::madvise(first.byte_add(front), length, rustix::mm::Advice::LinuxHugepage)
    };
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_is_allocated_is_whole_and_can_be_changed() {
        for count in [0, 1, 1000, 3 << 18] {
            let mut all = allocate::<u64>(count).unwrap();
            assert_eq!((all.len(), all.iter().max().copied().unwrap_or(0)), (count, 0));
            all.fill(7);
            assert!(all.iter().all(|number| *number == 7));
        }
    }

    /// Of a GiB, what is touched is there (proc_pid_statm(5): the second is what is resident).
    #[cfg(target_os = "linux")]
    #[test]
    fn what_is_not_written_takes_no_memory() {
        let resident = || {
            let text = std::fs::read_to_string("/proc/self/statm").unwrap();
            text.split(' ').nth(1).unwrap().parse::<usize>().unwrap() * PAGE
        };
        let before = resident();
        let mut all = allocate_zeroed::<u64>(1 << 27).unwrap();
        (0..8).for_each(|at| all[at << 24] = 7);
        assert_eq!((all[1 << 24], all[(1 << 24) + 1]), (7, 0));
        assert!(resident() < before + (256 << 20));
    }

    #[test]
    fn too_much_is_refused() {
        assert!(allocate_zeroed::<u64>(usize::MAX / 8).is_none());
        assert!(allocate::<u64>(usize::MAX / 8).is_none());
        assert!(allocate::<u64>(usize::MAX).is_none());
    }

    /// The kernel says so of the mapping (proc_pid_smaps(5): `hg` among its flags).
    #[cfg(target_os = "linux")]
    #[test]
    fn large_tables_ask_for_large_pages() {
        let all = allocate::<u64>(1 << 20).unwrap();
        let middle = all[1 << 19..].as_ptr().addr();
        let maps = std::fs::read_to_string("/proc/self/smaps").unwrap();
        let mut is_ours = false;
        for line in maps.lines() {
            let range = line.split(' ').next().and_then(|word| word.split_once('-'));
            let ends =
                range.map(|(low, high)| [low, high].map(|end| usize::from_str_radix(end, 16)));
            if let Some([Ok(low), Ok(high)]) = ends {
                is_ours = (low..high).contains(&middle);
            }
            if is_ours && let Some(flags) = line.strip_prefix("VmFlags:") {
                return assert!(flags.split(' ').any(|flag| flag == "hg"), "{flags}");
            }
        }
        panic!("the table is in no mapping");
    }
}
