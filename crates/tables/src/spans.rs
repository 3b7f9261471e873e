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
//! They are made from the whole table at each publication that has changed it, which a limit of
//! [`MAX_ROUTES`] bounds. [`Fib`] is what is changed, and what has all other tables.

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
    v4: Slots<Spans<u32>, CHUNK>,
    v6: Slots<Spans<u64>, CHUNK>,
}

impl RouteSpans {
    pub(crate) const fn new() -> Self {
        Self { v4: Slots::new(), v6: Slots::new() }
    }

    /// Makes those that are missing of a table.
    pub(crate) fn make(&mut self, vrf: VrfId, table: &RoutingTable) {
        let (v4, v6) = table.fibs();
        make(&mut self.v4, vrf, v4);
        make(&mut self.v6, vrf, v6);
    }

    /// The table has changed, or is gone.
    pub(crate) fn remove(&mut self, vrf: VrfId) {
        self.v4.remove(vrf.0.into());
        self.v6.remove(vrf.0.into());
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

    /// Whether there are those that an address is looked up in.
    #[inline(always)]
    pub(crate) fn has(&self, vrf: VrfId, destination: IpAddr) -> bool {
        match destination {
            IpAddr::V4(_) => self.v4.get(vrf.0.into()).is_some(),
            IpAddr::V6(_) => self.v6.get(vrf.0.into()).is_some(),
        }
    }
}

fn make<W: Word>(all: &mut Slots<Spans<W>, CHUNK>, vrf: VrfId, routes: &Fib<W::Address, Route>) {
    let number = vrf.0.into();
    if (1..=MAX_ROUTES).contains(&routes.len()) && all.get(number).is_none() {
        all.set(number, Spans::of(routes));
    }
}

/// See [`RouteSpans::kind`]. Few gateways have so many VRFs, and others need not have it near.
#[cold]
#[inline(never)]
fn kind<W: Word>(
    all: &Slots<Spans<W>, CHUNK>,
    routes: &Fib<W::Address, Route>,
    vrf: VrfId,
    address: W::Address,
) -> Option<RouteKind> {
    let spans = all.get(vrf.0.into());
    match spans.map_or(Found::Ask, |spans| spans.find(W::of(address))) {
        Found::Route(kind) => Some(kind),
        Found::Nothing => None,
        Found::Ask => routes.lookup(address).map(|route| route.kind),
    }
}

/// See [`RouteSpans::prefetch`].
#[inline(always)]
fn prefetch<W: Word>(
    all: &Slots<Spans<W>, CHUNK>,
    lookups: impl Iterator<Item = (VrfId, W)> + Clone,
) {
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
struct Spans<W> {
    /// Where the middle nodes begin, or the leaves if there are none.
    firsts: Firsts<W>,
    /// Where the leaves begin, if they are more than [`WIDTH`].
    middle: Arc<[Firsts<W>]>,
    /// One at least.
    leaves: Arc<[Leaf<W>]>,
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
        let begin = leaves.iter().map(|leaf| leaf.firsts.0[0]);
        if leaves.len() <= WIDTH {
            return Self { firsts: filled_up(begin), middle: Arc::default(), leaves };
        }
        let begin: Vec<W> = begin.collect();
        let middle: Arc<[Firsts<W>]> =
            begin.chunks(WIDTH).map(|some| filled_up(some.iter().copied())).collect();
        Self { firsts: filled_up(middle.iter().map(|firsts| firsts.0[0])), middle, leaves }
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
    use std::collections::BTreeSet;
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
            spans.make(VRF, &table);
            let long = table.routes().filter(|route| route.prefix.length() > 64);
            let asked = long.filter_map(|route| half(route.prefix.address())).collect();
            Self { table, spans, asked }
        }

        fn check(&self, address: IpAddr) {
            let route = self.table.route(address);
            let expected = match half(address) {
                _ if !self.spans.has(VRF, address) => Found::Ask,
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

    fn half(address: IpAddr) -> Option<u64> {
        match address {
            IpAddr::V4(_) => None,
            IpAddr::V6(address) => Some((address.to_bits() >> 64) as u64),
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
                    for by in [u128::MAX, 0, 1] {
                        both.check(match end {
                            IpAddr::V4(end) => v4(end.to_bits().wrapping_add(by as u32)),
                            IpAddr::V6(end) => v6(end.to_bits().wrapping_add(by)),
                        });
                    }
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
            assert_eq!(both.spans.has(VRF, v4(0)), last == 0);
            assert!(!both.spans.has(VRF, v6(1)), "there is no route of this family");
            let near = (0..=(count + 1) * gap).map(|number| v4(u32::MAX - number));
            near.chain([v4(0), v6(1)]).for_each(|address| both.check(address));
        }
    }
}
