//! Adding and removing taps.

use std::sync::Arc;

use wire::Origin;

use super::Tables;
use crate::error::TableError;
use crate::filter::FilterTarget;
use crate::log::Change;
use crate::tap::{MAX_TAPS, Tap, TapMeter, TapSet, TapSpec};
use crate::vrf::Vrf;

impl Tables {
    /// Whether there is a tap at all.
    #[inline(always)]
    pub fn is_tapped(&self) -> bool {
        self.tap_count > 0
    }

    /// Whether taps may want packets that come by a VRF which has no other feature, as far as is
    /// quickly known: where such packets leave by ports of other VRFs, it is in tunnels.
    #[inline(always)]
    pub fn may_be_tapped(&self, vrf: &Vrf) -> bool {
        self.tapped_vrfs != 0
            && (self.tapped_vrfs >> (vrf.id.0 % 64) & 1 == 1 || !vrf.spd.is_empty())
    }

    /// Finds out anew which VRFs are tapped.
    pub(super) fn judge_taps(&mut self) {
        if self.tap_count == 0 {
            self.tapped_vrfs = 0;
            return;
        }
        let vrf_of = |tap: &Arc<Tap>| match tap.spec.target {
            FilterTarget::Vrf(vrf) => Some(vrf),
            FilterTarget::Port(port) => self.port(port).map(|port| port.spec.vrf),
        };
        let bits = self.taps().filter_map(vrf_of).map(|vrf| 1 << (vrf.0 % 64));
        self.tapped_vrfs = bits.fold(0, |all, bit: u64| all | bit);
    }

    /// Every tap.
    pub fn taps(&self) -> impl Iterator<Item = &Arc<Tap>> {
        self.taps.iter().flatten()
    }

    /// The taps whose bits are set, by place.
    pub fn taps_in(&self, set: u32) -> impl Iterator<Item = &Tap> {
        let is_in = move |&(place, _): &(usize, _)| set >> place & 1 == 1;
        self.taps.iter().enumerate().filter(is_in).filter_map(|(_, tap)| tap.as_deref())
    }

    /// Which taps concern packets of a flow by where they come from, and by the target that they
    /// leave by: the VRF, and the port if they leave in clear or by an xfrm link, or as ESP packets.
    pub fn tap_set(
        &self,
        (vrf, origin): (wire::VrfId, Origin),
        (clear, encrypted): (Option<wire::PortId>, Option<wire::PortId>),
    ) -> TapSet {
        let mut set = TapSet::NONE;
        let of_vrf = FilterTarget::Vrf(vrf);
        let link = |slot| self.xfrm_link(self.sad().slot(slot)?.identity.if_id?);
        let entry = match origin {
            Origin::Port(port) => Some(port),
            Origin::Sa(slot) => link(slot).map(|link| link.id),
            _ => None,
        };
        let entry = entry.map(FilterTarget::Port);
        let is_own = matches!(origin, Origin::Host | Origin::HostError(_) | Origin::HostProtected);
        let leaves = clear.is_some() || encrypted.is_some();
        for (place, tap) in self.taps.iter().enumerate() {
            let Some(tap) = tap else { continue };
            let (target, points, bit) = (tap.spec.target, tap.spec.points, 1 << place);
            let by = |port: Option<wire::PortId>| port.map(FilterTarget::Port) == Some(target);
            if Some(target) == entry || target == of_vrf {
                set.ingress |= if points.ingress && !is_own { bit } else { 0 };
                set.drop |= if points.drop { bit } else { 0 };
            }
            if points.egress && (leaves && target == of_vrf || by(clear)) {
                set.egress |= bit;
            }
            if points.egress && by(encrypted) {
                set.encrypted |= bit;
            }
        }
        set
    }

    /// Adds a tap.
    ///
    /// # Errors
    /// [`TableError::NoPort`], [`TableError::NoVrf`], [`TableError::Limit`].
    pub fn add_tap(&mut self, spec: TapSpec) -> Result<(), TableError> {
        match spec.target {
            FilterTarget::Port(port) => _ = self.existing_port(port)?,
            FilterTarget::Vrf(vrf) => _ = self.existing_vrf(vrf)?,
        }
        let target = spec.target;
        let Some(place) = self.taps.iter().position(Option::is_none) else {
            return Err(TableError::Limit { what: "taps", limit: MAX_TAPS });
        };
        let taps = Arc::make_mut(&mut self.taps);
        taps[place] = Some(Arc::new(Tap { spec, meter: TapMeter::default() }));
        self.tap_count += 1;
        self.judge_taps();
        self.changed(Change::Tap(target));
        Ok(())
    }

    /// Removes the taps that `which` returns true of. Returns how many.
    pub fn remove_taps(&mut self, which: impl Fn(&TapSpec) -> bool) -> usize {
        let is_meant = |tap: &Arc<Tap>| which(&tap.spec);
        if !self.taps().any(is_meant) {
            return 0;
        }
        let taps = Arc::make_mut(&mut self.taps).iter_mut();
        let gone: Vec<_> = taps.filter_map(|tap| tap.take_if(|tap| is_meant(tap))).collect();
        self.tap_count -= gone.len();
        self.judge_taps();
        for tap in &gone {
            self.changed(Change::Tap(tap.spec.target));
        }
        gone.len()
    }
}
