//! What a VRF may have of a pool that all share.

use std::collections::BTreeMap;
use std::sync::Arc;

use crate::VrfId;

/// The VRFs that may not have the whole of a pool.
pub type HighestShares = Arc<BTreeMap<VrfId, Share>>;

/// The most that one VRF may have of a pool that VRFs share, in percent.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub struct Share(u8);

impl Share {
    /// All of it.
    pub const WHOLE: Self = Self(100);

    /// From 1 to 100 percent; `None` for anything else.
    pub const fn new(percent: u8) -> Option<Self> {
        match percent {
            1..=100 => Some(Self(percent)),
            _ => None,
        }
    }

    /// Percent.
    pub const fn percent(self) -> u8 {
        self.0
    }

    /// This share of a pool of so many places: one at least, if there is one.
    pub const fn of(self, places: usize) -> usize {
        match places * self.0 as usize / 100 {
            0 if places > 0 => 1,
            share => share,
        }
    }
}

impl Default for Share {
    fn default() -> Self {
        Self::WHOLE
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_share_is_never_nothing() {
        let share = |percent| Share::new(percent).unwrap();
        assert_eq!((share(25).of(256), share(1).of(16), share(100).of(7)), (64, 1, 7));
        assert_eq!((share(50).of(0), Share::new(0), Share::new(101)), (0, None, None));
    }
}
