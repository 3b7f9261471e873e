//! What ports and VRFs add to the features of VRFs, counted, so that a change of one of them takes
//! no look at the others.

use std::collections::BTreeSet;
use std::sync::Arc;

use types::{FilterHook, MssClamp, PacketFields};
use wire::VrfId;

use super::Tables;
use crate::error::TableError;
use crate::filter::{FilterPlace, FilterTarget};
use crate::map::{Map, MapKey};
use crate::policy::Scope;

/// What a port adds to the features of its VRF, or a VRF by itself.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
struct Share {
    vrf: VrfId,
    is_filtered: bool,
    is_link: bool,
    clamps: bool,
    /// What its filter before routing reads of packets.
    ingress: Reads,
    /// What is read after routing: by its other filter and, if it is an xfrm link, its policies.
    egress: Reads,
}

/// Bits of optional fields, and whether upper-layer fields.
type Reads = (PacketFields, bool);

/// The shares of all ports and VRFs that have one, and their sums.
#[derive(Clone)]
pub(super) struct Shares {
    by_target: Map<FilterTarget, Share>,
    by_vrf: Map<VrfId, Tally>,
    /// Of all VRFs.
    total: Tally,
}

/// How many shares have each of these.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub(super) struct Tally {
    shares: u32,
    filtered: u32,
    links: u32,
    clamps: u32,
    ingress: Readers,
    egress: Readers,
}

/// How many read each bit, and upper-layer fields.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
struct Readers {
    bits: [u32; PacketFields::BITS],
    upper: u32,
}

impl Shares {
    pub(super) fn new(secret: u64) -> Self {
        let (by_target, by_vrf) = (Map::new(secret), Map::new(secret));
        Self { by_target, by_vrf, total: Tally::default() }
    }

    /// Puts a share in the place of the one that there was.
    fn replace(&mut self, target: FilterTarget, new: Option<Share>) {
        let old = match new {
            Some(new) => self.by_target.insert(target, new),
            None => self.by_target.remove(&target),
        };
        if let Some(old) = old {
            self.total.change(&old, |count| count - 1);
            let mut tally = self.by_vrf.get(&old.vrf).cloned().unwrap_or_default();
            tally.change(&old, |count| count - 1);
            match tally.shares {
                0 => _ = self.by_vrf.remove(&old.vrf),
                _ => _ = self.by_vrf.insert(old.vrf, tally),
            }
        }
        if let Some(new) = new {
            self.total.change(&new, |count| count + 1);
            let mut tally = self.by_vrf.get(&new.vrf).cloned().unwrap_or_default();
            tally.change(&new, |count| count + 1);
            self.by_vrf.insert(new.vrf, tally);
        }
    }

    /// Of a VRF and its ports.
    pub(super) fn of_vrf(&self, vrf: VrfId) -> Tally {
        self.by_vrf.get(&vrf).cloned().unwrap_or_default()
    }

    /// What all filters after routing and the policies of all xfrm links read.
    pub(super) fn read_at_egress(&self) -> Reads {
        self.total.egress.reads()
    }
}

impl Tally {
    pub(super) fn is_filtered(&self) -> bool {
        self.filtered > 0
    }

    pub(super) fn has_links(&self) -> bool {
        self.links > 0
    }

    pub(super) fn clamps(&self) -> bool {
        self.clamps > 0
    }

    /// What is read before routing and after it.
    pub(super) fn reads(&self) -> Reads {
        let ((bits, upper), (more, more_upper)) = (self.ingress.reads(), self.egress.reads());
        (bits | more, upper || more_upper)
    }

    fn change(&mut self, share: &Share, change: impl Fn(u32) -> u32 + Copy) {
        self.shares = change(self.shares);
        let parts = [
            (share.is_filtered, &mut self.filtered),
            (share.is_link, &mut self.links),
            (share.clamps, &mut self.clamps),
        ];
        for (_, count) in parts.into_iter().filter(|(is_on, _)| *is_on) {
            *count = change(*count);
        }
        self.ingress.change(share.ingress, change);
        self.egress.change(share.egress, change);
    }
}

impl Readers {
    fn reads(&self) -> Reads {
        let bits = self.bits.iter().enumerate().filter(|(_, count)| **count > 0);
        let bits = bits.fold(0, |all, (bit, _)| all | 1 << bit);
        (PacketFields::from_bits(bits), self.upper > 0)
    }

    fn change(&mut self, (bits, upper): Reads, change: impl Fn(u32) -> u32) {
        for (bit, count) in self.bits.iter_mut().enumerate() {
            if bits.bits() >> bit & 1 == 1 {
                *count = change(*count);
            }
        }
        if upper {
            self.upper = change(self.upper);
        }
    }
}

impl Tables {
    /// Finds out anew what a port or a VRF adds to features, and what follows for VRFs. To be
    /// called when its filters, its VRF, its MSS clamp or, of an xfrm link, what its policies read
    /// may have changed, and when it came or went.
    pub(super) fn judge_share(&mut self, target: FilterTarget) -> Result<(), TableError> {
        let (old, new) = (self.shares.by_target.get(&target).copied(), self.share_of(target));
        if old != new {
            let could_clamp = self.shares.total.clamps();
            Arc::make_mut(&mut self.shares).replace(target, new);
            let concerned: BTreeSet<_> =
                [old, new].into_iter().flatten().map(|share| share.vrf).collect();
            // One that is gone has no features.
            let concerned = concerned.into_iter().filter(|vrf| self.vrf(*vrf).is_some());
            concerned
                .collect::<Vec<_>>()
                .into_iter()
                .try_for_each(|vrf| self.judge_features(vrf))?;
            self.judge_egress();
            self.clamps = self.shares.total.clamps();
            if self.clamps != could_clamp {
                let all: Vec<_> = self.vrfs().map(|vrf| vrf.id).collect();
                all.into_iter().for_each(|vrf| self.judge_rules(vrf));
            }
        }
        self.judge_taps();
        Ok(())
    }

    /// What a port or a VRF adds. `None` if that is nothing.
    fn share_of(&self, target: FilterTarget) -> Option<Share> {
        let nothing = (PacketFields::NONE, false);
        let (vrf, port) = match target {
            FilterTarget::Port(port) => self.port(port).map(|port| (port.spec.vrf, Some(port)))?,
            FilterTarget::Vrf(vrf) => (self.vrf(vrf)?.id, None),
        };
        let [ingress, egress] = [FilterHook::Ingress, FilterHook::Egress]
            .map(|hook| self.filter(FilterPlace { target, hook }));
        let if_id = port.and_then(|port| port.spec.if_id);
        let policies = if_id.and_then(|if_id| self.spd(Scope::Link(if_id)));
        let (of_policies, upper) = policies.map_or(nothing, |spd| (spd.reads(), spd.reads_upper()));
        let of_filter = egress.map_or(nothing, |filter| filter.reads());
        let share = Share {
            vrf,
            is_filtered: ingress.is_some() || egress.is_some(),
            is_link: if_id.is_some(),
            clamps: port.is_some_and(|port| port.spec.mss != MssClamp::Off),
            ingress: ingress.map_or(nothing, |filter| filter.reads()),
            egress: (of_policies | of_filter.0, upper || of_filter.1),
        };
        (share.is_filtered || share.is_link || share.clamps).then_some(share)
    }
}

impl MapKey for FilterTarget {
    type Words = [u64; 1];

    fn to_words(&self) -> [u64; 1] {
        match self {
            Self::Port(port) => [u64::from(port.0) << 1],
            Self::Vrf(vrf) => [u64::from(vrf.0) << 1 | 1],
        }
    }
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;
    use types::{FilterVerdict, LinkKind, Mac, MarkBits, PortId, RejectWith, Side};

    use super::super::many::looked_at;
    use super::*;
    use crate::filter::{FilterAction, FilterMatch, FilterSpec};
    use crate::policy::{
        Action, Direction, FieldsSelector, IfId, PolicySpec, Selector, UpperSelector,
    };
    use crate::port::PortSpec;

    /// Those from this number on are xfrm links.
    const LINKS: u16 = 4;

    fn port(number: u16, vrf: VrfId, mss: MssClamp) -> PortSpec {
        PortSpec {
            vrf,
            link: if number < LINKS { LinkKind::Ethernet } else { LinkKind::Ip },
            if_id: number.checked_sub(LINKS).and_then(|link| IfId::new(u32::from(link) + 1)),
            side: if number < LINKS { Side::Unset } else { Side::Protected },
            mss,
            ..PortSpec::new(format!("port{number}"), Mac([2, 0, 0, 0, 0, number as u8]))
        }
    }

    /// One that reads nothing else, the hop limit, or what is in the upper-layer header.
    fn selector(reads: u8) -> Selector {
        let everywhere: types::IpRange = "0.0.0.0/0".parse().unwrap();
        let icmp = UpperSelector::Icmp { kind: (8, 8), code: (0, 0) };
        Selector {
            source: everywhere,
            destination: everywhere,
            protocol: (reads == 2).then_some(types::Protocol::ICMP),
            upper: if reads == 2 { icmp } else { UpperSelector::Any },
            fields: FieldsSelector::new(None, None, (reads == 1).then_some(5)),
        }
    }

    fn rule(target: FilterTarget, hook: FilterHook, preference: u32, reads: u8) -> FilterSpec {
        let selects =
            FilterMatch { v4: Some(selector(reads)), v6: None, mark: MarkBits::default() };
        let action = FilterAction {
            verdict: FilterVerdict::Pass,
            reject_with: RejectWith::ALL[0],
            set_mark: None,
            log: false,
        };
        FilterSpec { place: FilterPlace { target, hook }, preference, selects, action }
    }

    fn policy(if_id: u32, reads: u8) -> PolicySpec {
        PolicySpec {
            vrf: VrfId::MAIN,
            if_id: IfId::new(if_id),
            direction: Direction::Out,
            priority: 1,
            selector: selector(reads),
            action: Action::Bypass,
        }
    }

    /// What ports and a VRF itself add to its features, found by looking at all of them.
    fn slowly(tables: &Tables, vrf: VrfId) -> (bool, bool, bool, Reads) {
        let ports: Vec<_> = tables.ports().filter(|port| port.spec.vrf == vrf).collect();
        let targets = ports.iter().map(|port| FilterTarget::Port(port.id));
        let places = targets
            .chain([FilterTarget::Vrf(vrf)])
            .flat_map(|target| FilterHook::ALL.map(|hook| FilterPlace { target, hook }));
        let filters: Vec<_> = places.filter_map(|place| tables.filter(place)).collect();
        let links: Vec<_> = ports.iter().filter_map(|port| port.spec.if_id).collect();
        let spds = links.iter().filter_map(|if_id| tables.spd(Scope::Link(*if_id)));
        let reads = filters.iter().map(|filter| filter.reads());
        let reads = reads.chain(spds.map(|spd| (spd.reads(), spd.reads_upper())));
        let clamps = ports.iter().any(|port| port.spec.mss != MssClamp::Off);
        (!filters.is_empty(), !links.is_empty(), clamps, together(reads))
    }

    fn together(reads: impl Iterator<Item = Reads>) -> Reads {
        reads.fold((PacketFields::NONE, false), |(bits, upper), (more, more_upper)| {
            (bits | more, upper || more_upper)
        })
    }

    /// The same of what all VRFs read after routing.
    fn egress_slowly(tables: &Tables) -> Reads {
        let filters = tables.filters().filter(|(place, _)| place.hook == FilterHook::Egress);
        let links = tables.ports().filter_map(|port| port.spec.if_id);
        let spds = links.filter_map(|if_id| tables.spd(Scope::Link(if_id)));
        let of_filters = filters.map(|(_, filter)| filter.reads());
        together(of_filters.chain(spds.map(|spd| (spd.reads(), spd.reads_upper()))))
    }

    #[derive(Clone, Debug)]
    enum Step {
        SetRule(FilterTarget, FilterHook, u32, u8),
        RemoveRule(FilterTarget, FilterHook, u32),
        /// Adds or changes it.
        Port(u16, u16, bool),
        RemovePort(u16),
        AddPolicy(u32, u8),
        RemovePolicy(prop::sample::Index),
        AddVrf,
        RemoveVrf(u16),
    }

    fn step() -> impl Strategy<Value = Step> {
        let target = || {
            prop_oneof![
                (0..LINKS + 2).prop_map(|port| FilterTarget::Port(PortId(port))),
                (0..3_u16).prop_map(|vrf| FilterTarget::Vrf(VrfId(vrf))),
            ]
        };
        let hook = || prop::sample::select(FilterHook::ALL.to_vec());
        prop_oneof![
            6 => (target(), hook(), 1..3_u32, 0..3_u8)
                .prop_map(|(target, hook, pref, reads)| Step::SetRule(target, hook, pref, reads)),
            3 => (target(), hook(), 1..3_u32)
                .prop_map(|(target, hook, pref)| Step::RemoveRule(target, hook, pref)),
            6 => (0..LINKS + 2, 0..3_u16, any::<bool>())
                .prop_map(|(port, vrf, clamps)| Step::Port(port, vrf, clamps)),
            2 => (0..LINKS + 2).prop_map(Step::RemovePort),
            2 => (1..3_u32, 0..3_u8).prop_map(|(if_id, reads)| Step::AddPolicy(if_id, reads)),
            1 => any::<prop::sample::Index>().prop_map(Step::RemovePolicy),
            2 => Just(Step::AddVrf),
            1 => (1..3_u16).prop_map(Step::RemoveVrf),
        ]
    }

    proptest! {
        #![proptest_config(ProptestConfig::with_cases(128))]
        /// Steps that are refused change nothing either.
        #[test]
        fn sums_are_what_a_look_at_all_ports_finds(
            steps in prop::collection::vec(step(), 1..60),
        ) {
            let mut tables = Tables::new(1, 7);
            let mut policies = Vec::new();
            for (number, step) in steps.into_iter().enumerate() {
                match step {
                    Step::SetRule(target, hook, preference, reads) => {
                        _ = tables.set_filter_rule(rule(target, hook, preference, reads));
                    }
                    Step::RemoveRule(target, hook, preference) => {
                        _ = tables.remove_filter_rule(FilterPlace { target, hook }, preference);
                    }
                    Step::Port(number, vrf, clamps) => {
                        let mss = if clamps { MssClamp::Pmtu } else { MssClamp::Off };
                        let (id, spec) = (PortId(number), port(number, VrfId(vrf), mss));
                        _ = match tables.port(id).is_some() {
                            true => tables.update_port(id, spec),
                            false => tables.add_port(id, spec),
                        };
                    }
                    Step::RemovePort(number) => _ = tables.remove_port(PortId(number)),
                    Step::AddPolicy(if_id, reads) => {
                        policies.extend(tables.add_policy(policy(if_id, reads)));
                    }
                    Step::RemovePolicy(which) if !policies.is_empty() => {
                        let which = which.index(policies.len());
                        tables.remove_policy(policies.swap_remove(which)).unwrap();
                    }
                    Step::RemovePolicy(_) => {}
                    Step::AddVrf => _ = tables.add_vrf(&format!("vrf{number}")),
                    Step::RemoveVrf(vrf) => _ = tables.remove_vrf(VrfId(vrf)),
                }
                for vrf in tables.vrfs() {
                    let features = &vrf.features;
                    let is = (
                        features.is_filtered,
                        features.has_links,
                        features.own_clamps,
                        features.own_reads,
                    );
                    prop_assert_eq!(is, slowly(&tables, vrf.id));
                }
                prop_assert_eq!(tables.shares.read_at_egress(), egress_slowly(&tables));
                let clamps = tables.ports().any(|port| port.spec.mss != MssClamp::Off);
                prop_assert_eq!(tables.clamps, clamps);
                let shares = tables.shares.by_target.iter().map(|(_, share)| share.vrf);
                let vrfs: BTreeSet<_> = shares.collect();
                prop_assert_eq!(vrfs.len(), tables.shares.by_vrf.len());
            }
        }
    }

    #[test]
    fn a_filter_of_a_port_takes_no_look_at_other_ports() {
        const PORTS: u16 = 300;
        let mut tables = Tables::new(1, 7);
        for number in 0..PORTS {
            let spec = PortSpec { if_id: None, ..port(number, VrfId::MAIN, MssClamp::Off) };
            tables.add_port(PortId(number), spec).unwrap();
        }
        let place = |port| FilterPlace {
            target: FilterTarget::Port(PortId(port)),
            hook: FilterHook::Ingress,
        };
        let reads = |tables: &Tables| tables.vrf(VrfId::MAIN).unwrap().features.reads;
        let looks = looked_at(|| {
            for number in 0..PORTS {
                let place = place(number);
                tables.set_filter_rule(rule(place.target, place.hook, 1, 1)).unwrap();
            }
            assert_eq!(reads(&tables), PacketFields::HOP_LIMIT);
            (0..PORTS).for_each(|number| tables.remove_filter_rule(place(number), 1).unwrap());
            assert_eq!(reads(&tables), PacketFields::NONE);
        });
        assert_eq!(looks, 0);
    }
}
