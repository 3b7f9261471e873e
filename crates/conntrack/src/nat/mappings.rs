//! Endpoint-independent mappings (RFC 4787 section 4.1): an inside address and port has one outside
//! address and port, whoever it talks to.

use core::net::IpAddr;
use std::collections::HashMap;

use crate::limits::Keyed;
use crate::sync::{Mutex, lock};

/// Zone, protocol kind, address, port.
pub(super) type Inside = (u16, u8, IpAddr, u16);
/// Protocol kind, number of the address, port.
pub(super) type Outside = (u8, u16, u16);

struct Maps {
    out: HashMap<Inside, (Outside, u32), Keyed>,
    back: HashMap<Outside, Inside, Keyed>,
}

/// As many as there are ports at most.
pub(super) struct Mappings(Mutex<Maps>);

impl Mappings {
    pub(super) fn new(keyed: Keyed) -> Self {
        let (out, back) = (HashMap::with_hasher(keyed), HashMap::with_hasher(keyed));
        Self(Mutex::new(Maps { out, back }))
    }

    /// The mapping of an inside address and port, which has one user more; one that `make` has made
    /// if there was none.
    pub(super) fn take(
        &self,
        inside: Inside,
        make: impl FnOnce() -> Option<Outside>,
    ) -> Option<Outside> {
        let mut maps = lock(&self.0);
        if let Some((outside, users)) = maps.out.get_mut(&inside) {
            *users += 1;
            return Some(*outside);
        }
        let outside = make()?;
        maps.out.insert(inside, (outside, 1));
        maps.back.insert(outside, inside);
        Some(outside)
    }

    /// One user less. True if there is none left: the port is free then.
    pub(super) fn give(&self, outside: Outside) -> bool {
        let mut maps = lock(&self.0);
        let Some(inside) = maps.back.get(&outside).copied() else { return false };
        let Some((_, users)) = maps.out.get_mut(&inside) else { return false };
        *users -= 1;
        if *users > 0 {
            return false;
        }
        maps.out.remove(&inside);
        maps.back.remove(&outside);
        true
    }

    pub(super) fn outside(&self, inside: Inside) -> Option<Outside> {
        lock(&self.0).out.get(&inside).map(|(outside, _)| *outside)
    }

    pub(super) fn inside(&self, outside: Outside) -> Option<Inside> {
        lock(&self.0).back.get(&outside).copied()
    }
}
