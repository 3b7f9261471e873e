use packet::CAPACITY;
use proptest::prelude::*;
use wire::{PacketFields, SaSlot, headers};

use super::*;

const PORT: Origin = Origin::Port(PortId(1));

/// A UDP packet of either family, with `payload` behind the UDP header and, if wanted, options or
/// extension headers in front of it.
#[derive(Clone, Debug)]
struct Whole {
    v6: bool,
    options: bool,
    identification: u32,
    payload: Vec<u8>,
}

impl Whole {
    /// The headers that every fragment repeats.
    fn header(&self) -> Vec<u8> {
        if self.v6 {
            let header = ipv6::Header {
                next_header: if self.options {
                    Protocol::DESTINATION_OPTIONS
                } else {
                    Protocol::UDP
                },
                source: "2001:db8::1".parse().unwrap(),
                destination: "2001:db8::2".parse().unwrap(),
                ..ipv6::Header::default()
            };
            let mut bytes = header.to_bytes().to_vec();
            if self.options {
                // Destination options of 16 bytes, all padding (RFC 8200 section 4.2), then the
                // rest.
                bytes.extend([Protocol::UDP.0, 1, 1, 12, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0]);
            }
            bytes
        } else {
            let header = ipv4::Header {
                protocol: Protocol::UDP,
                identification: self.identification as u16,
                source: [192, 0, 2, 1].into(),
                destination: [192, 0, 2, 2].into(),
                ..ipv4::Header::default()
            };
            let mut bytes = header.to_bytes().to_vec();
            if self.options {
                // No operation, four times.
                bytes[0] += 1;
                bytes.extend([1; 4]);
            }
            bytes
        }
    }

    /// What goes in pieces: UDP header and payload.
    fn content(&self) -> Vec<u8> {
        let length = (8 + self.payload.len()) as u16;
        [[4, 0, 5, 0].as_slice(), &length.to_be_bytes(), &[0, 0], &self.payload].concat()
    }

    /// The packet in one piece, as reassembly must give it.
    fn packet(&self) -> Vec<u8> {
        let mut bytes = [self.header(), self.content()].concat();
        self.fill_lengths(&mut bytes);
        if !self.v6 {
            // Identification stays.
            bytes[6..8].fill(0);
            ipv4::fill_checksum(&mut bytes);
        }
        bytes
    }

    /// The bytes from `start` to `end` of the content as a fragment; `end` past the content is its
    /// end.
    fn fragment(&self, start: usize, end: usize) -> Vec<u8> {
        let content = self.content();
        let more = end < content.len();
        self.fragment_of(start, &content[start..end.min(content.len())], more)
    }

    fn fragment_of(&self, start: usize, payload: &[u8], more: bool) -> Vec<u8> {
        let mut header = self.header();
        let word = start as u16 | u16::from(more);
        if self.v6 {
            let field = if self.options { 40 } else { 6 };
            let next = core::mem::replace(&mut header[field], Protocol::FRAGMENT.0);
            header.extend([next, 0]);
            header.extend(word.to_be_bytes());
            header.extend(self.identification.to_be_bytes());
        } else {
            header[6..8]
                .copy_from_slice(&((start / 8) as u16 | u16::from(more) << 13).to_be_bytes());
        }
        let mut bytes = [header, payload.to_vec()].concat();
        self.fill_lengths(&mut bytes);
        ipv4::fill_checksum(&mut bytes);
        bytes
    }

    fn fill_lengths(&self, bytes: &mut [u8]) {
        let length = bytes.len() as u16;
        let (field, length) = if self.v6 { (4, length - 40) } else { (2, length) };
        bytes[field..field + 2].copy_from_slice(&length.to_be_bytes());
    }
}

fn small(v6: bool) -> Whole {
    Whole { v6, options: false, identification: 7, payload: (0..92).collect() }
}

struct Bench {
    reassembly: Reassembly,
    pool: Pool,
    now: Time,
}

impl Bench {
    fn new() -> Self {
        let pool = Pool::with_large(2 * MAX_DATAGRAMS, MAX_LARGE + 2);
        Self { reassembly: Reassembly::new(9), pool, now: Time(0) }
    }

    fn push_from(&mut self, origin: Origin, bytes: &[u8]) -> Reassembled {
        let headers = headers::parse(bytes).expect("a fragment that the judge lets through");
        let packet = self.pool.take_copy(bytes).unwrap();
        let key = headers.key(VrfId(1), origin, PacketFields::NONE);
        let group = Group::Origin(origin);
        self.reassembly.push(self.now, (&key, group), &headers, packet, &mut self.pool)
    }

    fn push(&mut self, bytes: &[u8]) -> Reassembled {
        self.push_from(PORT, bytes)
    }

    fn held(&mut self, bytes: &[u8]) {
        let answer = self.push(bytes);
        assert!(matches!(answer, Reassembled::Held), "{answer:?}");
    }

    fn completes(&mut self, bytes: &[u8], whole: &Whole) {
        match self.push(bytes) {
            Reassembled::Complete { packet, .. } => {
                assert_eq!(packet.bytes(), whole.packet());
                self.pool.give(packet);
            }
            other => panic!("{other:?}"),
        }
    }

    fn drops(&mut self, bytes: &[u8], reason: DropReason, fragments: u64) {
        match self.push(bytes) {
            Reassembled::Dropped { reason: why, fragments: count } => {
                assert_eq!((why, count), (reason, fragments));
            }
            other => panic!("{other:?}"),
        }
    }

    /// Every buffer is back.
    fn is_empty(&self) -> bool {
        self.pool.available() == self.pool.size() && self.reassembly.next_deadline().is_none()
    }
}

#[test]
fn both_orders_of_two_fragments() {
    for v6 in [false, true] {
        let whole = small(v6);
        for order in [[(0, 48), (48, 999)], [(48, 999), (0, 48)]] {
            let mut bench = Bench::new();
            bench.held(&whole.fragment(order[0].0, order[0].1));
            bench.completes(&whole.fragment(order[1].0, order[1].1), &whole);
            assert!(bench.is_empty());
        }
    }
}

#[test]
fn the_result_is_a_packet_that_the_judge_lets_through_with_full_headroom() {
    for (v6, options) in [(false, false), (false, true), (true, false), (true, true)] {
        let whole = Whole { options, ..small(v6) };
        let mut bench = Bench::new();
        bench.held(&whole.fragment(0, 48));
        let Reassembled::Complete { packet, .. } = bench.push(&whole.fragment(48, 999)) else {
            panic!()
        };
        let headers = headers::parse(packet.bytes()).unwrap();
        assert_eq!(headers.fragment.class, FragmentClass::Whole);
        assert_eq!(headers.upper, wire::Upper::Ports { source: 1024, destination: 1280 });
        assert_eq!(packet.bytes(), whole.packet());
        assert!(
            packet.headroom() >= HEADROOM && packet.tailroom() >= CAPACITY - HEADROOM - MAX_FRAME
        );
    }
}

#[test]
fn the_longest_header_of_ipv6_and_the_longest_packet() {
    let base = Whole { v6: true, options: false, identification: 1, payload: vec![3; 600] };
    let content = base.content();
    // Destination options until there is no more room in front of the payload, and one unit more.
    for (units, fits) in [(23, true), (24, true), (25, false)] {
        let mut extension = vec![0; units * 8];
        extension[0] = Protocol::FRAGMENT.0;
        extension[1] = (units - 1) as u8;
        let padding = extension.len() - 2;
        let (first, second) = (padding / 2, padding - padding / 2);
        extension[2..4].copy_from_slice(&[1, (first - 2) as u8]);
        extension[2 + first..4 + first].copy_from_slice(&[1, (second - 2) as u8]);
        let fragment = |start: usize, end: usize, more: bool| {
            let mut bytes = base.fragment_of(start, &content[start..end], more);
            bytes.splice(40..40, extension.iter().copied());
            bytes[6] = Protocol::DESTINATION_OPTIONS.0;
            base.fill_lengths(&mut bytes);
            bytes
        };
        let mut bench = Bench::new();
        bench.held(&fragment(304, content.len(), false));
        let first = fragment(0, 304, true);
        if fits {
            let Reassembled::Complete { packet, .. } = bench.push(&first) else {
                panic!("{units}")
            };
            let headers = headers::parse(packet.bytes()).unwrap();
            assert_eq!(headers.upper_bytes(packet.bytes()), content);
            assert!(packet.headroom() >= HEADROOM);
        } else {
            bench.drops(&first, DropReason::ReassemblyTooBig, 2);
            assert!(bench.is_empty());
        }
    }

    for (v6, header) in [(false, 20), (true, 40)] {
        let whole = |longer: usize| Whole {
            payload: vec![5; MAX_LENGTH - header - 8 + longer],
            ..small(v6)
        };
        let mut bench = Bench::new();
        bench.held(&whole(0).fragment(0, 1000));
        bench.completes(&whole(0).fragment(1000, 9999), &whole(0));
        bench.held(&whole(1).fragment(0, 1000));
        bench.drops(&whole(1).fragment(1000, 9999), DropReason::ReassemblyTooBig, 2);
        assert!(bench.is_empty());
    }
}

/// A datagram of 9000 bytes, as a ping of that size makes it, in fragments of an MTU of 1500.
#[test]
fn a_jumbo_datagram_gets_a_large_buffer() {
    for v6 in [false, true] {
        let whole = Whole { payload: (0..8992).map(|n| n as u8).collect(), ..small(v6) };
        let pieces: Vec<_> = (0..7).map(|n| whole.fragment(n * 1440, (n + 1) * 1440)).collect();
        let (last, others) = pieces.split_last().unwrap();
        let mut bench = Bench::new();
        others.iter().for_each(|piece| bench.held(piece));
        assert_eq!(bench.reassembly.large, 1);
        bench.completes(last, &whole);
        others.iter().rev().for_each(|piece| bench.held(piece));
        bench.held(&pieces[3]);
        bench.completes(last, &whole);
        assert!(bench.is_empty() && bench.reassembly.large == 0);

        // One that fits a small buffer stays there.
        let whole = Whole { payload: vec![1; 1900], ..small(v6) };
        bench.held(&whole.fragment(0, 1000));
        assert_eq!(bench.reassembly.large, 0);
        bench.completes(&whole.fragment(1000, 9999), &whole);

        // Without a free large buffer it is given up when it would need one; where there are none
        // at all, it is too big.
        for (large, reason) in [(1, DropReason::NoBuffer), (0, DropReason::ReassemblyTooBig)] {
            bench.pool = Pool::with_large(8, large);
            let taken = bench.pool.take_large();
            bench.held(&pieces[0]);
            bench.drops(&pieces[1], reason, 2);
            bench.pool.give_all(taken);
            assert!(bench.is_empty());
        }
    }
}

#[test]
fn only_so_many_datagrams_are_in_large_buffers() {
    let mut bench = Bench::new();
    let jumbo = |id| Whole { identification: 1000 + id, payload: vec![4; 8000], ..small(false) };
    for id in 0..MAX_LARGE as u32 {
        bench.now = Time(id.into());
        bench.held(&jumbo(id).fragment(0, 4000));
    }
    bench.held(&small(false).fragment(0, 48));
    bench.drops(&jumbo(100).fragment(0, 4000), DropReason::ReassemblyFull, 1);
    assert_eq!(bench.reassembly.waiting(), (MAX_LARGE + 1, MAX_LARGE + 1));
    bench.completes(&jumbo(100).fragment(4000, 9999), &jumbo(100));
    bench.completes(&jumbo(1).fragment(4000, 9999), &jumbo(1));
    bench.held(&jumbo(0).fragment(4000, 9999));
    bench.completes(&small(false).fragment(48, 999), &small(false));
    assert_eq!(bench.reassembly.large, MAX_LARGE - 1);
}

#[test]
fn overlap_costs_the_whole_datagram() {
    for v6 in [false, true] {
        let whole = small(v6);
        // Inside another, across two, around one, and the same bytes but for one.
        for (start, end) in [(8, 16), (40, 56), (0, 56), (0, 48)] {
            let mut bench = Bench::new();
            bench.held(&whole.fragment(0, 48));
            bench.held(&whole.fragment(48, 64));
            let mut payload = whole.content()[start..end].to_vec();
            if (start, end) == (0, 48) {
                payload[20] ^= 1;
            }
            bench.drops(
                &whole.fragment_of(start, &payload, true),
                DropReason::ReassemblyOverlap,
                3,
            );
            assert!(bench.is_empty());
            bench.held(&whole.fragment(64, 999));
        }
    }
}

#[test]
fn ends_that_contradict() {
    let whole = small(false);
    let mut bench = Bench::new();
    // Behind the end; a second end behind the first; an end in front of what is here.
    bench.held(&whole.fragment_of(48, &[1; 8], false));
    bench.drops(&whole.fragment_of(64, &[1; 8], true), DropReason::IpFragment, 2);
    bench.held(&whole.fragment_of(48, &[1; 8], false));
    bench.drops(&whole.fragment_of(8, &[1; 8], false), DropReason::IpFragment, 2);
    bench.held(&whole.fragment_of(48, &[1; 8], true));
    bench.drops(&whole.fragment_of(8, &[1; 8], false), DropReason::IpFragment, 2);
    assert!(bench.is_empty());
}

#[test]
fn fragments_of_different_datagrams_stay_apart() {
    let whole = small(false);
    let second = whole.fragment(48, 999);
    let mut bench = Bench::new();
    bench.held(&whole.fragment(0, 48));
    bench.held(&Whole { identification: 8, ..whole.clone() }.fragment(48, 999));
    let decrypted = bench.push_from(Origin::Sa(SaSlot(0)), &second);
    assert!(matches!(decrypted, Reassembled::Held), "clear and protected fragments do not mix");
    let mut other_protocol = second.clone();
    other_protocol[9] = 250;
    ipv4::fill_checksum(&mut other_protocol);
    bench.held(&other_protocol);
    let mut other_source = second.clone();
    other_source[15] ^= 1;
    ipv4::fill_checksum(&mut other_source);
    bench.held(&other_source);
    let by_another_port = bench.push_from(Origin::Port(PortId(2)), &second);
    assert!(matches!(by_another_port, Reassembled::Held), "who calls says what is one origin");
    let last = bench.push_from(PORT, &second);
    assert!(
        matches!(last, Reassembled::Complete { packet, .. } if packet.bytes() == whole.packet())
    );
}

#[test]
fn too_many_fragments() {
    let whole = small(false);
    let mut bench = Bench::new();
    for count in 0..MAX_FRAGMENTS {
        bench.held(&whole.fragment_of(16 * (count + 1), &[1; 8], true));
    }
    bench.drops(&whole.fragment(0, 8), DropReason::ReassemblyTooBig, MAX_FRAGMENTS as u64 + 1);
    assert!(bench.is_empty());
}

#[test]
fn the_datagram_that_waited_longest_makes_room() {
    let mut bench = Bench::new();
    let numbered = |identification| Whole { identification, ..small(false) };
    for id in 0..MAX_DATAGRAMS as u32 {
        bench.now = Time(id.into());
        bench.held(&numbered(id).fragment(0, 48));
    }
    bench.drops(&numbered(9999).fragment(0, 48), DropReason::ReassemblyFull, 1);
    bench.completes(&numbered(9999).fragment(48, 999), &numbered(9999));
    bench.held(&numbered(0).fragment(48, 999));
    bench.completes(&numbered(1).fragment(48, 999), &numbered(1));
}

/// Many first fragments from outside cost those inside nothing, whose datagram waits longest; in large
/// buffers neither.
#[test]
fn the_group_that_has_most_makes_room() {
    let outside = Origin::Port(PortId(2));
    let numbered = |identification| Whole { identification, ..small(false) };
    let jumbo = |id: u32| Whole { identification: id, payload: vec![4; 8000], ..small(false) };
    let mut bench = Bench::new();
    bench.held(&numbered(1).fragment(0, 48));
    bench.held(&jumbo(2).fragment(0, 4000));
    for id in 0..2 * MAX_DATAGRAMS as u32 {
        bench.now = Time(1 + u64::from(id));
        let flood = if id < 100 { jumbo(id) } else { numbered(id) };
        bench.push_from(outside, &flood.fragment(0, 48));
        bench.push_from(outside, &flood.fragment(48, 4048));
        bench.push_from(outside, &numbered(10_000 + id).fragment(0, 48));
    }
    assert_eq!((bench.reassembly.waiting().0, bench.reassembly.large), (MAX_DATAGRAMS, 1));
    bench.completes(&numbered(1).fragment(48, 999), &numbered(1));
    bench.completes(&jumbo(2).fragment(4000, 9999), &jumbo(2));
}

/// However empty the table is. What waited longest makes room, of the same VRF.
#[test]
fn one_vrf_has_no_more_than_its_highest_share() {
    let mut bench = Bench::new();
    bench.reassembly.limit(&crate::shares::limited_to(25));
    let numbered = |identification| Whole { identification, ..small(false) };
    let jumbo =
        |id: u32| Whole { identification: 1000 + id, payload: vec![4; 8000], ..small(false) };
    for id in 0..4u32 {
        bench.now = Time(id.into());
        bench.held(&jumbo(id).fragment(0, 4000));
    }
    bench.drops(&jumbo(4).fragment(0, 4000), DropReason::ReassemblyFull, 1);
    bench.completes(&jumbo(4).fragment(4000, 9999), &jumbo(4));
    assert_eq!(bench.reassembly.large, 3);
    for id in 0..61 {
        bench.now = Time(100 + u64::from(id));
        bench.held(&numbered(id).fragment(0, 48));
    }
    assert_eq!(bench.reassembly.waiting().0, MAX_DATAGRAMS / 4);
    bench.drops(&numbered(99).fragment(0, 48), DropReason::ReassemblyFull, 1);
    assert_eq!((bench.reassembly.waiting().0, bench.reassembly.large), (64, 2));
    bench.completes(&numbered(99).fragment(48, 999), &numbered(99));
    bench.completes(&numbered(0).fragment(48, 999), &numbered(0));
}

#[test]
fn what_does_not_become_whole_in_time_is_dropped() {
    const SECOND: u64 = 1_000_000_000;
    let mut bench = Bench::new();
    bench.held(&small(false).fragment(0, 48));
    bench.held(&small(false).fragment(56, 64));
    bench.now = Time(SECOND);
    bench.held(&small(true).fragment(0, 48));
    let expire = |bench: &mut Bench, now| {
        let mut dropped = Vec::new();
        bench.reassembly.expire(Time(now), &mut bench.pool, |fragments| dropped.push(fragments));
        (dropped, bench.reassembly.next_deadline())
    };
    assert_eq!(expire(&mut bench, 30 * SECOND - 1), (vec![], Some(Time(30 * SECOND))));
    assert_eq!(expire(&mut bench, 30 * SECOND), (vec![2], Some(Time(61 * SECOND))));
    assert_eq!(expire(&mut bench, 61 * SECOND), (vec![1], None));
    assert!(bench.is_empty());
}

#[test]
fn congestion_marks_survive_and_contradictions_do_not() {
    for v6 in [false, true] {
        let whole = small(v6);
        let marked = |start, end, ecn: u8| {
            let mut bytes = whole.fragment(start, end);
            bytes[1] |= if v6 { ecn << 4 } else { ecn };
            ipv4::fill_checksum(&mut bytes);
            bytes
        };
        let mut bench = Bench::new();
        bench.held(&marked(0, 48, 2));
        let Reassembled::Complete { packet, .. } = bench.push(&marked(48, 999, 3)) else {
            panic!()
        };
        assert_eq!(headers::parse(packet.bytes()).unwrap().traffic_class, 3);
        bench.pool.give(packet);
        bench.held(&marked(0, 48, 0));
        bench.drops(&marked(48, 999, 3), DropReason::IpFragment, 2);
        assert!(bench.is_empty());
    }
}

#[test]
fn whole_packets_are_complete_and_a_dry_pool_is_told() {
    let mut bench = Bench::new();
    bench.completes(&small(false).packet(), &small(false));
    let headers = headers::parse(&small(false).fragment(0, 48)).unwrap();
    let mut pool = Pool::new(1);
    let mut packet = pool.take().unwrap();
    assert!(packet.fill(&small(false).fragment(0, 48)));
    let answer = bench.reassembly.push(
        Time(0),
        (&headers.key(VrfId(0), PORT, PacketFields::NONE), Group::Origin(PORT)),
        &headers,
        packet,
        &mut pool,
    );
    assert!(matches!(answer, Reassembled::Dropped { reason: DropReason::NoBuffer, fragments: 1 }));
    assert_eq!(pool.available(), 1);
}

fn whole() -> impl Strategy<Value = Whole> {
    let payload = prop_oneof![
        proptest::collection::vec(any::<u8>(), 1..1900),
        (1900..9000_usize, any::<u8>())
            .prop_map(|(length, first)| (0..length).map(|n| (n * n) as u8 ^ first).collect()),
    ];
    (any::<bool>(), any::<bool>(), any::<u16>(), payload).prop_map(|(v6, options, id, payload)| {
        Whole { v6, options, identification: id.into(), payload }
    })
}

/// Cuts at multiples of 8, at most 15 of them.
fn cuts(length: usize, at: &[prop::sample::Index]) -> Vec<(usize, usize)> {
    let units = length.div_ceil(8);
    let mut cuts: Vec<_> =
        at.iter().map(|at| at.index(units) * 8).filter(|&cut| cut < length).collect();
    cuts.extend([0, length]);
    cuts.sort_unstable();
    cuts.dedup();
    cuts.windows(2).map(|pair| (pair[0], pair[1])).collect()
}

proptest! {
    #![proptest_config(ProptestConfig::with_cases(400))]

    /// Any two datagrams, cut anywhere, their fragments in any order, some more than once.
    #[test]
    fn fragments_in_any_order_make_the_datagram(
        first in whole(), second in whole(), at in proptest::collection::vec(any::<prop::sample::Index>(), 1..15),
        again in proptest::collection::vec(any::<prop::sample::Index>(), 0..10), seed: u64,
    ) {
        prop_assume!((first.v6, first.identification) != (second.v6, second.identification));
        let pieces = |whole: &Whole| {
            let length = whole.content().len();
            cuts(length, &at).into_iter().map(|(start, end)| whole.fragment(start, end)).collect::<Vec<_>>()
        };
        let both = [(&first, pieces(&first)), (&second, pieces(&second))];
        prop_assume!(both.iter().all(|(_, pieces)| pieces.len() > 1));
        let mut order: Vec<(usize, &Vec<u8>)> =
            both.iter().enumerate().flat_map(|(index, (_, pieces))| pieces.iter().map(move |piece| (index, piece))).collect();
        shuffle(&mut order, seed);
        let mut bench = Bench::new();
        let mut seen = [0, 0];
        for (index, piece) in order {
            seen[index] += 1;
            if seen[index] == both[index].1.len() {
                bench.completes(piece, both[index].0);
            } else {
                bench.held(piece);
                if !again.is_empty() && again[seen[index] % again.len()].index(2) == 0 {
                    bench.held(piece);
                }
            }
        }
        prop_assert!(bench.is_empty());
    }

    /// Fragments of all kinds, consistent or not: what comes out is what some consistent set of
    /// them says, and no buffer is lost.
    #[test]
    fn nothing_but_what_was_sent_comes_out(
        sent in proptest::collection::vec((0usize..8, 1usize..4, any::<bool>(), 0u8..2), 1..40), v6: bool,
    ) {
        let whole = small(v6);
        let mut bench = Bench::new();
        // A naive table of one datagram: by byte, what it says.
        let mut bytes: Vec<Option<u8>> = Vec::new();
        let mut pieces: Vec<(usize, usize, Vec<u8>)> = Vec::new();
        let mut end_of_all = None;
        for (at, units, more, fill) in sent {
            let (start, end) = (at * 8, (at + units) * 8);
            let mut payload = vec![fill; end - start];
            if start == 0 {
                payload[..8].copy_from_slice(&whole.content()[..8]);
            }
            let fragment = whole.fragment_of(start, &payload, more);
            if start == 0 && !more {
                continue;
            }
            let answer = bench.push(&fragment);
            let duplicate = pieces.contains(&(start, end, payload.clone()));
            if duplicate {
                prop_assert!(matches!(answer, Reassembled::Held));
                continue;
            }
            let overlaps = bytes.iter().take(end).skip(start).any(Option::is_some);
            let reaches = bytes.len();
            let contradicts = match end_of_all {
                Some(all) => end > all || !more,
                None => !more && end < reaches,
            };
            let count = pieces.len() as u64 + 1;
            if overlaps || contradicts {
                let reason = if overlaps { DropReason::ReassemblyOverlap } else { DropReason::IpFragment };
                let told = matches!(answer, Reassembled::Dropped { reason: why, fragments } if (why, fragments) == (reason, count));
                prop_assert!(told, "{:?}", answer);
            } else {
                bytes.resize(reaches.max(end), None);
                bytes[start..end].iter_mut().zip(&payload).for_each(|(place, byte)| *place = Some(*byte));
                pieces.push((start, end, payload));
                end_of_all = if more { end_of_all } else { Some(end) };
                let all: Option<Vec<u8>> = bytes.iter().copied().collect();
                match all.filter(|all| end_of_all == Some(all.len())) {
                    None => {
                        prop_assert!(matches!(answer, Reassembled::Held), "{:?}", answer);
                        continue;
                    }
                    Some(all) => {
                        let Reassembled::Complete { packet, .. } = answer else { panic!("{answer:?}") };
                        let headers = headers::parse(packet.bytes()).unwrap();
                        prop_assert_eq!(headers.upper_bytes(packet.bytes()), all);
                        bench.pool.give(packet);
                    }
                }
            }
            bytes.clear();
            pieces.clear();
            end_of_all = None;
            prop_assert!(bench.is_empty());
        }
        let mut left = 0;
        bench.reassembly.expire(Time(u64::MAX), &mut bench.pool, |fragments| left += fragments);
        prop_assert_eq!(left, pieces.len() as u64);
        prop_assert!(bench.is_empty());
    }
}

/// Fisher and Yates, with a generator of its own (splitmix64).
fn shuffle<T>(items: &mut [T], mut seed: u64) {
    for last in (1..items.len()).rev() {
        seed = seed.wrapping_add(0x9e37_79b9_7f4a_7c15);
        let mixed = (seed ^ seed >> 30).wrapping_mul(0xbf58_476d_1ce4_e5b9);
        items.swap(last, (mixed >> 32) as usize % (last + 1));
    }
}
