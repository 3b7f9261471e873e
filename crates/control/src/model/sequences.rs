//! Which sequence numbers every key has used, so that a restart uses none of them again.
//!
//! Whoever owns [`Control`] has a disk, and this has none: what is to be written
//! down is handed out as [`Reservation`]s, and takes effect once [`Reservation::is_durable`] was
//! called. Numbers that are not durable yet are not used.

mod entry;

use std::collections::HashMap;
use std::net::IpAddr;
use std::sync::Arc;

use api::{Refusal, RefusalCode, StateSpec};
use esp::{Algorithm, DIGEST_LENGTH, KeyMaterial, Numbers, ReplayWindow, WindowSize};
use packet::Time;
use rand_chacha::ChaCha20Rng;
use rand_chacha::rand_core::Rng;
use tables::Tables;
use zeroize::Zeroizing;

use super::Control;
use entry::{Entry, SEND_AHEAD, User, ahead};

/// Length in bytes of the secret that keys are recognized with.
pub const SECRET_LENGTH: usize = 32;

/// How many keys are remembered that no SA has. Those of SAs are remembered besides.
pub(super) const REMEMBERED: usize = 65_536;

/// How many keys a tick looks at, so that it takes a millisecond or two. Of more keys than in a
/// few ticks' time, those that need numbers first ask for them by themselves.
const LOOKED_AT_ONCE: usize = 32_768;

/// What is written down of a key.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct SequenceRecord {
    /// What the key is recognized by.
    pub digest: [u8; DIGEST_LENGTH],
    /// Numbers up to this one count as used after a restart.
    pub number: u32,
    /// Whether none above the last that was used is among them: after a stop, not after a crash.
    pub is_exact: bool,
    /// Of what is sent: makes IVs of numbers. Of what is received: what key and SPI are recognized
    /// by, whatever the VRF is called and whichever address is the gateway's.
    pub mask: u64,
    /// Records with a greater one were written later.
    pub stamp: u64,
    /// Of what is received: how many numbers up to `number` may never have come. Zero if all have,
    /// and in what a gateway of before has written.
    pub ahead: u32,
}

/// A record to be written down.
#[derive(Debug)]
pub struct Reservation {
    /// Where: records of one place replace each other.
    pub place: u32,
    /// What.
    pub record: SequenceRecord,
    user: User,
}

impl Reservation {
    /// The record survives power loss from now on.
    pub fn is_durable(&self) {
        match &self.user {
            User::Nobody => {}
            User::Sends(numbers) => numbers.allow(self.record.number),
            User::Receives(window) => window.move_edge(self.record.number),
        }
    }
}

impl Reservation {
    /// Whether an SA waits for it. Otherwise nothing is lost by giving it up.
    pub fn is_wanted(&self) -> bool {
        // Besides the ledger and this.
        match &self.user {
            User::Nobody => false,
            User::Sends(numbers) => Arc::strong_count(numbers) > 2,
            User::Receives(window) => Arc::strong_count(window) > 2,
        }
    }
}

/// Where the numbers of new SAs begin.
#[derive(Debug)]
pub(super) enum Sequences {
    /// Where they are told to.
    Free,
    /// Where they are told to; what would be broken by numbers that come again is refused.
    Refused,
    /// Above what their keys have used.
    Kept(Box<Ledger>),
}

/// All keys that are remembered.
pub(super) struct Ledger {
    secret: Zeroizing<[u8; SECRET_LENGTH]>,
    /// The keys by place, and the places by digest.
    entries: Vec<Option<Entry>>,
    places: HashMap<[u8; DIGEST_LENGTH], u32>,
    /// The places of windows with one key and SPI, by [`SequenceRecord::mask`].
    kin: HashMap<u64, Vec<u32>>,
    /// Places without a key.
    free: Vec<u32>,
    /// Where the SA is that came last from a peer, or was.
    peers: HashMap<Peer, u32>,
    stamp: u64,
    /// The place that the next tick looks at first.
    next: usize,
    /// How often the workers have gone round.
    round: u64,
    /// When the last tick was.
    now: Option<Time>,
    waiting: Vec<Reservation>,
    /// Windows that were replaced since [`Sequences::begin`], with their edges, by place.
    replaced: Vec<(u32, Entry, u32)>,
    /// Keys that were recognized as others since then.
    recognized: Vec<[u8; DIGEST_LENGTH]>,
}

/// Who sends to an SA: its VRF, source and destination.
type Peer = (String, IpAddr, IpAddr);

impl Sequences {
    /// Those for a rehearsal, of which nothing is kept.
    pub(super) fn rehearsal(&self) -> Self {
        match self {
            Self::Refused => Self::Refused,
            Self::Free | Self::Kept(_) => Self::Free,
        }
    }

    /// Whether numbers are kept of keys of this algorithm. Without a key there is nothing to be
    /// recognized by.
    pub(super) fn keep(&self, algorithm: Algorithm) -> bool {
        matches!(self, Self::Kept(_)) && algorithm.icv_length() > 0
    }

    /// Where the numbers of a key for sending come from, if they are kept. A new key gets what
    /// `randomness` gives as the mask of its IVs.
    pub(super) fn sending(
        &mut self,
        spec: &StateSpec,
        keys: &KeyMaterial,
        randomness: &mut ChaCha20Rng,
    ) -> Result<Option<Arc<Numbers>>, Refusal> {
        match self {
            Self::Refused if keys.algorithm().is_counter_mode() => Err(refused(spec, keys)),
            Self::Kept(ledger) if keys.algorithm().icv_length() > 0 => {
                Ok(Some(ledger.sender(keys, randomness)))
            }
            _ => Ok(None),
        }
    }

    /// The replay window of an SA, if where it begins is kept. `tables` have the other SAs.
    pub(super) fn receiving(
        &mut self,
        spec: &StateSpec,
        keys: &KeyMaterial,
        size: WindowSize,
        tables: &Tables,
    ) -> Option<Arc<ReplayWindow>> {
        match self {
            Self::Kept(ledger) if size != WindowSize::OFF && keys.algorithm().icv_length() > 0 => {
                let place = ledger.receiver(spec, keys, tables);
                Some(ledger.window(spec, place, size))
            }
            _ => None,
        }
    }

    /// Reserves numbers for an SA that is to come, unless its key has some. Returns whether it has
    /// none yet.
    pub(super) fn prepare(
        &mut self,
        spec: &StateSpec,
        keys: &KeyMaterial,
        size: WindowSize,
        randomness: &mut ChaCha20Rng,
    ) -> bool {
        match self {
            Self::Kept(ledger) if keys.algorithm().icv_length() > 0 => {
                let numbers = ledger.sender(keys, randomness);
                let from = numbers.last().max(spec.sent_sequence);
                let is_missing = from < u32::MAX && numbers.allowed() <= from;
                // A reservation was given up, or is on its way to the disk: written once more.
                let place = numbers.place();
                let is_short = |entry: &Entry| numbers.allowed() < entry.record.number;
                if !is_missing {
                    ledger.reserve(place, |entry| is_short(entry).then_some(entry.record.number));
                }
                if is_missing {
                    ledger.reserve(place, |entry| {
                        Some(ahead(from, SEND_AHEAD).max(entry.record.number))
                    });
                }
                is_missing | (size != WindowSize::OFF && ledger.prepare_window(spec, keys, size))
            }
            _ => false,
        }
    }

    /// A change begins, which may be refused.
    pub(super) fn begin(&mut self) {
        if let Self::Kept(ledger) = self {
            ledger.replaced.clear();
            ledger.recognized.clear();
        }
    }

    /// The change that was begun is refused: the replay windows that it would have replaced are
    /// those of the SAs still.
    pub(super) fn undo(&mut self) {
        if let Self::Kept(ledger) = self {
            ledger.undo();
        }
    }

    /// Reserves for a key that asks.
    pub(super) fn look_at(&mut self, place: u32, now: Time) {
        if let Self::Kept(ledger) = self {
            let round = ledger.round;
            ledger.reserve(place, |entry| entry.look(now, round));
        }
    }

    pub(super) fn look_at_all(&mut self, now: Time) {
        if let Self::Kept(ledger) = self {
            let round = ledger.round;
            for place in 0..ledger.entries.len() as u32 {
                ledger.reserve(place, |entry| entry.look(now, round));
            }
        }
    }

    /// Each worker has ended the round that it was in when this was called before.
    pub(super) fn went_round(&mut self) {
        if let Self::Kept(ledger) = self {
            ledger.round += 1;
        }
    }

    /// The replay windows of SAs that accept nothing before their peers get past what a crash has
    /// left: how many, and the most packets that this takes one.
    pub(super) fn awaiting(&self) -> (usize, u32) {
        let Self::Kept(ledger) = self else { return (0, 0) };
        let entries = ledger.entries.iter().flatten();
        let awaiting = entries.filter(|entry| entry.user.is_used() && entry.awaits());
        awaiting.fold((0, 0), |(count, most), entry| (count + 1, most.max(entry.record.ahead)))
    }

    pub(super) fn tick(&mut self, now: Time) {
        if let Self::Kept(ledger) = self {
            ledger.tick(now);
        }
    }

    pub(super) fn take(&mut self) -> Vec<Reservation> {
        match self {
            Self::Kept(ledger) => std::mem::take(&mut ledger.waiting),
            _ => Vec::new(),
        }
    }

    pub(super) fn take_last(&mut self) -> Vec<Reservation> {
        match self {
            Self::Kept(ledger) => ledger.take_last(),
            _ => Vec::new(),
        }
    }
}

impl Control {
    /// Refuses SAs whose sequence numbers would come again after a restart, where that breaks their
    /// algorithm.
    pub fn refuse_sequence_reuse(&mut self) {
        self.sequences = Sequences::Refused;
    }

    /// Has the sequence numbers of SAs begin above what their keys have used. `known` was written
    /// down of the keys, by place, and `secret` is what they are recognized with. To be called
    /// before there is an SA.
    ///
    /// From now on SAs send once numbers are durable: see [`Control::take_reservations`].
    pub fn keep_sequences(
        &mut self,
        secret: Zeroizing<[u8; SECRET_LENGTH]>,
        known: Vec<(u32, SequenceRecord)>,
    ) {
        self.sequences = Sequences::Kept(Box::new(Ledger::new(secret, known)));
    }

    /// Each worker has ended the round that it was in when this was called before. An edge of a
    /// replay window is lowered on the disk once no worker can accept a number above it.
    pub fn workers_went_round(&mut self) {
        self.sequences.went_round();
    }

    /// How many SAs accept nothing before their peers get past what a crash has left stored ahead,
    /// and the most packets that this takes one of them; 0 if nobody knows.
    pub fn sas_behind_crash(&self) -> (usize, u32) {
        self.sequences.awaiting()
    }

    /// Reserves sequence numbers for all SAs that need some, which takes a look at each.
    pub fn reserve_sequences(&mut self, now: Time) {
        self.sequences.look_at_all(now);
    }
}

fn refused(spec: &StateSpec, keys: &KeyMaterial) -> Refusal {
    let message = format!(
        "the SA to {} with SPI {:#010x} is refused: after a restart its key would send sequence \
        numbers and IVs again, which breaks {}, and without a state directory nobody remembers \
        them",
        spec.destination,
        spec.spi,
        keys.algorithm()
    );
    Refusal::new(RefusalCode::Unsupported, message).with_hint(
        "state-directory in [gateway], or allow-sequence-reuse = true there if the key is never \
        used after the gateway has ended",
    )
}

impl Ledger {
    /// What was written down, by place. `secret` is what its digests were made with.
    pub(super) fn new(
        secret: Zeroizing<[u8; SECRET_LENGTH]>,
        known: Vec<(u32, SequenceRecord)>,
    ) -> Self {
        let mut places: HashMap<_, u32> = HashMap::with_capacity(known.len());
        let mut entries: Vec<Option<Entry>> = Vec::new();
        let mut stamp = 0;
        for (place, record) in known {
            let at = place as usize;
            if entries.len() <= at {
                entries.resize_with(at + 1, || None);
            }
            stamp = stamp.max(record.stamp);
            // A key may be there twice, if it was forgotten and came back before its former place
            // was used again. The greater number is the safe one, with the mask that it goes with.
            let former = places.get(&record.digest).copied();
            let former = former.and_then(|former| entries.get_mut(former as usize));
            match former {
                Some(Some(former)) if former.record.number > record.number => continue,
                Some(former) => *former = None,
                None => {}
            }
            places.insert(record.digest, place);
            entries[at] = Some(Entry::new(record));
        }
        let free = (0..entries.len() as u32).filter(|at| entries[*at as usize].is_none()).collect();
        let mut kin: HashMap<u64, Vec<u32>> = HashMap::with_capacity(entries.len());
        for (entry, place) in entries.iter().zip(0..) {
            if let Some(entry) = entry {
                kin.entry(entry.record.mask).or_default().push(place);
            }
        }
        Self {
            secret,
            entries,
            places,
            kin,
            free,
            peers: HashMap::new(),
            stamp,
            next: 0,
            round: 0,
            now: None,
            waiting: Vec::new(),
            replaced: Vec::new(),
            recognized: Vec::new(),
        }
    }

    /// How many keys are remembered.
    #[cfg(test)]
    pub(super) fn known(&self) -> usize {
        self.places.len()
    }

    /// The numbers of a key for sending.
    pub(super) fn sender(
        &mut self,
        keys: &KeyMaterial,
        randomness: &mut ChaCha20Rng,
    ) -> Arc<Numbers> {
        let digest = keys.digest(&*self.secret, b"sending");
        let (place, entry) = self.entry(digest, || randomness.next_u64());
        if let User::Sends(numbers) = &entry.user {
            return Arc::clone(numbers);
        }
        let SequenceRecord { number, mask: written, .. } = entry.record;
        // The lower half keeps IVs apart by their numbers. The upper one is drawn anew, so that they
        // are apart after a start with a file that is older than what was sent.
        let lower = u64::from(u32::MAX);
        entry.record.mask = randomness.next_u64() & !lower | written & lower;
        let numbers = Arc::new(Numbers::reserved(number, entry.record.mask, place));
        entry.begin(User::Sends(Arc::clone(&numbers)), number, false);
        self.unlink(written, place);
        numbers
    }

    /// The replay window of an SA whose place is known.
    fn window(&mut self, spec: &StateSpec, place: u32, size: WindowSize) -> Arc<ReplayWindow> {
        let rate = self.rate_of_peer(spec);
        let Some(Some(entry)) = self.entries.get_mut(place as usize) else {
            unreachable!("the place of a key has an entry")
        };
        let stored = entry.record.number;
        let (top, edge, is_exact) = match &entry.user {
            User::Receives(window)
                if window.size() == size && window.top() >= spec.received_sequence =>
            {
                return Arc::clone(window);
            }
            // From now on it accepts nothing: what comes before workers have the new one waits.
            User::Receives(window) => {
                let edge = window.edge();
                self.replaced.push((place, entry.clone(), edge));
                window.lower_edge(window.top());
                (window.top(), edge, true)
            }
            _ => (stored, stored, entry.record.is_exact),
        };
        let seen = top.max(spec.received_sequence);
        let mut window = ReplayWindow::with_edge(size, seen, edge, place);
        // One that has received nothing may be there to send: it awaits nothing.
        let is_behind_crash = match &entry.user {
            User::Receives(before) => before.awaits().is_some(),
            _ => !entry.record.is_exact && entry.record.ahead < stored,
        };
        if is_behind_crash && seen == top {
            window = window.behind_crash();
        }
        let window = Arc::new(window);
        let is_exact = is_exact || seen > stored;
        entry.begin(User::Receives(Arc::clone(&window)), seen, is_exact);
        (entry.rate, entry.measured) = (rate, self.now);
        if self.peers.len() >= REMEMBERED {
            self.peers.clear();
        }
        self.peers.insert(peer(spec), place);
        if edge < stored {
            // What is on its way to the disk moves the edge of the window that was there.
            self.reserve(place, |entry| Some(entry.record.number));
        }
        window
    }

    /// Stores the edge of the replay window of an SA that is to come, unless that is done. Returns
    /// whether it would accept nothing before that is durable.
    fn prepare_window(&mut self, spec: &StateSpec, keys: &KeyMaterial, size: WindowSize) -> bool {
        let place = match self.known_receiver(spec, keys) {
            Ok(place) => place,
            // It may have to go on where another one stops, which is known when it is added.
            Err((_, kin)) if self.kin.contains_key(&kin) => return false,
            Err((digest, kin)) => self.new_receiver(digest, kin),
        };
        let Some(Some(entry)) = self.entries.get(place as usize) else { return false };
        match &entry.user {
            // It goes on with its window, or begins another one when it is there.
            User::Receives(window) => {
                let is_given_up = window.edge() < entry.record.number && entry.lowered.is_none();
                let accepts_nothing = is_given_up && window.edge() <= window.wanted();
                if is_given_up {
                    self.reserve(place, |entry| Some(entry.record.number));
                }
                accepts_nothing
            }
            _ if entry.record.is_exact => {
                self.window(spec, place, size);
                self.reserve(place, |entry| Some(ahead(entry.base, entry.wanted_ahead(0))));
                true
            }
            _ => false,
        }
    }

    /// The place of an SA that receives. A key with another SPI, VRF or destination is another SA,
    /// with numbers of its own.
    ///
    /// But packets say nothing of VRF and destination that is authenticated. So an SA that is not
    /// known goes on with the window of one of the same key and SPI that is gone: its VRF may have
    /// another name now, or the gateway another address. `tables` have the SAs that are there.
    fn receiver(&mut self, spec: &StateSpec, keys: &KeyMaterial, tables: &Tables) -> u32 {
        let is_free = |place: &u32| match self.entries.get(*place as usize) {
            Some(Some(Entry { user: User::Receives(window), .. })) => {
                !tables.sad().iter().any(|sa| Arc::ptr_eq(sa.inbound.replay_window(), window))
            }
            Some(Some(_)) => true,
            _ => false,
        };
        let (digest, kin) = match self.known_receiver(spec, keys) {
            Ok(place) => return place,
            Err(unknown) => unknown,
        };
        let gone = self.kin.get(&kin).into_iter().flatten().copied().filter(is_free);
        let number = |place: &u32| self.entries[*place as usize].as_ref().map(Entry::stopped);
        let Some(former) = gone.max_by_key(number) else {
            return self.new_receiver(digest, kin);
        };
        self.places.insert(digest, former);
        self.recognized.push(digest);
        former
    }

    /// The place of an SA that is known; otherwise its digest, and what it is recognized by.
    fn known_receiver(
        &self,
        spec: &StateSpec,
        keys: &KeyMaterial,
    ) -> Result<u32, ([u8; DIGEST_LENGTH], u64)> {
        let context = format!("receiving {:#x} to {} in {}", spec.spi, spec.destination, spec.vrf);
        let digest = keys.digest(&*self.secret, context.as_bytes());
        self.places.get(&digest).copied().ok_or_else(|| {
            let context = format!("receiving {:#x}", spec.spi);
            let kin = keys.digest(&*self.secret, context.as_bytes());
            (digest, u64::from_be_bytes(*kin.first_chunk().unwrap_or(&[0; 8])))
        })
    }

    fn new_receiver(&mut self, digest: [u8; DIGEST_LENGTH], kin: u64) -> u32 {
        let (place, _) = self.entry(digest, || kin);
        self.kin.entry(kin).or_default().push(place);
        place
    }

    fn undo(&mut self) {
        while let Some((place, former, edge)) = self.replaced.pop() {
            if let Some(Some(entry)) = self.entries.get_mut(place as usize) {
                if let User::Receives(window) = &former.user {
                    window.move_edge(edge);
                }
                entry.go_back(former);
            }
        }
        for digest in self.recognized.drain(..) {
            self.places.remove(&digest);
        }
    }

    /// Takes a place out of those that are recognized by `mask`.
    fn unlink(&mut self, mask: u64, place: u32) {
        if let Some(places) = self.kin.get_mut(&mask) {
            places.retain(|other| *other != place);
            if places.is_empty() {
                self.kin.remove(&mask);
            }
        }
    }

    /// The rate of the SA that came last from the same peer: after a rekey, that of the next one.
    fn rate_of_peer(&self, spec: &StateSpec) -> u64 {
        let place = self.peers.get(&peer(spec));
        let entry = place.and_then(|place| self.entries.get(*place as usize)?.as_ref());
        match entry {
            Some(Entry { user: User::Receives(_), rate, .. }) => *rate,
            _ => 0,
        }
    }

    /// The key with this digest, and its place. A new one gets a place.
    fn entry(
        &mut self,
        digest: [u8; DIGEST_LENGTH],
        mask: impl FnOnce() -> u64,
    ) -> (u32, &mut Entry) {
        let known = self.places.get(&digest).copied();
        let place = known.unwrap_or_else(|| {
            self.free.pop().unwrap_or_else(|| {
                self.entries.push(None);
                self.entries.len() as u32 - 1
            })
        });
        if known.is_none() {
            self.places.insert(digest, place);
            self.stamp += 1;
        }
        let stamp = self.stamp;
        let entry = self.entries[place as usize].get_or_insert_with(|| {
            let mask = mask();
            let (number, is_exact, ahead) = (0, true, 0);
            Entry::new(SequenceRecord { digest, number, is_exact, mask, stamp, ahead })
        });
        (place, entry)
    }

    /// Forgets keys that no SA has, the least recently used first, beyond those that are remembered.
    /// Their records stay where they are until another key needs the place.
    ///
    /// Not while SAs are added: at the start and in a reload, keys that have no SA yet are about to
    /// get one.
    pub(super) fn forget(&mut self) {
        if self.places.len() <= REMEMBERED {
            return;
        }
        let mut idle: Vec<_> = self
            .entries
            .iter()
            .zip(0..)
            .filter_map(|(entry, place)| Some((entry.as_ref()?, place)))
            .filter(|(entry, _)| !entry.user.is_used())
            .map(|(entry, place)| (entry.record.stamp, place))
            .collect();
        idle.sort_unstable();
        // Keys of SAs alone may be more than that.
        let excess = idle.len().saturating_sub(REMEMBERED);
        for (_, place) in idle.into_iter().take(excess) {
            if let Some(entry) = self.entries[place as usize].take() {
                self.unlink(entry.record.mask, place);
                self.free.push(place);
            }
        }
        // A place may be known by several digests.
        self.places.retain(|_, place| self.entries[*place as usize].is_some());
    }

    /// Looks at the next keys.
    fn tick(&mut self, now: Time) {
        self.now = Some(now);
        let begin = if self.next < self.entries.len() { self.next } else { 0 };
        if begin == 0 {
            self.forget();
        }
        let end = self.entries.len().min(begin + LOOKED_AT_ONCE);
        let round = self.round;
        for place in begin..end {
            let number = |entry: &mut Entry| {
                let number = entry.look(now, round);
                entry.measure(now);
                number
            };
            self.reserve(place as u32, number);
        }
        self.next = end;
    }

    /// Writes down the number that a key needs.
    fn reserve(&mut self, place: u32, number: impl FnOnce(&mut Entry) -> Option<u32>) {
        let Some(Some(entry)) = self.entries.get_mut(place as usize) else { return };
        if let Some(number) = number(entry) {
            self.stamp += 1;
            // A replay window has a lower edge before that is written down.
            let user = match number < entry.record.number {
                true => User::Nobody,
                false => entry.user.clone(),
            };
            let (stamp, ahead) = (self.stamp, entry.ahead_of(number));
            entry.record = SequenceRecord { number, is_exact: false, stamp, ahead, ..entry.record };
            self.waiting.push(Reservation { place, record: entry.record, user });
        }
    }

    /// What is to be written once nothing is sent or received any more: where each key stopped.
    fn take_last(&mut self) -> Vec<Reservation> {
        self.waiting.clear();
        for place in 0..self.entries.len() as u32 {
            self.reserve(place, |entry| {
                // Nothing has come behind a crash: that goes on to be so.
                if entry.awaits() {
                    return None;
                }
                let SequenceRecord { number, is_exact, .. } = entry.record;
                entry.last().filter(|last| *last != number || !is_exact)
            });
        }
        let mut last = std::mem::take(&mut self.waiting);
        for Reservation { record, user, .. } in &mut last {
            (record.is_exact, record.ahead, *user) = (true, 0, User::Nobody);
        }
        last
    }
}

fn peer(spec: &StateSpec) -> Peer {
    (spec.vrf.to_string(), spec.source, spec.destination)
}

/// How many keys there are, and nothing of them.
impl std::fmt::Debug for Ledger {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("Ledger").field("keys", &self.places.len()).finish_non_exhaustive()
    }
}
