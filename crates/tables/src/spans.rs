//! The routes of a small table as spans of addresses, for where VRFs are many.
//!
//! What is read of one VRF is far away when its next packet comes, and a packet waits for each
//! cache line whose address stands in the one before. In a [`Fib`] of a thousand routes these are
//! five behind the VRF's own. Here they are two or three: as in DXR (Zec, Rizzo, Mikuc, "DXR:
//! Towards a Billion Routing Lookups per Second in Software", 2012), prefixes are cut to spans of
//! which each address is in exactly one, neighbours that lead to the same are one span, and what a
//! span leads to stands beside where it begins. A span is found as in a B-tree: of 16 beginnings at
//! a time, all in a line or two, all are compared. The first 16 stand in a place that follows from the
//! VRF's number alone.
//!
//! Those of a family are made from its whole [`Fib`], which a limit of [`MAX_ROUTES`] bounds, some
//! times a second if it has changed. They have a copy of what they were made from, and are read while
//! the table still has that: a table that is changed is looked up in its [`Fib`] meanwhile, as all
//! others are, and whoever changes it need not know of spans.

use std::net::IpAddr;
use std::sync::Arc;

use arrayvec::ArrayVec;
use wire::VrfId;

use crate::fib::{Fib, Key, TOGETHER};
use crate::route::{Route, RouteKind};
use crate::routing_table::RoutingTable;
use crate::slots::Slots;

/// Spans of a node.
const WIDTH: usize = 16;

/// The most spans, in three steps.
const MAX_SPANS: usize = WIDTH.pow(3);

/// How many VRFs' first nodes are copied together when one of them changes.
const CHUNK: usize = 64;

/// The most routes of a table, each of which begins a span and ends one.
const MAX_ROUTES: usize = (MAX_SPANS - 1) / 2;

/// What spans are compared by: an IPv4 address, or the first half of an IPv6 address.
pub(crate) trait Word: Copy + Ord + sealed::Sealed {
    /// An address.
    type Address: Key;
    const BITS: u8;
    const ZERO: Self;
    const MAX: Self;
    /// What an address begins with.
    fn of(address: Self::Address) -> Self;
    /// The last one of the prefix of `length` bits, at most all, that begins here.
    fn last(self, length: u8) -> Self;
    /// The next one, if there is one.
    fn next(self) -> Option<Self>;
}

mod sealed {
    pub(crate) trait Sealed {}
    impl Sealed for u32 {}
    impl Sealed for u64 {}
}

macro_rules! word {
    ($type:ty, $address:ty) => {
        impl Word for $type {
            type Address = $address;
            const BITS: u8 = <$type>::BITS as u8;
            const ZERO: Self = 0;
            const MAX: Self = <$type>::MAX;

            #[inline(always)]
            fn of(address: $address) -> Self {
                (address >> (<$address>::BITS - <$type>::BITS)) as Self
            }

            fn last(self, length: u8) -> Self {
                self | <$type>::MAX.checked_shr(length.into()).unwrap_or(0)
            }

            fn next(self) -> Option<Self> {
                self.checked_add(1)
            }
        }
    };
}

word!(u32, u32);
word!(u64, u128);

/// What the addresses of a span have.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Found {
    /// A route that does this.
    Route(RouteKind),
    /// No route.
    Nothing,
    /// The table must be asked: there are no spans of it, or what follows the first half of an IPv6
    /// address matters.
    Ask,
}

const _: () = assert!(size_of::<Found>() == 8);

/// The spans of VRFs' routing tables, by the VRFs' numbers. Of tables that are empty or too large
/// there are none.
#[derive(Clone)]
pub(crate) struct RouteSpans {
    v4: All<u32>,
    v6: All<u64>,
}

impl RouteSpans {
    pub(crate) const fn new() -> Self {
        Self { v4: Slots::new(), v6: Slots::new() }
    }

    /// Whether all are there that the table of a VRF should have, and no others; none if there is no
    /// such VRF.
    pub(crate) fn are_of(&self, vrf: u32, table: Option<&RoutingTable>) -> bool {
        let (v4, v6) = table.map(RoutingTable::fibs).unzip();
        are_of(&self.v4, vrf, v4) && are_of(&self.v6, vrf, v6)
    }

    /// Makes it so. Those of a family that has not changed stay.
    pub(crate) fn follow(&mut self, vrf: u32, table: Option<&RoutingTable>) {
        let (v4, v6) = table.map(RoutingTable::fibs).unzip();
        follow(&mut self.v4, vrf, v4);
        follow(&mut self.v6, vrf, v6);
    }

    /// Whether there may be any: VRFs are many.
    #[inline(always)]
    pub(crate) fn any(&self) -> bool {
        self.v4.places() + self.v6.places() > 0
    }

    /// What the route to `destination` in the table of a VRF does.
    #[inline(always)]
    pub(crate) fn kind(
        &self,
        (vrf, table): (VrfId, &RoutingTable),
        destination: IpAddr,
    ) -> Option<RouteKind> {
        let (v4, v6) = table.fibs();
        match destination {
            IpAddr::V4(address) => kind(&self.v4, v4, vrf, address.to_bits()),
            IpAddr::V6(address) => kind(&self.v6, v6, vrf, address.to_bits()),
        }
    }

    /// Asks for the memory that lookups read, step by step, so that the waits overlap.
    #[inline(always)]
    pub(crate) fn prefetch(&self, lookups: impl Iterator<Item = (VrfId, IpAddr)> + Clone) {
        prefetch(
            &self.v4,
            lookups.clone().filter_map(|(vrf, destination)| match destination {
                IpAddr::V4(address) => Some((vrf, Word::of(address.to_bits()))),
                IpAddr::V6(_) => None,
            }),
        );
        prefetch(
            &self.v6,
            lookups.filter_map(|(vrf, destination)| match destination {
                IpAddr::V4(_) => None,
                IpAddr::V6(address) => Some((vrf, Word::of(address.to_bits()))),
            }),
        );
    }

    /// Where those of each family are, which tells whether they are as they were.
    #[cfg(test)]
    pub(crate) fn places(&self, vrf: VrfId) -> [Option<usize>; 2] {
        let number = vrf.0.into();
        let v4 = self.v4.get(number).map(|spans| spans.leaves.as_ptr().addr());
        [v4, self.v6.get(number).map(|spans| spans.leaves.as_ptr().addr())]
    }

    /// Whether there are those that an address is looked up in.
    pub(crate) fn has(&self, (vrf, table): (VrfId, &RoutingTable), destination: IpAddr) -> bool {
        let (v4, v6) = table.fibs();
        match destination {
            IpAddr::V4(_) => of(&self.v4, vrf.0.into(), v4).is_some(),
            IpAddr::V6(_) => of(&self.v6, vrf.0.into(), v6).is_some(),
        }
    }
}

/// The spans of one family.
type All<W> = Slots<Spans<W>, CHUNK>;

/// See [`RouteSpans::are_of`].
fn are_of<W: Word>(all: &All<W>, vrf: u32, routes: Option<&Fib<W::Address, Route>>) -> bool {
    match routes.filter(|routes| has_room(routes)) {
        Some(routes) => of(all, vrf, routes).is_some(),
        None => all.get(vrf).is_none(),
    }
}

/// See [`RouteSpans::follow`].
fn follow<W: Word>(all: &mut All<W>, vrf: u32, routes: Option<&Fib<W::Address, Route>>) {
    if are_of(all, vrf, routes) {
        return;
    }
    match routes.filter(|routes| has_room(routes)) {
        Some(routes) => all.set(vrf, Spans::of(routes)),
        None => all.remove(vrf),
    };
}

/// Whether a table has spans.
fn has_room<K: Key>(routes: &Fib<K, Route>) -> bool {
    (1..=MAX_ROUTES).contains(&routes.len())
}

/// The spans of a VRF, if its routes are those that they were made from.
#[inline(always)]
fn of<'s, W: Word>(
    all: &'s All<W>,
    vrf: u32,
    routes: &Fib<W::Address, Route>,
) -> Option<&'s Spans<W>> {
    all.get(vrf).filter(|spans| spans.routes.is_same(routes))
}

/// See [`RouteSpans::kind`]. Few gateways have so many VRFs, and others need not have it near.
#[cold]
#[inline(never)]
fn kind<W: Word>(
    all: &All<W>,
    routes: &Fib<W::Address, Route>,
    vrf: VrfId,
    address: W::Address,
) -> Option<RouteKind> {
    let spans = of(all, vrf.0.into(), routes);
    match spans.map_or(Found::Ask, |spans| spans.find(W::of(address))) {
        Found::Route(kind) => Some(kind),
        Found::Nothing => None,
        Found::Ask => routes.lookup(address).map(|route| route.kind),
    }
}

/// See [`RouteSpans::prefetch`].
#[inline(always)]
fn prefetch<W: Word>(all: &All<W>, lookups: impl Iterator<Item = (VrfId, W)> + Clone) {
    let lookups = lookups.take(TOGETHER);
    lookups.clone().for_each(|(vrf, _)| all.prefetch(vrf.0.into()));
    let spans = lookups.filter_map(|(vrf, address)| Some((all.get(vrf.0.into())?, address)));
    let deep: ArrayVec<_, TOGETHER> = spans
        .filter(|(spans, address)| match spans.middle.get(spans.below(*address)) {
            Some(firsts) => {
                packet::prefetch_whole(firsts);
                true
            }
            None => {
                spans.leaf(*address).into_iter().for_each(packet::prefetch_whole);
                false
            }
        })
        .collect();
    deep.iter()
        .filter_map(|(spans, address)| spans.leaf(*address))
        .for_each(packet::prefetch_whole);
}

/// Where the nodes below a node begin, or spans. Places that are left have the last address.
#[derive(Clone)]
#[repr(C, align(64))]
struct Firsts<W>([W; WIDTH]);

/// Spans of a family.
#[derive(Clone)]
#[repr(C, align(64))]
struct Spans<W: Word> {
    /// Where the middle nodes begin, or the leaves if there are none.
    firsts: Firsts<W>,
    /// Where the leaves begin, if they are more than [`WIDTH`].
    middle: Arc<[Firsts<W>]>,
    /// One at least.
    leaves: Arc<[Leaf<W>]>,
    /// What they were made from.
    routes: Fib<W::Address, Route>,
}

/// Spans one after the other.
#[derive(Clone)]
#[repr(C, align(64))]
struct Leaf<W> {
    firsts: Firsts<W>,
    found: [Found; WIDTH],
}

impl<W: Word> Spans<W> {
    fn of(routes: &Fib<W::Address, Route>) -> Self {
        let leaves: Arc<[Leaf<W>]> = Cut::of(routes).chunks(WIDTH).map(Leaf::of).collect();
        let routes = routes.clone();
        let begin = leaves.iter().map(|leaf| leaf.firsts.0[0]);
        if leaves.len() <= WIDTH {
            return Self { firsts: filled_up(begin), middle: Arc::default(), leaves, routes };
        }
        let begin: Vec<W> = begin.collect();
        let middle: Arc<[Firsts<W>]> =
            begin.chunks(WIDTH).map(|some| filled_up(some.iter().copied())).collect();
        Self { firsts: filled_up(middle.iter().map(|firsts| firsts.0[0])), middle, leaves, routes }
    }

    #[inline(always)]
    fn find(&self, address: W) -> Found {
        match self.leaf(address) {
            Some(leaf) => {
                packet::prefetch_whole(leaf);
                leaf.found[place(&leaf.firsts, address)]
            }
            None => Found::Nothing,
        }
    }

    /// The leaf of an address, if there is any.
    #[inline(always)]
    fn leaf(&self, address: W) -> Option<&Leaf<W>> {
        let mut at = self.below(address);
        if let Some(firsts) = self.middle.get(at) {
            at = at * WIDTH + place(firsts, address);
        }
        // The last address is in all places that are filled up.
        self.leaves.get(at.min(self.leaves.len().wrapping_sub(1)))
    }

    /// Which node below the first an address is in.
    #[inline(always)]
    fn below(&self, address: W) -> usize {
        let at = place(&self.firsts, address);
        match self.middle.len() {
            0 => at,
            length => at.min(length - 1),
        }
    }
}

impl<W: Word> Leaf<W> {
    /// Of at most [`WIDTH`] spans, and one at least.
    fn of(spans: &[(W, Found)]) -> Self {
        let last = spans.last().map_or(Found::Nothing, |span| span.1);
        let mut found = [last; WIDTH];
        found.iter_mut().zip(spans).for_each(|(found, span)| *found = span.1);
        Self { firsts: filled_up(spans.iter().map(|span| span.0)), found }
    }
}

/// The last one that begins at an address or before it: one does.
#[inline(always)]
fn place<W: Word>(firsts: &Firsts<W>, address: W) -> usize {
    let begun: u32 = firsts.0.iter().map(|first| u32::from(*first <= address)).sum();
    begun.wrapping_sub(1) as usize % WIDTH
}

fn filled_up<W: Word>(firsts: impl Iterator<Item = W>) -> Firsts<W> {
    let mut all = [W::MAX; WIDTH];
    all.iter_mut().zip(firsts).for_each(|(place, first)| *place = first);
    Firsts(all)
}

/// Prefixes that are cut to spans.
struct Cut<W> {
    /// Where each span begins, in order, from the first address on.
    spans: Vec<(W, Found)>,
    /// The prefixes that hold where the last one begins, each with its last address.
    holding: Vec<(W, Found)>,
}

impl<W: Word> Cut<W> {
    fn of(routes: &Fib<W::Address, Route>) -> Vec<(W, Found)> {
        let mut cut = Self { spans: vec![(W::ZERO, Found::Nothing)], holding: Vec::new() };
        for (prefix, length, route) in routes.iter() {
            let first = W::of(prefix);
            cut.end(|last| last < first);
            let (last, found) = match length <= W::BITS {
                true => (first.last(length), Found::Route(route.kind)),
                false => (first, Found::Ask),
            };
            cut.begin(first, found);
            cut.holding.push((last, found));
        }
        cut.end(|_| true);
        cut.spans
    }

    /// What follows prefixes that are over has what shorter ones have.
    fn end(&mut self, is_over: impl Fn(W) -> bool) {
        while let Some((last, _)) = self.holding.pop_if(|prefix| is_over(prefix.0)) {
            let outer = self.holding.last().map_or(Found::Nothing, |outer| outer.1);
            if let Some(next) = last.next() {
                self.begin(next, outer);
            }
        }
    }

    fn begin(&mut self, first: W, found: Found) {
        // A longer prefix begins where a shorter one does.
        self.spans.pop_if(|span| span.0 == first);
        if self.spans.last().is_none_or(|span| span.1 != found) {
            self.spans.push((first, found));
        }
    }
}

#[cfg(test)]
mod tests {
    use std::collections::{BTreeMap, BTreeSet};
    use std::net::{Ipv4Addr, Ipv6Addr};

    use proptest::prelude::*;
    use wire::{IpPrefix, PortId};

    use super::*;

    const VRF: VrfId = VrfId(7);

    fn table(prefixes: impl IntoIterator<Item = (IpPrefix, u16)>) -> RoutingTable {
        let mut table = RoutingTable::new();
        for (prefix, port) in prefixes {
            let kind = RouteKind::Connected { port: PortId(port) };
            table.set(Route { prefix: prefix.network(), kind }).unwrap();
        }
        table
    }

    fn v4(bits: u32) -> IpAddr {
        Ipv4Addr::from_bits(bits).into()
    }

    fn v6(bits: u128) -> IpAddr {
        Ipv6Addr::from_bits(bits).into()
    }

    /// Addresses of all kinds, many of them near each other or at an end.
    fn bits() -> impl Strategy<Value = u128> {
        prop_oneof![
            any::<u128>(),
            any::<u16>().prop_map(|low| u128::from(low) << 104 | 0x0a << 120),
            any::<u8>().prop_map(|low| 0x2001_0db8 << 96 | u128::from(low) << 62),
            any::<u8>().prop_map(|low| u128::MAX ^ u128::from(low) << 96),
            any::<u8>().prop_map(|low| u128::MAX ^ u128::from(low) << 62),
        ]
    }

    /// The first of a family's address as long as its bits.
    fn address(is_v6: bool, bits: u128) -> IpAddr {
        if is_v6 { v6(bits) } else { v4((bits >> 96) as u32) }
    }

    fn prefix() -> impl Strategy<Value = (IpPrefix, u16)> {
        let length = prop_oneof![0..=64_u8, 56..=68_u8, 120..=128_u8];
        (any::<bool>(), bits(), length, 0..4_u16).prop_map(|(is_v6, bits, length, port)| {
            let most = if is_v6 { 128 } else { 32 };
            (IpPrefix::new(address(is_v6, bits), length.min(most)).unwrap(), port)
        })
    }

    /// A table beside its spans.
    struct Both {
        table: RoutingTable,
        spans: RouteSpans,
        /// The halves of IPv6 addresses that the table must be asked about.
        asked: BTreeSet<u64>,
    }

    impl Both {
        fn of(table: RoutingTable) -> Self {
            let mut spans = RouteSpans::new();
            spans.follow(VRF.0.into(), Some(&table));
            let long = table.routes().filter(|route| route.prefix.length() > 64);
            let asked = long.filter_map(|route| half(route.prefix.address())).collect();
            Self { table, spans, asked }
        }

        fn has(&self, address: IpAddr) -> bool {
            self.spans.has((VRF, &self.table), address)
        }

        fn check(&self, address: IpAddr) {
            let route = self.table.route(address);
            let expected = match half(address) {
                _ if !self.has(address) => Found::Ask,
                Some(half) if self.asked.contains(&half) => Found::Ask,
                _ => route.map_or(Found::Nothing, |route| Found::Route(route.kind)),
            };
            let found = match address {
                IpAddr::V4(of) => self.spans.v4.get(VRF.0.into()).map(|it| it.find(of.to_bits())),
                IpAddr::V6(of) => {
                    let spans = self.spans.v6.get(VRF.0.into());
                    spans.map(|spans| spans.find(Word::of(of.to_bits())))
                }
            };
            assert_eq!(found.unwrap_or(Found::Ask), expected, "{address}");
            let kind = self.spans.kind((VRF, &self.table), address);
            assert_eq!(kind, route.map(|route| route.kind), "{address}");
        }
    }

    /// An address and those beside it.
    fn near(address: IpAddr) -> impl Iterator<Item = IpAddr> {
        [u128::MAX, 0, 1].into_iter().map(move |by| match address {
            IpAddr::V4(address) => v4(address.to_bits().wrapping_add(by as u32)),
            IpAddr::V6(address) => v6(address.to_bits().wrapping_add(by)),
        })
    }

    fn half(address: IpAddr) -> Option<u64> {
        match address {
            IpAddr::V4(_) => None,
            IpAddr::V6(address) => Some((address.to_bits() >> 64) as u64),
        }
    }

    /// Some prefixes of a few addresses, what is beside them, and all kinds of others.
    fn crowded() -> impl Strategy<Value = Vec<(IpPrefix, u16)>> {
        let length = || prop_oneof![2 => 0..=128_u8, 1 => Just(0), 1 => Just(32), 1 => Just(128)];
        let near = (any::<bool>(), bits()).prop_flat_map(move |(is_v6, bits)| {
            let of = (length(), -1..2_i8, 0..4_u16).prop_map(move |(length, beside, port)| {
                let length = length.min(if is_v6 { 128 } else { 32 });
                // As many bits as the prefix has not.
                let step = 1_u128.checked_shl(128 - u32::from(length)).unwrap_or(0);
                let bits = bits.wrapping_add_signed((step as i128).wrapping_mul(beside.into()));
                (IpPrefix::new(address(is_v6, bits), length).unwrap().network(), port)
            });
            proptest::collection::vec(of, 1..12)
        });
        let others = proptest::collection::vec(prefix(), 0..20);
        (proptest::collection::vec(near, 1..8), others).prop_map(|(near, others)| {
            let others = others.into_iter().map(|(prefix, port)| (prefix.network(), port));
            near.into_iter().flatten().chain(others).collect()
        })
    }

    proptest! {
        /// No [`Fib`] says what is expected: of all prefixes that hold an address, the longest does.
        #[test]
        fn spans_say_what_a_look_at_all_prefixes_does(
            prefixes in crowded(),
            probes in proptest::collection::vec((any::<bool>(), bits()), 20),
        ) {
            let all: BTreeMap<IpPrefix, u16> = prefixes.iter().copied().collect();
            let both = Both::of(table(prefixes));
            let ends = all.keys().flat_map(|prefix| {
                let range = prefix.range();
                [range.first(), range.last()].into_iter().flat_map(near)
            });
            let probes = probes.into_iter().map(|(is_v6, bits)| address(is_v6, bits));
            for address in ends.chain(probes) {
                let holding = all.iter().filter(|(prefix, _)| prefix.contains(address));
                let longest = holding.max_by_key(|(prefix, _)| prefix.length());
                let kind = longest.map(|(_, port)| RouteKind::Connected { port: PortId(*port) });
                both.check(address);
                prop_assert_eq!(both.spans.kind((VRF, &both.table), address), kind);
            }
        }
    }

    proptest! {
        #![proptest_config(ProptestConfig::with_cases(100))]
        #[test]
        fn spans_say_what_the_table_does(
            prefixes in prop_oneof![
                proptest::collection::vec(prefix(), 1..40),
                proptest::collection::vec(prefix(), 600..700),
            ],
            probes in proptest::collection::vec((any::<bool>(), bits()), 100),
        ) {
            let both = Both::of(table(prefixes));
            for (is_v6, bits) in probes {
                both.check(address(is_v6, bits));
            }
            // The ends of each prefix, and what is beside them.
            for route in both.table.routes() {
                let range = route.prefix.range();
                for end in [range.first(), range.last()] {
                    near(end).for_each(|address| both.check(address));
                }
            }
        }
    }

    /// The most spans that there may be, whichever way they lie.
    #[test]
    fn as_many_routes_as_there_may_be_are_spans() {
        for (gap, last) in [(4, 0), (1, 0), (4, 1)] {
            let count = MAX_ROUTES as u32 + last;
            let host = |number: u32| IpPrefix::host(v4(u32::MAX - (count - 1 - number) * gap));
            let both = Both::of(table((0..count).map(|number| (host(number), number as u16))));
            assert_eq!(both.has(v4(0)), last == 0);
            assert!(!both.has(v6(1)), "there is no route of this family");
            let near = (0..=(count + 1) * gap).map(|number| v4(u32::MAX - number));
            near.chain([v4(0), v6(1)]).for_each(|address| both.check(address));
        }
    }
}
