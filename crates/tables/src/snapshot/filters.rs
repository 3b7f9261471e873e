//! Adding, replacing and removing rules of filters.

use std::sync::Arc;

use types::{FilterSlot, PacketFields};
use wire::VrfId;

use super::Tables;
use crate::counters::FlowCounters;
use crate::error::TableError;
use crate::filter::{CompiledFilter, Filter, FilterPlace, FilterRule, FilterSpec, FilterTarget};
use crate::limit::{MAX_FILTER_RULES, MAX_FILTERS};
use crate::log::Change;

impl Tables {
    /// The filter in a place, if it has rules.
    #[inline]
    pub fn filter(&self, place: FilterPlace) -> Option<&Filter> {
        self.filters.get(&place).map(|filter| &**filter)
    }

    /// Whether there is a filter.
    #[inline(always)]
    pub fn has_filters(&self) -> bool {
        self.filters.len() > 0
    }

    /// Every filter that has rules.
    pub fn filters(&self) -> impl Iterator<Item = (FilterPlace, &Filter)> {
        self.filters.iter().map(|(place, filter)| (*place, &**filter))
    }

    /// The rule in this slot. Constant work.
    #[inline]
    pub fn filter_rule(&self, slot: FilterSlot) -> Option<&FilterRule> {
        self.filter_rules.get(slot).map(|rule| &**rule)
    }

    /// Adds a rule to a filter, or replaces the one of the same preference, which keeps its
    /// counters.
    ///
    /// # Errors
    /// [`TableError::NoPort`], [`TableError::NoVrf`]; what is wrong with a selector;
    /// [`TableError::Limit`].
    pub fn set_filter_rule(&mut self, spec: FilterSpec) -> Result<(), TableError> {
        let vrf = self.vrf_of(spec.place)?;
        spec.selects.selectors().try_for_each(|selector| selector.check())?;
        let filter = self.filters.get(&spec.place);
        let old = filter.and_then(|filter| filter.rule(spec.preference)).map(Arc::clone);
        if old.is_none() && self.filter_rules.len() >= MAX_FILTER_RULES {
            return Err(TableError::Limit { what: "rules of filters", limit: MAX_FILTER_RULES });
        }
        if filter.is_none() && self.filters.len() >= MAX_FILTERS {
            return Err(TableError::Limit { what: "filters", limit: MAX_FILTERS });
        }
        let (slot, counters) = match &old {
            Some(old) => (old.slot, old.counters.clone()),
            None => (self.filter_rules.next_slot(), FlowCounters::new(self.workers)),
        };
        let rule = Arc::new(FilterRule { slot, spec, counters });
        let mut filter = filter.map_or_else(Filter::default, |filter| Filter::clone(filter));
        filter.set(Arc::clone(&rule));
        self.filters.insert(spec.place, Arc::new(filter));
        Arc::make_mut(&mut self.filter_rules).set(rule);
        self.filter_changed(vrf, &spec);
        if let Some(old) = old {
            self.filter_changed(vrf, &old.spec);
        }
        self.judge_share(spec.place.target)
    }

    /// Removes a rule of a filter.
    ///
    /// # Errors
    /// [`TableError::NoFilterRule`].
    pub fn remove_filter_rule(
        &mut self,
        place: FilterPlace,
        preference: u32,
    ) -> Result<(), TableError> {
        let vrf = self.vrf_of(place)?;
        let found = self
            .filters
            .get(&place)
            .and_then(|filter| Some((Arc::clone(filter.rule(preference)?), Filter::clone(filter))));
        let Some((rule, mut filter)) = found else {
            return Err(TableError::NoFilterRule(preference));
        };
        filter.remove(preference);
        match filter.is_empty() {
            true => _ = self.filters.remove(&place),
            false => _ = self.filters.insert(place, Arc::new(filter)),
        }
        Arc::make_mut(&mut self.filter_rules).remove(rule.slot);
        self.filter_changed(vrf, &rule.spec);
        self.judge_share(place.target)
    }

    /// Uses what was compiled of a filter, in this or an earlier snapshot. Returns false if it has
    /// changed since, or is gone. No decision changes.
    pub fn install_compiled_filter(
        &mut self,
        place: FilterPlace,
        compiled: &Arc<CompiledFilter>,
    ) -> bool {
        let Some(mut filter) = self.filters.get(&place).map(|filter| Filter::clone(filter)) else {
            return false;
        };
        let is_used = filter.install(compiled);
        if is_used {
            self.filters.insert(place, Arc::new(filter));
        }
        is_used
    }

    /// Removes the filters of a port or VRF that goes. Whom that concerns is noted by who calls.
    pub(super) fn remove_filters(&mut self, target: FilterTarget) {
        for hook in types::FilterHook::ALL {
            let Some(filter) = self.filters.remove(&FilterPlace { target, hook }) else { continue };
            let rules = Arc::make_mut(&mut self.filter_rules);
            filter.rules().for_each(|rule| rules.remove(rule.slot));
        }
    }

    /// Finds out anew what a VRF has beside routes and policies, and what that reads of packets,
    /// after what its ports and itself add has changed, or its flows.
    pub(super) fn judge_features(&mut self, vrf: VrfId) -> Result<(), TableError> {
        self.existing_vrf(vrf)?;
        let tally = self.shares.of_vrf(vrf);
        let mut own = VrfFeatures {
            is_filtered: tally.is_filtered(),
            has_links: tally.has_links(),
            own_clamps: tally.clamps(),
            own_reads: tally.reads(),
            ..VrfFeatures::default()
        };
        if self.flows.pipeline.has(vrf) {
            own.has_flows = true;
            own.note_reads((self.flows.pipeline.reads(vrf), true));
        }
        self.put_features(vrf, own);
        Ok(())
    }

    /// Whether packets of any VRF have more to be decided than routes and policies.
    #[inline(always)]
    pub fn is_featured(&self) -> bool {
        self.featured + self.tap_count > 0
    }

    /// The features of a VRF were switched on or off.
    pub(super) fn count_featured(&mut self, before: bool, after: bool) {
        self.featured = self.featured + usize::from(after) - usize::from(before);
    }

    fn filter_changed(&mut self, vrf: VrfId, spec: &FilterSpec) {
        for selector in spec.selects.selectors() {
            self.policies_changed(Change::Filter { vrf, place: spec.place, selector });
        }
    }

    /// Whose packets a filter sees.
    fn vrf_of(&self, place: FilterPlace) -> Result<VrfId, TableError> {
        match place.target {
            FilterTarget::Port(port) => Ok(self.existing_port(port)?.spec.vrf),
            FilterTarget::Vrf(vrf) => Ok(self.existing_vrf(vrf)?.id),
        }
    }
}

/// What is switched on for packets of a VRF beside routes and policies.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct VrfFeatures {
    /// Whether the VRF or one of its ports has a filter.
    pub is_filtered: bool,
    /// Whether it has match-action tables.
    pub has_flows: bool,
    /// Whether one of its ports is an xfrm link.
    pub has_links: bool,
    /// Whether there are policy rules that may be about its packets.
    pub is_ruled: bool,
    /// Whether routes lead from it into other VRFs.
    pub is_leaking: bool,
    /// Whether the MSS of TCP connections may be lowered: by one of its ports, or by one of another
    /// VRF where its packets may leave by such a port, in clear or in a tunnel.
    pub is_clamped: bool,
    /// Which optional fields the filters, the policies of the links and the rules read.
    pub reads: PacketFields,
    /// Whether the filters, the policies of the links or the rules read upper-layer fields.
    pub reads_upper: bool,
    /// What the filters and the policies of the links read of both.
    pub(super) own_reads: (PacketFields, bool),
    /// Whether one of its ports lowers the MSS.
    pub(super) own_clamps: bool,
}

impl VrfFeatures {
    /// Whether any of them is switched on.
    #[inline(always)]
    pub fn any(&self) -> bool {
        self.is_filtered
            | self.has_flows
            | self.has_links
            | self.is_ruled
            | self.is_leaking
            | self.is_clamped
    }

    /// Whether it has match-action tables and, but for links, nothing else.
    #[inline(always)]
    pub fn only_flows(&self) -> bool {
        let more = self.is_filtered | self.is_ruled | self.is_leaking | self.is_clamped;
        self.has_flows & !more
    }

    fn note_reads(&mut self, (reads, reads_upper): (PacketFields, bool)) {
        self.own_reads = (self.own_reads.0 | reads, self.own_reads.1 | reads_upper);
    }
}

impl VrfFeatures {
    /// Whether its packets may leave by ports of other VRFs.
    pub const fn leaves_elsewhere(&self) -> bool {
        self.is_ruled || self.is_leaking
    }
}
