//! What few flows need beside their decision.
//!
//! A [`Decision`](crate::Decision) is four words. What belongs to features that few flows have is in
//! an [`Extension`], and a decision names it by a number. Flows with the same extension share one,
//! so there are few, and the others pay nothing for it.

use core::cmp::Ordering;
use core::fmt;
use core::net::IpAddr;
use core::time::Duration;
use std::collections::BTreeMap;

use conntrack::Reference;
use flow::RateLimiter;
use packet::{BATCH, Time};
use tables::{FilterSlot, FlowId, NextHopId, TapSet};

use crate::cache::sweep::Position;
use crate::connection::Change;
use crate::decide::Megaflows;
use crate::decision::Decision;
use crate::pairs::Pairs;
use crate::stage::confirm::TRIES;

/// What features do with the packets of a flow. It names rules and holds none.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, PartialOrd, Ord)]
pub struct Extension {
    /// The rules that decided, one more than their slots, 0 for none: of the filters of the port and
    /// of the VRF before routing, and of the VRF and of the port after it.
    rules: [u32; 4],
    /// The taps that want copies.
    pub(crate) taps: TapSet,
    /// How the MSS that a SYN announces is lowered.
    pub(crate) mss: Option<MssWay>,
    /// What flows write into packets.
    pub(crate) rewrite: Option<Rewrite>,
    /// The connections behind the first that the decision was made for.
    pub(crate) further: Further,
    /// Whether some of the flows that matched log packets.
    pub(crate) logs: bool,
    /// The flows that matched.
    pub(crate) flows: MatchedFlows,
}

/// Connections of one packet, in all zones.
pub(crate) const MOST_CONNECTIONS: usize = 4;

/// The connections behind the first that a decision was made for, in the order in which flows asked.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, PartialOrd, Ord)]
pub(crate) struct Further {
    /// [`Reference`]s; none behind the last.
    references: [u64; MOST_CONNECTIONS - 1],
    /// How many.
    count: u8,
    /// By bit, the first connection's lowest: whether packets are translated as that says.
    translated: u8,
}

impl Further {
    /// The decision was made for one connection at most.
    pub(crate) const NONE: Self =
        Self { references: [0; MOST_CONNECTIONS - 1], count: 0, translated: 0 };

    /// Of the connections of a packet, with whether they translate it.
    pub(crate) fn of(all: impl Iterator<Item = (Reference, bool)>) -> Self {
        let mut further = Self::NONE;
        for (at, (Reference(word), is_translated)) in all.enumerate().take(MOST_CONNECTIONS) {
            further.translated |= u8::from(is_translated) << at;
            if let Some(place) = at.checked_sub(1) {
                further.references[place] = word;
                further.count = at as u8;
            }
        }
        match further.count {
            0 => Self::NONE,
            _ => further,
        }
    }

    /// All connections of a packet, `first` among them, with whether they translate it.
    pub(crate) fn all(&self, first: Reference) -> impl Iterator<Item = (Reference, bool)> + use<> {
        let translated = self.translated;
        let others = self.references.into_iter().take(self.count.into()).map(Reference);
        let all = core::iter::once(first).chain(others).enumerate();
        all.map(move |(at, reference)| (reference, translated >> at & 1 != 0))
    }

    /// Whether there are none.
    pub(crate) fn is_none(&self) -> bool {
        self.count == 0
    }

    /// The same, which translates nothing.
    pub(crate) fn untranslated(self) -> Self {
        Self { translated: 0, ..self }
    }
}

/// What flows write into packets.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub(crate) struct Rewrite {
    /// Source and destination with their ports, if they are others than before.
    pub(crate) ends: Option<[(IpAddr, u16); 2]>,
    /// DSCP.
    pub(crate) dscp: Option<u8>,
    /// TTL or hop limit, before the gateway counts its own hop.
    pub(crate) hop_limit: Option<u8>,
}

/// The flows of the match-action tables that a packet has matched, in order; they count it.
#[derive(Clone, Copy)]
pub struct MatchedFlows {
    count: u8,
    /// Those behind `count` are anything.
    ids: [u32; Self::MOST],
}

impl PartialEq for MatchedFlows {
    fn eq(&self, other: &Self) -> bool {
        self.numbers() == other.numbers()
    }
}

impl Eq for MatchedFlows {}

impl PartialOrd for MatchedFlows {
    fn partial_cmp(&self, other: &Self) -> Option<Ordering> {
        Some(self.cmp(other))
    }
}

impl Ord for MatchedFlows {
    fn cmp(&self, other: &Self) -> Ordering {
        self.numbers().cmp(other.numbers())
    }
}

impl MatchedFlows {
    /// Longer lists are not kept: OVS's limit of levels.
    pub const MOST: usize = 64;

    /// None.
    pub const NONE: Self = Self { count: 0, ids: [0; Self::MOST] };

    /// Adds one. False if there is no room.
    pub(crate) fn push(&mut self, FlowId(id): FlowId) -> bool {
        let Some(place) = self.ids.get_mut(usize::from(self.count)) else { return false };
        *place = id;
        self.count += 1;
        true
    }

    /// Lists that are different are mostly in different places.
    fn place(&self) -> usize {
        let ids = self.numbers().iter().take(8).fold(0u32, |all, id| all.rotate_left(5) ^ *id);
        (ids.wrapping_mul(0x9e37_79b1) >> 24) as usize % LATEST
    }

    fn numbers(&self) -> &[u32] {
        &self.ids[..usize::from(self.count)]
    }

    /// In order.
    pub fn iter(&self) -> impl Iterator<Item = FlowId> + '_ {
        self.numbers().iter().copied().map(FlowId)
    }

    /// Whether there are none.
    pub const fn is_empty(&self) -> bool {
        self.count == 0
    }
}

impl Default for MatchedFlows {
    fn default() -> Self {
        Self::NONE
    }
}

impl fmt::Debug for MatchedFlows {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_list().entries(self.iter()).finish()
    }
}

/// How the MSS that a SYN announces is lowered: as the ports on its way ask for, and as the largest
/// packets there and back allow. Apply knows these, as it knows the sizes of packets: neither is in
/// a decision.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub(crate) struct MssWay {
    /// By which outer packets of answers leave, if the SYN was decrypted and there is a way.
    pub back: Option<NextHopId>,
}

/// What becomes of a copy of a packet, which is for it alone. Its extension says nothing of what the
/// packet met before it was copied.
#[derive(Clone, Debug)]
pub(crate) struct Copied {
    pub(crate) decision: Decision,
    pub(crate) extension: Extension,
}

impl Extension {
    /// Nothing.
    pub const NONE: Self = Self {
        rules: [0; 4],
        taps: TapSet::NONE,
        mss: None,
        rewrite: None,
        further: Further::NONE,
        logs: false,
        flows: MatchedFlows::NONE,
    };

    /// Becomes [`Extension::NONE`], but writes no more than that asks for.
    pub(crate) fn clear(&mut self) {
        let Self { rules, taps, mss, rewrite, further, logs, flows } = self;
        (*rules, *taps, *mss, *rewrite, *logs) = ([0; 4], TapSet::NONE, None, None, false);
        *further = Further::NONE;
        flows.count = 0;
    }

    /// Whether there is nothing.
    pub(crate) fn is_none(&self) -> bool {
        self.only_counts() && self.flows.is_empty()
    }

    /// Notes the rule that decided in one of the four places.
    pub(crate) fn note_rule(&mut self, place: usize, slot: FilterSlot) {
        if let Some(rule) = self.rules.get_mut(place) {
            *rule = slot.0 + 1;
        }
    }

    /// Whether it does no more than saying which flows count the packet.
    pub(crate) fn only_counts(&self) -> bool {
        self.rules == [0; 4]
            && self.taps == TapSet::NONE
            && self.mss.is_none()
            && self.rewrite.is_none()
            && self.further.is_none()
            && !self.logs
    }

    /// The flows of the match-action tables that matched, in order.
    pub fn flows(&self) -> &MatchedFlows {
        &self.flows
    }

    /// The taps that want copies of packets.
    pub fn taps(&self) -> TapSet {
        self.taps
    }

    /// The rules that decided, in the order in which they were asked.
    pub fn rules(&self) -> impl Iterator<Item = FilterSlot> + use<> {
        self.rules.into_iter().filter_map(|rule| rule.checked_sub(1)).map(FilterSlot)
    }
}

/// What makes a busy worker have its flows count at the latest: so many rounds, so much time, or so many
/// extensions, as they are spread in one round.
const ROUNDS: u32 = 64;
const DELAY: Duration = Duration::from_millis(5);
const LISTS: usize = 1024;

/// How many numbers are remembered to look at first.
const LATEST: usize = 256;

/// The most extensions that stay. Decisions with further ones are not kept in the cache.
pub(crate) const MOST: usize = 16_384;

/// With fewer free numbers than this, those that no entry of the cache has are looked for.
const FEW: usize = MOST / 4;

/// They are looked for at most so often.
const PAUSE: Duration = Duration::from_millis(100);

/// After it was looked for them for a time, so many times as long passes until the next time.
const REST: u32 = 16;

/// A worker's extensions, by number.
///
/// A number is given when a decision first has the extension. Entries of the cache that have it come
/// and go without a word about it, so that they cost nothing; numbers are given back by a sweep
/// ([`crate::cache::sweep`]), which looks through the cache for those in use, a part in each round.
pub(crate) struct Extensions {
    all: Vec<Extension>,
    numbers: BTreeMap<Extension, u32>,
    /// Numbers below the length of `all` that no extension has.
    free: Vec<u32>,
    /// Those that do not stay, numbered behind the others.
    passing: Vec<Extension>,
    /// Some numbers, by what their extensions begin with: where to look first.
    latest: [u32; LATEST],
    /// By number: whether it was seen in use since the sweep began.
    seen: Box<[bool]>,
    sweep: Sweep,
    /// What their flows have to count, by number; behind those that stay, of those that do not.
    counts: Box<[Count]>,
    /// The numbers of those in `counts` that are not empty: of extensions that stay, and of others.
    counted: [Vec<u32>; 2],
    /// Rounds since flows counted what there was, and when that was.
    rounds: (u32, Time),
    /// What becomes of copies of packets, by the number of their extension, which passes.
    copies: Vec<(u32, Vec<Copied>)>,
    /// That of the copy that is handled at the moment.
    of_copy: Extension,
    pub(crate) asked: Box<[Asked; BATCH]>,
    /// How many times numbers were given back: one that was seen at one count may be another extension's
    /// at the next.
    pub(crate) times_freed: u64,
    pub(crate) megaflows: Megaflows,
    pub(crate) pairs: Pairs,
    pub(crate) log: PacketLog,
}

/// What the decision about the packet at a position of the batch asks of connections, if it is for that
/// packet alone. That of other packets is of an earlier batch.
#[derive(Default)]
pub(crate) struct Asked {
    pub(crate) change: Option<Change>,
    /// What the trackers look at in the packet, if that is known.
    pub(crate) packet: Option<conntrack::Packet>,
    /// The number of the megaflow that the change is of; 0 if it is of none.
    pub(crate) megaflow: u64,
}

/// Packets that the flows of an extension have not counted yet.
#[derive(Clone, Copy, Default)]
struct Count {
    packets: u64,
    bytes: u64,
    /// When the last came.
    last: Time,
}

/// Extensions that do not stay, of one batch: each packet is decided once, or twice to measure that, and
/// so often again.
const MOST_PASSING: usize = (2 + TRIES) * BATCH;

/// The number of the extension of the copy that is handled at the moment.
const OF_COPY: u32 = u32::MAX;

/// Whether numbers in use are being looked for.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Sweep {
    /// Since then, from here.
    Runs { begun: Time, next: Position },
    /// And the next one is not to begin before this.
    Rests { until: Time },
}

impl Extensions {
    pub(crate) fn new(megaflows: Megaflows, pairs: Pairs) -> Self {
        Self {
            all: Vec::with_capacity(MOST),
            numbers: BTreeMap::new(),
            free: Vec::with_capacity(MOST),
            passing: Vec::with_capacity(MOST_PASSING),
            counts: vec![Count::default(); MOST + MOST_PASSING].into(),
            counted: [Vec::with_capacity(MOST), Vec::with_capacity(MOST_PASSING)],
            rounds: (0, Time(0)),
            copies: Vec::new(),
            of_copy: Extension::NONE,
            asked: Box::new([const { Asked { change: None, packet: None, megaflow: 0 } }; BATCH]),
            latest: [0; LATEST],
            seen: vec![false; MOST].into(),
            sweep: Sweep::Rests { until: Time(0) },
            times_freed: 0,
            megaflows,
            pairs,
            log: PacketLog::new(),
        }
    }

    /// The number of an extension, which is the same for equal ones while they stay.
    pub(crate) fn number(&mut self, extension: &Extension) -> u32 {
        let latest = extension.flows.place();
        let guess = self.latest[latest];
        if self.all.get(guess as usize) == Some(extension) {
            self.saw(guess);
            return guess;
        }
        if let Some(&number) = self.numbers.get(extension) {
            self.latest[latest] = number;
            // A sweep may have passed the place that the decision gets.
            self.saw(number);
            return number;
        }
        let number = match self.free.pop() {
            Some(number) => {
                self.all[number as usize] = *extension;
                Some(number)
            }
            None if self.all.len() < MOST => {
                self.all.push(*extension);
                Some(self.all.len() as u32 - 1)
            }
            None => None,
        };
        if let Some(number) = number {
            self.latest[latest] = number;
            self.numbers.insert(*extension, number);
            self.saw(number);
            return number;
        }
        let known = self.passing.iter().position(|passing| passing == extension);
        known.map_or_else(|| self.pass_by(extension), |place| (MOST + place) as u32)
    }

    /// The extension of this number.
    #[inline]
    pub(crate) fn get(&self, number: u32) -> &Extension {
        let number = number as usize;
        let found = match number.checked_sub(MOST) {
            None => self.all.get(number),
            Some(passing) => {
                self.passing.get(passing).or((number == OF_COPY as usize).then_some(&self.of_copy))
            }
        };
        found.unwrap_or(&Extension::NONE)
    }

    /// Packets of this extension were handled, which its flows will count.
    #[inline]
    pub(crate) fn count(&mut self, number: u32, packets: u64, bytes: u64, now: Time) {
        let Some(count) = self.counts.get_mut(number as usize) else { return };
        if count.packets == 0 {
            self.counted[usize::from(!Self::stays(number))].push(number);
        }
        count.packets += packets;
        count.bytes += bytes;
        count.last = now;
    }

    /// Tells what flows have to count, and since when they were last used: of all, or of those alone
    /// that do not stay.
    pub(crate) fn settle(&mut self, of_all: bool, mut add: impl FnMut(FlowId, u64, u64, Time)) {
        for kind in usize::from(!of_all)..self.counted.len() {
            let mut counted = core::mem::take(&mut self.counted[kind]);
            for number in counted.drain(..) {
                let Count { packets, bytes, last } =
                    core::mem::take(&mut self.counts[number as usize]);
                self.get(number).flows.iter().for_each(|id| add(id, packets, bytes, last));
            }
            self.counted[kind] = counted;
        }
    }

    /// Whether flows have something to count of extensions that do not stay.
    #[inline(always)]
    pub(crate) fn has_passed(&self) -> bool {
        !self.counted[1].is_empty()
    }

    /// Whether flows are to count what there is, at the end of a round. Each list of flows is spread over
    /// these, so that a worker that has no time to spare puts it off, for some rounds.
    #[inline(always)]
    pub(crate) fn is_to_settle(&mut self, is_busy: bool, now: Time) -> bool {
        if self.counted.iter().all(Vec::is_empty) {
            return false;
        }
        let (rounds, since) = self.rounds;
        // A sweep takes numbers away.
        let is_due = !is_busy
            || rounds + 1 >= ROUNDS
            || now.since(since) >= DELAY
            || self.counted[0].len() >= LISTS
            || self.are_few_left();
        self.rounds = if is_due { (0, now) } else { (rounds + 1, since) };
        is_due
    }

    /// A number for an extension of one packet alone.
    pub(crate) fn pass(&mut self, extension: &Extension, copies: Vec<Copied>) -> u32 {
        let number = self.pass_by(extension);
        if !copies.is_empty() {
            self.copies.push((number, copies));
        }
        number
    }

    /// What becomes of copies of the packet whose extension has this number.
    pub(crate) fn copies_of(&self, number: u32) -> &[Copied] {
        let found = self.copies.iter().find(|(of, _)| *of == number);
        found.map_or(&[], |(_, copies)| copies)
    }

    /// The same, once.
    pub(crate) fn take_copies(&mut self, number: u32) -> Vec<Copied> {
        let place = self.copies.iter().position(|(of, _)| *of == number);
        place.map(|place| self.copies.swap_remove(place).1).unwrap_or_default()
    }

    /// The decision about a copy, whose extension is that of no other packet until the next one is.
    pub(crate) fn begin_copy(&mut self, copy: &Copied) -> Decision {
        self.of_copy = copy.extension;
        let mut decision = copy.decision.extended();
        decision.set_extension(OF_COPY);
        decision
    }

    fn pass_by(&mut self, extension: &Extension) -> u32 {
        if self.passing.len() < MOST_PASSING {
            self.passing.push(*extension);
        }
        (MOST + self.passing.len() - 1) as u32
    }

    /// Whether decisions with this number may be kept.
    #[inline(always)]
    pub(crate) const fn stays(number: u32) -> bool {
        (number as usize) < MOST
    }

    /// Forgets those that do not stay. No decision with one is in use any more.
    #[inline]
    pub(crate) fn forget_passing(&mut self) {
        self.passing.clear();
        self.copies.clear();
    }

    /// Whether the cache is to be looked through for numbers in use.
    #[inline(always)]
    pub(crate) fn are_few_left(&self) -> bool {
        self.numbers.len() > MOST - FEW
    }

    /// From where on the cache is to be looked through, which begins if it is time for it.
    pub(crate) fn sweep_from(&mut self, now: Time) -> Option<Position> {
        match self.sweep {
            Sweep::Runs { next, .. } => Some(next),
            Sweep::Rests { until } if now < until => None,
            Sweep::Rests { .. } => {
                self.seen.fill(false);
                let next = Position::default();
                self.sweep = Sweep::Runs { begun: now, next };
                Some(next)
            }
        }
    }

    /// An entry of the cache, or one to come, has this number.
    #[inline]
    pub(crate) fn saw(&mut self, number: u32) {
        if let Some(seen) = self.seen.get_mut(number as usize) {
            *seen = true;
        }
    }

    /// The cache was looked through up to here, or to its end: then numbers that were not seen are
    /// free.
    pub(crate) fn swept(&mut self, now: Time, up_to: Option<Position>) {
        let Sweep::Runs { begun, next } = &mut self.sweep else { return };
        if let Some(position) = up_to {
            *next = position;
            return;
        }
        let rest = (now.since(*begun) * REST).max(PAUSE);
        self.sweep = Sweep::Rests { until: now + rest };
        self.times_freed += 1;
        let Self { all, numbers, seen, free, .. } = self;
        numbers.retain(|_, number| {
            let stays = seen[*number as usize];
            if !stays {
                all[*number as usize] = Extension::NONE;
                free.push(*number);
            }
            stays
        });
    }
}

/// So many packets of a rule are logged in a second.
const LOG_RATE: u32 = 10;

/// So many of all rules are told to the control thread in a second and at once, so that what it is
/// told of neighbours finds room.
const LOG_RATE_OF_ALL: u64 = 100;

/// How many rules may log at their full rate. Further ones share places with others.
const LOG_PLACES: usize = 1024;

/// Which packets are logged.
pub(crate) struct PacketLog {
    all: RateLimiter,
    places: Box<[LogPlace]>,
}

#[derive(Clone, Copy, Default)]
struct LogPlace {
    /// When the present second began.
    since: Time,
    /// How many packets were told in it.
    told: u32,
    /// How many were not, since one was told last.
    untold: u64,
}

impl PacketLog {
    fn new() -> Self {
        let places = vec![LogPlace::default(); LOG_PLACES].into();
        Self { all: RateLimiter::new(LOG_RATE_OF_ALL, LOG_RATE_OF_ALL), places }
    }

    /// Whether a packet of this rule or flow is to be told, and if so how many were not before it.
    /// Those whose numbers share a place share a rate.
    pub(crate) fn tell(&mut self, number: u32, now: Time) -> Option<u64> {
        let place = &mut self.places[number as usize % LOG_PLACES];
        if place.told > 0 && now.since(place.since).as_secs() >= 1 {
            place.told = 0;
        }
        if place.told >= LOG_RATE || !self.all.allow(now) {
            place.untold += 1;
            return None;
        }
        if place.told == 0 {
            place.since = now;
        }
        place.told += 1;
        Some(core::mem::take(&mut place.untold))
    }
}

#[cfg(test)]
mod tests {
    use flow::CacheSettings;

    use super::*;

    #[test]
    fn ten_packets_a_second_of_a_rule_are_told_and_the_rest_is_counted() {
        let (mut log, start) = (PacketLog::new(), Time(5_000_000_000));
        let at = |ms: u64| start + Duration::from_millis(ms);
        let told = |log: &mut PacketLog, rule, ms| log.tell(rule, at(ms));
        let first: Vec<_> = (0..50).map(|ms| told(&mut log, 3, ms)).collect();
        assert_eq!(first[..10], [Some(0); 10]);
        assert!(first[10..].iter().all(Option::is_none));
        assert_eq!(told(&mut log, 4, 60), Some(0));
        assert_eq!(told(&mut log, 3, 999), None);
        assert_eq!(told(&mut log, 3, 1000), Some(41));
        assert_eq!(told(&mut log, 3, 1001), Some(0));
        // All rules together.
        let many = (0..1000).filter(|rule| told(&mut log, *rule, 1002).is_some()).count();
        assert!((85..=100).contains(&many), "{many}");
    }

    fn extensions() -> Extensions {
        let off = [CacheSettings::OFF; 4];
        Extensions::new(Megaflows::new(&off, 1), Pairs::new(&off, 1).unwrap())
    }

    fn of(slot: u32) -> Extension {
        let mut extension = Extension::NONE;
        extension.note_rule(2, FilterSlot(slot));
        extension
    }

    #[test]
    fn equal_ones_share_a_number_and_those_beyond_the_limit_do_not_stay() {
        let mut extensions = extensions();
        for slot in 0..MOST as u32 {
            assert_eq!(extensions.number(&of(slot)), slot);
        }
        assert_eq!(extensions.number(&of(7)), 7);
        let more = MOST as u32;
        let numbers = [more, more + 1, more].map(|slot| extensions.number(&of(slot)));
        assert_eq!(numbers, [more, more + 1, more]);
        assert!(Extensions::stays(more - 1) && !Extensions::stays(more));
        assert_eq!(*extensions.get(more + 1), of(more + 1));
        extensions.forget_passing();
        assert_eq!(*extensions.get(more), Extension::NONE);
        assert_eq!(extensions.number(&of(more + 9)), more);
        assert_eq!(extensions.get(5).rules().collect::<Vec<_>>(), [FilterSlot(5)]);
    }

    #[test]
    fn numbers_that_a_sweep_did_not_see_are_given_again() {
        let mut extensions = extensions();
        let (start, more) = (Time(5_000_000_000), MOST as u32);
        for slot in 0..more - FEW as u32 {
            extensions.number(&of(slot));
        }
        assert!(!extensions.are_few_left());
        for slot in more - FEW as u32..more {
            extensions.number(&of(slot));
        }
        assert!(extensions.are_few_left());
        let next = extensions.sweep_from(start).unwrap();
        extensions.saw(3);
        extensions.swept(start, Some(next));
        // Decided meanwhile.
        assert_eq!(extensions.number(&of(9)), 9);
        assert_eq!(extensions.number(&of(more + 1)), more);
        let later = start + Duration::from_millis(10);
        assert_eq!(extensions.sweep_from(later), Some(next));
        extensions.swept(later, None);
        assert_eq!(extensions.sweep_from(later + Duration::from_millis(159)), None);
        assert!(extensions.sweep_from(later + Duration::from_millis(160)).is_some());
        let known: Vec<_> = extensions.numbers.values().copied().collect();
        assert_eq!(known, [3, 9]);
        let again: Vec<_> = (0..MOST - 1).map(|slot| extensions.number(&of(slot as u32))).collect();
        assert_eq!((again[3], again[9]), (3, 9));
        let distinct: std::collections::BTreeSet<_> = again.iter().copied().collect();
        assert_eq!((distinct.len(), distinct.last().copied()), (MOST - 1, Some(more - 1)));
        for (slot, number) in (0..).zip(again) {
            assert_eq!(*extensions.get(number), of(slot));
        }
        assert!(Extensions::stays(extensions.number(&of(more + 5))));
        assert!(!Extensions::stays(extensions.number(&of(more + 6))));
    }
}
