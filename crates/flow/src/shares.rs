//! What VRFs have of pools that they share.
//!
//! A pool belongs to no VRF. One VRF may have all of it while no other asks; once it is full, a VRF
//! that has less than another one gets a place from the one that has most. So each VRF is
//! guaranteed an equal share of the pool among those that use it, and what nobody else needs is the
//! most that it may have. A VRF whose highest share is less than the whole never has more than that.

use packet::Time;
use types::HighestShares;
use wire::VrfId;

/// Numbers that VRFs may have (`tables::MAX_VRF_NUMBERS`). Each has a place of its own.
const VRFS: usize = 8192;

/// How much of a pool each VRF has. Its memory follows from the size of the pool, not from how many
/// VRFs there are.
#[derive(Clone, Debug)]
pub(crate) struct Shares {
    /// By VRF; none has nothing.
    used: Vec<(VrfId, usize)>,
    /// Of the pool.
    places: usize,
    highest: HighestShares,
}

impl Shares {
    /// Of a pool of so many places.
    pub(crate) fn new(places: usize) -> Self {
        let highest = HighestShares::default();
        Self { used: Vec::with_capacity(places.min(VRFS)), places, highest }
    }

    /// From now on no VRF takes more than its highest share. One that has more keeps it.
    pub(crate) fn limit(&mut self, highest: &HighestShares) {
        self.highest = HighestShares::clone(highest);
    }

    /// Whether a VRF has all that it may have.
    pub(crate) fn is_at_highest(&self, vrf: VrfId) -> bool {
        self.highest.get(&vrf).is_some_and(|share| self.of(vrf) >= share.of(self.places))
    }

    /// How much a VRF has.
    pub(crate) fn of(&self, vrf: VrfId) -> usize {
        self.place(vrf).map_or(0, |at| self.used[at].1)
    }

    /// The VRF that has most, and how much.
    pub(crate) fn largest(&self) -> Option<(VrfId, usize)> {
        self.used.iter().copied().max_by_key(|(_, used)| *used)
    }

    /// The VRF that gives up a place of a full pool for `vrf`: the one that has most, if `vrf` would
    /// not have more then.
    pub(crate) fn gives_way_to(&self, vrf: VrfId) -> Option<VrfId> {
        let own = self.of(vrf);
        self.largest().filter(|(_, used)| *used > own + 1).map(|(largest, _)| largest)
    }

    pub(crate) fn take(&mut self, vrf: VrfId) {
        match self.place(vrf) {
            Ok(at) => self.used[at].1 += 1,
            Err(at) => self.used.insert(at, (vrf, 1)),
        }
    }

    pub(crate) fn give_back(&mut self, vrf: VrfId, count: usize) {
        let Ok(at) = self.place(vrf) else { return };
        self.used[at].1 = self.used[at].1.saturating_sub(count);
        if self.used[at].1 == 0 {
            self.used.remove(at);
        }
    }

    fn place(&self, vrf: VrfId) -> Result<usize, usize> {
        self.used.binary_search_by_key(&vrf, |(of, _)| *of)
    }
}

/// What each VRF may do, however much the others do: so many a second, and so many at once after a
/// pause. A few bytes for each VRF (the generic cell rate algorithm, ITU-T I.371).
#[derive(Debug)]
pub struct Guarantee {
    interval: u64,
    tolerance: u64,
    /// By VRF: when the next is due at this rate.
    due: Box<[u64]>,
}

impl Guarantee {
    /// Permits each VRF `rate` a second, and `burst` at once.
    pub fn new(rate: u64, burst: u64) -> Self {
        let interval = 1_000_000_000 / rate.max(1);
        let tolerance = interval * burst.saturating_sub(1);
        Self { interval, tolerance, due: vec![0; VRFS].into() }
    }

    /// Whether it is within what `vrf` is guaranteed; if so, that is counted.
    pub fn allow(&mut self, now: Time, vrf: VrfId) -> bool {
        let due = &mut self.due[usize::from(vrf.0) % VRFS];
        if now.0 < due.saturating_sub(self.tolerance) {
            return false;
        }
        *due = (*due).max(now.0) + self.interval;
        true
    }
}

/// VRF 1 gets so many percent at most.
#[cfg(test)]
pub(crate) fn limited_to(percent: u8) -> HighestShares {
    let share = types::Share::new(percent).unwrap();
    std::collections::BTreeMap::from([(VrfId(1), share)]).into()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn who_has_most_gives_way_to_who_has_less() {
        let (red, blue) = (VrfId(1), VrfId(2));
        let mut shares = Shares::new(8);
        (0..7).for_each(|_| shares.take(red));
        assert_eq!(shares.gives_way_to(red), None);
        for count in 0..6 {
            let gives_way = (count < 3).then_some(red);
            assert_eq!(shares.gives_way_to(blue).filter(|_| shares.of(red) > 4), gives_way);
            if let Some(from) = gives_way {
                shares.give_back(from, 1);
                shares.take(blue);
            }
        }
        assert_eq!((shares.of(red), shares.of(blue)), (4, 3), "equal shares, as far as it goes");
        assert_eq!(shares.gives_way_to(blue), None);
        shares.give_back(red, 4);
        assert_eq!(shares.largest(), Some((blue, 3)));
    }

    #[test]
    fn who_has_its_highest_share_gets_no_more() {
        let (red, blue) = (VrfId(1), VrfId(2));
        let mut shares = Shares::new(8);
        assert!(!shares.is_at_highest(red));
        shares.limit(&limited_to(25));
        shares.take(red);
        assert!(!shares.is_at_highest(red));
        shares.take(red);
        (0..6).for_each(|_| shares.take(blue));
        assert!(shares.is_at_highest(red) && !shares.is_at_highest(blue));
        shares.give_back(red, 1);
        assert!(!shares.is_at_highest(red));
        shares.limit(&HighestShares::default());
        shares.take(red);
        assert!(!shares.is_at_highest(red));
    }

    #[test]
    fn each_vrf_has_its_own_rate() {
        let mut guarantee = Guarantee::new(10, 5);
        let (red, blue) = (VrfId(1), VrfId(2));
        assert_eq!((0..100).filter(|_| guarantee.allow(Time(1), red)).count(), 5);
        assert_eq!((0..100).filter(|_| guarantee.allow(Time(1), blue)).count(), 5);
        let told = (1..=10_000u64)
            .filter(|millisecond| guarantee.allow(Time(millisecond * 1_000_000), red))
            .count();
        assert!((95..=105).contains(&told), "{told}");
    }
}
