//! What pages the heap is made of. Most tables are there: with thousands of VRFs and ports each
//! packet reads them in other places, and with pages of 4 KiB the processor translates an address
//! for each.

use std::ffi::{OsStr, OsString};
use std::fs;

/// What glibc reads before a program begins (glibc manual, "Memory Allocation Tunables"). With the
/// one below it asks the system for transparent huge pages as the main heap grows, which is where
/// the control thread makes the tables, and for what it maps in pieces of 2 MiB and more.
pub const TUNABLES: &str = "GLIBC_TUNABLES";
const NAME: &str = "glibc.malloc.hugetlb";

/// Where the system says whether it makes huge pages: for all memory, for what asks, or for none.
const SYSTEM: &str = "/sys/kernel/mm/transparent_hugepage/enabled";

/// The tunables of a program whose heap asks for huge pages, beside those that are set. `None` if
/// they say already whether it does.
pub fn with_huge_pages(tunables: Option<&OsStr>) -> Option<OsString> {
    let asks = format!("{NAME}=1");
    match tunables {
        None => Some(asks.into()),
        Some(tunables) if says(tunables) => None,
        Some(tunables) => {
            let mut all = tunables.to_owned();
            if !all.is_empty() {
                all.push(":");
            }
            all.push(asks);
            Some(all)
        }
    }
}

/// Whether this program's heap might be in huge pages, and is not, since nobody has asked.
pub fn could_be_huge() -> bool {
    let is_on_demand = fs::read_to_string(SYSTEM).is_ok_and(|text| text.contains("[madvise]"));
    let is_said = std::env::var_os(TUNABLES).is_some_and(|tunables| says(&tunables));
    cfg!(target_env = "gnu") && is_on_demand && !is_said
}

fn says(tunables: &OsStr) -> bool {
    let tunables = tunables.to_string_lossy();
    tunables.split(':').any(|one| one.split('=').next() == Some(NAME))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_is_set_stays_and_is_not_said_twice() {
        for (before, after) in [
            (None, Some("glibc.malloc.hugetlb=1")),
            (Some(""), Some("glibc.malloc.hugetlb=1")),
            (Some("glibc.pthread.rseq=0"), Some("glibc.pthread.rseq=0:glibc.malloc.hugetlb=1")),
            (Some("glibc.malloc.hugetlb=0"), None),
            (Some("glibc.malloc.check=1:glibc.malloc.hugetlb=2"), None),
        ] {
            let with = with_huge_pages(before.map(OsStr::new));
            assert_eq!(with.as_deref(), after.map(OsStr::new), "{before:?}");
        }
    }
}
