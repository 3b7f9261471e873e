//! Which structure a direction's policies are found with, and why.

use core::fmt;

use classifier::Refused;

use super::{FEW, Spd};
use crate::policy::Direction;

/// What finds the policies of one direction and address family.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum LookupStructure {
    /// Policies are tried in order, eight at once.
    Scan(LookupReason),
    /// The index, which every change keeps up to date.
    Index(LookupReason),
    /// Decision trees, compiled beside the forwarding.
    Trees,
}

/// Why it is not a faster structure.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum LookupReason {
    /// Linear lookup is configured.
    Configured,
    /// There are so few policies that nothing is faster.
    Few,
    /// The policies are too many for the index, or its hashes do not spread.
    NoIndex,
    /// The policies are not compiled yet, or too much has changed since.
    NotCompiled,
    /// Trees were refused.
    Refused(Refused),
}

impl LookupStructure {
    /// A name of one word.
    pub const fn name(self) -> &'static str {
        match self {
            Self::Scan(_) => "scan",
            Self::Index(_) => "index",
            Self::Trees => "trees",
        }
    }
}

impl fmt::Display for LookupReason {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Configured => f.write_str("linear lookup is configured"),
            Self::Few => write!(f, "there are {FEW} policies or fewer"),
            Self::NoIndex => f.write_str("the index has no room for these policies"),
            Self::NotCompiled => f.write_str("the policies are not compiled"),
            Self::Refused(refused) => refused.fmt(f),
        }
    }
}

/// For a reader: the name, and the reason.
impl fmt::Display for LookupStructure {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(self.name())?;
        match self {
            Self::Scan(reason) | Self::Index(reason) => write!(f, ": {reason}"),
            Self::Trees => f.write_str(": the policies are compiled"),
        }
    }
}

impl Spd {
    /// What finds the IPv4 and the IPv6 policies of `direction`.
    pub fn structures(&self, direction: Direction) -> [LookupStructure; 2] {
        let otherwise = |reason| match self.index(direction) {
            Some(_) => LookupStructure::Index(reason),
            None if self.indexes.is_none() => LookupStructure::Scan(LookupReason::Configured),
            None if !self.is_many(direction) => LookupStructure::Scan(LookupReason::Few),
            None => LookupStructure::Scan(LookupReason::NoIndex),
        };
        let Some(current) = self.current(direction) else {
            return [otherwise(LookupReason::NotCompiled); 2];
        };
        // A family is found with the trees if all layers have some of it.
        [0, 1].map(|family| {
            let mut layers = current.compiled().map(|compiled| compiled.statistics()[family].err());
            match layers.find_map(|refused| refused) {
                Some(refused) => otherwise(LookupReason::Refused(refused)),
                None => LookupStructure::Trees,
            }
        })
    }
}

#[cfg(test)]
mod tests {
    use std::sync::Arc;

    use classifier::Effort;
    use types::LookupEngine;
    use wire::{
        Addresses, FlowKey, FragmentClass, IpRange, Origin, PacketFields, Protocol, Upper, VrfId,
    };

    use super::super::{Compiled, LookupBound};
    use super::*;
    use crate::counters::FlowCounters;
    use crate::policy::{Action, Policy, PolicyHandle, PolicySpec, Selector};

    const DIRECTION: Direction = Direction::Out;

    /// Of the host with this number, to anywhere.
    fn policy(number: u32) -> Arc<Policy> {
        let host = std::net::IpAddr::V4((0x0a00_0000 + number).into());
        let source = IpRange::new(host, host).unwrap();
        let selector = Selector { source, ..Selector::all_of(&key(number).addresses) };
        let spec = PolicySpec {
            vrf: VrfId::MAIN,
            direction: DIRECTION,
            if_id: None,
            priority: number,
            selector,
            action: Action::Bypass,
        };
        let handle = PolicyHandle { slot: 0, index: number };
        Arc::new(Policy { handle, index: number, spec, counters: FlowCounters::new(1) })
    }

    fn spd(engine: LookupEngine, policies: u32) -> Spd {
        let mut spd = Spd::new(engine, 3);
        (1..=policies).for_each(|number| spd.insert(policy(number)));
        spd
    }

    fn key(number: u32) -> FlowKey {
        FlowKey {
            vrf: VrfId::MAIN,
            origin: Origin::Host,
            addresses: Addresses::V4 {
                source: (0x0a00_0000 + number).into(),
                destination: [192, 0, 2, 1].into(),
            },
            protocol: Protocol::UDP,
            upper: Upper::None,
            fields: PacketFields::NONE,
            fragment: FragmentClass::Whole,
        }
    }

    /// Each structure says what it is, and is as much work as it must be.
    #[test]
    fn structures_and_their_work() {
        let count = |spd: &Spd, number| {
            let (found, count) = spd.lookup_counted(DIRECTION, &key(number));
            let priority = |policy: &Arc<Policy>| policy.spec.priority;
            assert_eq!(found.map(priority), (number <= 1000).then_some(number));
            assert_eq!(spd.lookup(DIRECTION, &key(number)).map(priority), found.map(priority));
            (count.probes, count.rules)
        };
        let few = spd(LookupEngine::Fast, 20);
        let why = LookupStructure::Scan(LookupReason::Few);
        assert_eq!(few.structures(DIRECTION), [why; 2]);
        assert_eq!((count(&few, 1), count(&few, 20)), ((0, 8), (0, 20)));

        let linear = spd(LookupEngine::Linear, 1000);
        let why = LookupStructure::Scan(LookupReason::Configured);
        assert_eq!(linear.structures(DIRECTION), [why; 2]);
        assert_eq!((count(&linear, 9), count(&linear, 2000)), ((0, 16), (0, 1000)));

        let mut fast = spd(LookupEngine::Fast, 1000);
        let why = LookupStructure::Index(LookupReason::NotCompiled);
        assert_eq!(fast.structures(DIRECTION), [why; 2]);
        assert_eq!(count(&fast, 700), (1, 1));
        assert_eq!(fast.bound(DIRECTION), LookupBound { probes: 1, policies: 1 });

        let compiled = Arc::new(Compiled::new(&fast, DIRECTION, Effort::Best));
        assert!(fast.install(DIRECTION, &compiled));
        assert_eq!(fast.structures(DIRECTION), [LookupStructure::Trees; 2]);
        let [Ok(built), _] = compiled.statistics() else { panic!("trees of 1000 hosts") };
        for number in [1, 500, 1000] {
            let (probes, rules) = count(&fast, number);
            assert!((1..=built.steps).contains(&(probes as usize)), "{probes} of {built:?}");
            let most = built.compared * built.lanes;
            assert!((1..=most).contains(&(rules as usize)), "{rules} of {built:?}");
        }
    }

    #[test]
    fn reasons_are_told() {
        let told = LookupStructure::Index(LookupReason::Refused(Refused::Bytes)).to_string();
        assert_eq!(told, "index: the trees would take too much memory");
        let told = LookupStructure::Scan(LookupReason::Few).to_string();
        assert_eq!(told, "scan: there are 32 policies or fewer");
    }
}
