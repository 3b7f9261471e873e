//! The security policy database of one VRF.
//!
//! The clear linear engine: policies in order, tried one after the other. What a try needs lies side by side in memory, by
//! address family; chunks of 256 policies are shared between snapshots, and a change copies one.

use core::slice;
use std::net::IpAddr;
use std::sync::Arc;

use wire::{Addresses, FlowKey, IpRange, Upper};

use crate::policy::{DefaultAction, Direction, Policy, Selector, UpperSelector};

/// The policies of one VRF, ordered, by direction.
#[derive(Clone, Debug, Default)]
pub struct Spd {
    lists: [List; 3],
    defaults: [DefaultAction; 3],
}

impl Spd {
    /// Whether there is no policy at all, in which case IPsec does not touch the VRF.
    #[inline]
    pub fn is_empty(&self) -> bool {
        self.lists.iter().all(|list| list.length == 0)
    }

    /// The policy of `direction` that decides the packet: the first in order of priority, then of insertion, that matches.
    #[inline]
    pub fn lookup(&self, direction: Direction, key: &FlowKey) -> Option<&Arc<Policy>> {
        self.lookup_linear(direction, key).map(|(_, policy)| policy)
    }

    /// Looks up as many packets as there are `keys`, and answers each in its place of `found`, which is as long.
    #[inline]
    pub fn lookup_batch<'a>(&'a self, direction: Direction, keys: &[FlowKey], found: &mut [Option<&'a Arc<Policy>>]) {
        for (key, found) in keys.iter().zip(found) {
            *found = self.lookup(direction, key);
        }
    }

    /// The same answer as [`Spd::lookup`], by trying one policy after the other, with the policy's position among the direction's, from 1.
    #[inline]
    pub fn lookup_linear(&self, direction: Direction, key: &FlowKey) -> Option<(usize, &Arc<Policy>)> {
        let list = &self.lists[direction as usize];
        let protocol = key.protocol.0;
        let upper = key_fields(key.upper);
        match key.addresses {
            Addresses::V4 { source, destination } => {
                let probe = Probe { source: source.to_bits(), destination: destination.to_bits(), protocol, upper };
                list.scan(|chunk| first_match(&chunk.v4, &probe))
            }
            Addresses::V6 { source, destination } => {
                let probe = Probe { source: source.to_bits(), destination: destination.to_bits(), protocol, upper };
                list.scan(|chunk| first_match(&chunk.v6, &probe))
            }
        }
    }

    /// The policies of `direction`, in the order in which they are tried.
    pub fn policies(&self, direction: Direction) -> impl ExactSizeIterator<Item = &Arc<Policy>> {
        let list = &self.lists[direction as usize];
        Policies { chunks: list.chunks.iter(), current: [].iter(), left: list.length }
    }

    /// What happens to packets of `direction` that no policy matches.
    #[inline]
    pub fn default_action(&self, direction: Direction) -> DefaultAction {
        self.defaults[direction as usize]
    }

    pub(crate) fn set_default_action(&mut self, direction: Direction, action: DefaultAction) {
        self.defaults[direction as usize] = action;
    }

    /// The policy of this direction, priority and index.
    pub(crate) fn policy(&self, direction: Direction, place: Place) -> Option<&Arc<Policy>> {
        let list = &self.lists[direction as usize];
        let (chunk, at) = list.find(place);
        list.chunks.get(chunk)?.policies.get(at).filter(|policy| Place::of(policy) == place)
    }

    /// Puts a policy in its place.
    pub(crate) fn insert(&mut self, policy: Arc<Policy>) {
        self.lists[policy.spec.direction as usize].insert(policy);
    }

    /// Takes a policy out.
    pub(crate) fn remove(&mut self, direction: Direction, place: Place) -> Option<Arc<Policy>> {
        self.policy(direction, place)?;
        Some(self.lists[direction as usize].remove(place))
    }
}

/// Where a policy stands among those of its direction. Indexes grow, so among equal priorities the one added first is first.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub(crate) struct Place {
    pub(crate) priority: u32,
    pub(crate) index: u32,
}

impl Place {
    pub(crate) fn of(policy: &Policy) -> Self {
        Self { priority: policy.spec.priority, index: policy.index }
    }
}

/// Policies in a chunk at most.
const CHUNK: usize = 256;

#[derive(Clone, Debug, Default)]
struct List {
    /// None is empty.
    chunks: Vec<Arc<Chunk>>,
    length: usize,
}

impl List {
    #[inline]
    fn scan(&self, try_chunk: impl Fn(&Chunk) -> Option<u16>) -> Option<(usize, &Arc<Policy>)> {
        let mut before = 0;
        for chunk in &self.chunks {
            if let Some(at) = try_chunk(chunk) {
                let at = usize::from(at);
                return Some((before + at + 1, &chunk.policies[at]));
            }
            before += chunk.policies.len();
        }
        None
    }

    /// The chunk where the policy of `place` is or belongs, and its position there.
    fn find(&self, place: Place) -> (usize, usize) {
        let after = self.chunks.partition_point(|chunk| Place::of(&chunk.policies[0]) <= place);
        let chunk = after.saturating_sub(1);
        let at = self.chunks.get(chunk).map_or(0, |chunk| chunk.policies.partition_point(|p| Place::of(p) < place));
        (chunk, at)
    }

    fn insert(&mut self, policy: Arc<Policy>) {
        let (chunk, at) = self.find(Place::of(&policy));
        self.length += 1;
        match self.chunks.get_mut(chunk) {
            None => self.chunks.push(Arc::new(Chunk::new(vec![policy]))),
            Some(found) if found.policies.len() < CHUNK => {
                let found = Arc::make_mut(found);
                found.policies.insert(at, policy);
                found.index();
            }
            // Behind the last one of a full chunk a new one begins, so that policies added in order fill their chunks.
            Some(_) if at == CHUNK => self.chunks.insert(chunk + 1, Arc::new(Chunk::new(vec![policy]))),
            Some(found) => {
                let mut policies = found.policies.clone();
                policies.insert(at, policy);
                let second = policies.split_off(policies.len() / 2);
                *found = Arc::new(Chunk::new(policies));
                self.chunks.insert(chunk + 1, Arc::new(Chunk::new(second)));
            }
        }
    }

    /// The policy is there.
    fn remove(&mut self, place: Place) -> Arc<Policy> {
        let (chunk, at) = self.find(place);
        self.length -= 1;
        let policy = Arc::make_mut(&mut self.chunks[chunk]).policies.remove(at);
        let left = self.chunks[chunk].policies.len();
        if left == 0 {
            self.chunks.remove(chunk);
            return policy;
        }
        let next = self.chunks.get(chunk + 1).map_or(CHUNK, |next| next.policies.len());
        let joined = (left + next <= CHUNK / 2).then(|| self.chunks.remove(chunk + 1));
        let found = Arc::make_mut(&mut self.chunks[chunk]);
        found.policies.extend(joined.iter().flat_map(|next| next.policies.iter().cloned()));
        found.index();
        policy
    }
}

/// Up to 256 policies, in order.
#[derive(Clone, Debug)]
struct Chunk {
    policies: Vec<Arc<Policy>>,
    v4: Vec<Compact<u32>>,
    v6: Vec<Compact<u128>>,
}

impl Chunk {
    fn new(policies: Vec<Arc<Policy>>) -> Self {
        let mut chunk = Self { policies, v4: Vec::new(), v6: Vec::new() };
        chunk.index();
        chunk
    }

    /// Makes the compact selectors follow the policies.
    fn index(&mut self) {
        self.v4.clear();
        self.v6.clear();
        for (position, policy) in self.policies.iter().enumerate() {
            let selector = &policy.spec.selector;
            match (v4_bounds(&selector.source), v4_bounds(&selector.destination)) {
                (Some(source), Some(destination)) => {
                    self.v4.push(Compact::new(source, destination, selector, position as u16));
                }
                _ => {
                    let (source, destination) = (v6_bounds(&selector.source), v6_bounds(&selector.destination));
                    self.v6.push(Compact::new(source, destination, selector, position as u16));
                }
            }
        }
    }
}

/// A selector as the scan reads it. Ranges are a first value and how much more the last is, so that one subtraction and one
/// comparison judge them.
#[derive(Clone, Copy, Debug)]
struct Compact<A> {
    source: Range<A>,
    destination: Range<A>,
    /// Of the source port or ICMP type, and of the destination port or ICMP code.
    upper: [Range<u16>; 2],
    /// [`PORTS`] or [`ICMP`] where the packet must show these fields, 0 where it need not.
    upper_mask: u8,
    upper_kind: u8,
    protocol: u8,
    /// 0xff, or 0 for any.
    protocol_mask: u8,
    /// Among the chunk's policies.
    position: u16,
}

#[derive(Clone, Copy, Debug)]
struct Range<T> {
    first: T,
    width: T,
}

const PORTS: u8 = 1;
const ICMP: u8 = 2;

/// What a packet's key says, in the same form.
struct Probe<A> {
    source: A,
    destination: A,
    protocol: u8,
    upper: (u8, u16, u16),
}

trait Address: Copy {
    fn within(self, range: Range<Self>) -> bool;
    fn range(first: Self, last: Self) -> Range<Self>;
}

macro_rules! address {
    ($($type:ty),*) => {$(
        impl Address for $type {
            #[inline(always)]
            fn within(self, range: Range<Self>) -> bool {
                self.wrapping_sub(range.first) <= range.width
            }

            fn range(first: Self, last: Self) -> Range<Self> {
                Range { first, width: last - first }
            }
        }
    )*};
}

address!(u16, u32, u128);

impl<A: Address> Compact<A> {
    fn new(source: (A, A), destination: (A, A), selector: &Selector, position: u16) -> Self {
        let all = (0, u16::MAX);
        let (upper_kind, a, b) = match selector.upper {
            UpperSelector::Any => (0, all, all),
            UpperSelector::Ports { source, destination } => {
                (PORTS, (source.first(), source.last()), (destination.first(), destination.last()))
            }
            UpperSelector::Icmp { kind, code } => {
                (ICMP, (kind.0.into(), kind.1.into()), (code.0.into(), code.1.into()))
            }
        };
        Self {
            source: A::range(source.0, source.1),
            destination: A::range(destination.0, destination.1),
            upper: [u16::range(a.0, a.1), u16::range(b.0, b.1)],
            upper_mask: if upper_kind == 0 { 0 } else { 0xff },
            upper_kind,
            protocol: selector.protocol.unwrap_or_default().0,
            protocol_mask: if selector.protocol.is_some() { 0xff } else { 0 },
            position,
        }
    }

    #[inline(always)]
    fn matches(&self, probe: &Probe<A>) -> bool {
        // No short cuts among the cheap comparisons: a branch that goes astray costs more than all of them.
        let addresses = probe.source.within(self.source) & probe.destination.within(self.destination);
        let (kind, a, b) = probe.upper;
        let protocol = (self.protocol ^ probe.protocol) & self.protocol_mask;
        let upper = (self.upper_kind ^ kind) & self.upper_mask;
        addresses && ((protocol | upper) == 0) & a.within(self.upper[0]) & b.within(self.upper[1])
    }
}

fn first_match<A: Address>(selectors: &[Compact<A>], probe: &Probe<A>) -> Option<u16> {
    selectors.iter().find(|selector| selector.matches(probe)).map(|selector| selector.position)
}

fn key_fields(upper: Upper) -> (u8, u16, u16) {
    match upper {
        Upper::None | Upper::Spi(_) => (0, 0, 0),
        Upper::Ports { source, destination } => (PORTS, source, destination),
        Upper::Icmp { kind, code, .. } => (ICMP, kind.into(), code.into()),
    }
}

fn v4_bounds(range: &IpRange) -> Option<(u32, u32)> {
    match (range.first(), range.last()) {
        (IpAddr::V4(first), IpAddr::V4(last)) => Some((first.to_bits(), last.to_bits())),
        _ => None,
    }
}

fn v6_bounds(range: &IpRange) -> (u128, u128) {
    let bits = |address| match address {
        IpAddr::V4(address) => address.to_ipv6_mapped().to_bits(),
        IpAddr::V6(address) => address.to_bits(),
    };
    (bits(range.first()), bits(range.last()))
}

struct Policies<'a> {
    chunks: slice::Iter<'a, Arc<Chunk>>,
    current: slice::Iter<'a, Arc<Policy>>,
    left: usize,
}

impl<'a> Iterator for Policies<'a> {
    type Item = &'a Arc<Policy>;

    fn next(&mut self) -> Option<Self::Item> {
        loop {
            if let Some(policy) = self.current.next() {
                self.left -= 1;
                return Some(policy);
            }
            self.current = self.chunks.next()?.policies.iter();
        }
    }

    fn size_hint(&self) -> (usize, Option<usize>) {
        (self.left, Some(self.left))
    }
}

impl ExactSizeIterator for Policies<'_> {}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;
    use wire::{FragmentClass, Origin, PortRange, Protocol, VrfId};

    use super::*;
    use crate::counters::FlowCounters;
    use crate::policy::{Action, PolicyHandle, PolicySpec};

    const DIRECTION: Direction = Direction::Out;

    fn policy(index: u32, priority: u32, selector: Selector) -> Arc<Policy> {
        let spec = PolicySpec { vrf: VrfId(0), direction: DIRECTION, priority, selector, action: Action::Bypass };
        let counters = Arc::new(FlowCounters::new(1));
        Arc::new(Policy { handle: PolicyHandle { slot: 0, index }, index, spec, counters })
    }

    fn small_range() -> impl Strategy<Value = IpRange> {
        let v4 = (0u32..6, 0u32..6)
            .prop_map(|(a, b)| IpRange::new(IpAddr::V4(a.min(b).into()), IpAddr::V4(a.max(b).into())).unwrap());
        let v6 = (0u128..6, 0u128..6)
            .prop_map(|(a, b)| IpRange::new(IpAddr::V6(a.min(b).into()), IpAddr::V6(a.max(b).into())).unwrap());
        prop_oneof![3 => v4, 1 => v6, 1 => Just(IpRange::ALL_V4), 1 => Just(IpRange::ALL_V6)]
    }

    fn selector() -> impl Strategy<Value = Selector> {
        let ports = || (0u16..6, 0u16..6).prop_map(|(a, b)| PortRange::new(a.min(b), a.max(b)).unwrap());
        let bytes = || (0u8..6, 0u8..6).prop_map(|(a, b)| (a.min(b), a.max(b)));
        let upper = prop_oneof![
            Just(UpperSelector::Any),
            (ports(), ports()).prop_map(|(source, destination)| UpperSelector::Ports { source, destination }),
            (bytes(), bytes()).prop_map(|(kind, code)| UpperSelector::Icmp { kind, code }),
        ];
        let protocol = proptest::option::of((0u8..3).prop_map(Protocol));
        (small_range(), small_range(), protocol, upper)
            .prop_map(|(source, destination, protocol, upper)| Selector { source, destination, protocol, upper })
            .prop_filter("one family", |selector| selector.source.is_v6() == selector.destination.is_v6())
    }

    fn key() -> impl Strategy<Value = FlowKey> {
        let upper = prop_oneof![
            Just(Upper::None),
            Just(Upper::Spi(wire::Spi(3))),
            (0u16..6, 0u16..6).prop_map(|(source, destination)| Upper::Ports { source, destination }),
            (0u8..6, 0u8..6).prop_map(|(kind, code)| Upper::Icmp { kind, code, identifier: 1 }),
        ];
        (any::<bool>(), 0u32..7, 0u32..7, 0u8..3, upper).prop_map(|(v6, source, destination, protocol, upper)| {
            FlowKey {
                vrf: VrfId(0),
                origin: Origin::Host,
                addresses: if v6 {
                    let wide = |address: u32| u128::from(address).into();
                    Addresses::V6 { source: wide(source), destination: wide(destination) }
                } else {
                    Addresses::V4 { source: source.into(), destination: destination.into() }
                },
                protocol: Protocol(protocol),
                fragment: FragmentClass::Whole,
                upper,
            }
        })
    }

    proptest! {
        #![proptest_config(ProptestConfig::with_cases(60))]

        /// Enough policies for many chunks; they come and go, at few or many priorities.
        #[test]
        fn the_first_that_matches_decides(
            selectors in proptest::collection::vec(selector(), 1..40),
            priorities in prop_oneof![proptest::collection::vec(0u32..4, 40), proptest::collection::vec(any::<u32>(), 40)],
            keys in proptest::collection::vec(key(), 60),
            removed in proptest::collection::vec(any::<prop::sample::Index>(), 0..900),
        ) {
            let mut spd = Spd::default();
            let mut naive: Vec<Arc<Policy>> = Vec::new();
            for index in 0..1000 {
                let at = index as usize;
                let priority = priorities[at % priorities.len()].wrapping_mul(index % 7 + 1);
                // The first of few matches nearly everything; most must match little, or the rest is never reached.
                let selector = selectors[at * at % selectors.len()];
                let policy = policy(index, priority, selector);
                spd.insert(Arc::clone(&policy));
                naive.push(policy);
            }
            naive.sort_by_key(|policy| policy.spec.priority);
            let before = (spd.clone(), naive.clone());
            for which in removed {
                let policy = naive.remove(which.index(naive.len()));
                prop_assert!(spd.policy(DIRECTION, Place::of(&policy)).is_some());
                let taken = spd.remove(DIRECTION, Place::of(&policy)).unwrap();
                prop_assert!(Arc::ptr_eq(&taken, &policy));
                prop_assert!(spd.remove(DIRECTION, Place::of(&policy)).is_none());
            }
            for (spd, naive) in [&before, &(spd, naive)] {
                let listed: Vec<_> = spd.policies(DIRECTION).map(|policy| policy.index).collect();
                prop_assert_eq!(spd.policies(DIRECTION).len(), naive.len());
                prop_assert_eq!(listed, naive.iter().map(|policy| policy.index).collect::<Vec<_>>());
                prop_assert!(spd.lists[DIRECTION as usize].chunks.iter().all(|chunk| (1..=CHUNK).contains(&chunk.policies.len())));
                prop_assert_eq!(spd.is_empty(), naive.is_empty());
                for key in &keys {
                    let found = spd.lookup_linear(DIRECTION, key).map(|(position, policy)| (position, policy.index));
                    let first = naive.iter().position(|policy| policy.spec.selector.matches(key));
                    prop_assert_eq!(found, first.map(|at| (at + 1, naive[at].index)));
                    prop_assert!(spd.lookup(Direction::In, key).is_none());
                }
            }
        }
    }
}
