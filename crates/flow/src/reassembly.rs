//! Reassembly of datagrams for the gateway itself.

use core::fmt;
use core::hash::Hash;
use core::time::Duration;
use std::hash::Hasher;

use arrayvec::ArrayVec;
use packet::{
    CAPACITY, DropReason, HEADROOM, LARGE_CAPACITY, MAX_FRAME, MAX_LARGE_FRAME, Packet, Pool, Time,
};
use siphasher::sip::SipHasher13;
use types::{HighestShares, Side};
use wire::{
    Addresses, FlowKey, FragmentClass, Headers, Origin, PortId, Protocol, VrfId, ipv4, ipv6,
};

use crate::deadline::Deadlines;
use crate::shares::Shares;

/// The most datagrams that are incomplete at once.
const MAX_DATAGRAMS: usize = 256;
/// The most fragments of one.
const MAX_FRAGMENTS: usize = 16;
/// The most datagrams that are incomplete at once in large buffers, of which there are few.
const MAX_LARGE: usize = 16;
/// The longest datagram in a small buffer, which it fills with its Ethernet header.
const MAX_SMALL_LENGTH: usize = MAX_FRAME - ETHERNET_HEADER;
/// The longest datagram, which fills a large buffer.
const MAX_LENGTH: usize = MAX_LARGE_FRAME - ETHERNET_HEADER;
const ETHERNET_HEADER: usize = 14;
/// RFC 791 section 3.2 suggests 15 s at least; Linux waits as long.
const LIFETIME_V4: Duration = Duration::from_secs(30);
/// RFC 8200 section 4.5.
const LIFETIME_V6: Duration = Duration::from_secs(60);
/// If in a datagram's buffer its payload begins: behind the full headroom and the shortest IPv6
/// header.
const PAYLOAD: usize = HEADROOM + ipv6::HEADER_LENGTH;
const _: () = assert!(PAYLOAD + MAX_SMALL_LENGTH <= CAPACITY);
const _: () = assert!(PAYLOAD + MAX_LENGTH <= LARGE_CAPACITY);

/// What became of a fragment.
#[derive(Debug)]
pub enum Reassembled {
    /// It was the last that was missing: here is the whole IP packet, with its lengths and IPv4
    /// checksum right and nothing left of fragmentation. In front of it stands what stood in front
    /// of the first fragment.
    Complete {
        /// The packet.
        packet: Packet,
        /// The length of its largest fragment in bytes; 0 if it came in one piece.
        largest: u16,
    },
    /// It is kept until the others are here; or it was here already, byte for byte, and was thrown
    /// away.
    Held,
    /// Fragments were dropped, their buffers are back in the pool. With
    /// [`DropReason::ReassemblyFull`] they are those of the datagram that waited longest, which
    /// made room for this one; otherwise this one, and all of its datagram.
    Dropped {
        /// Why.
        reason: DropReason,
        /// How many.
        fragments: u64,
    },
}

/// Puts fragments together (RFC 791 section 3.2, RFC 8200 section 4.5).
///
/// At most 256 datagrams are incomplete at once, each of at most 16 fragments, and each holds one
/// buffer, however many fragments it has: a small one, or a large one once it is seen that it needs
/// it, which at most 16 hold at once. If there are more, one is given up: of the VRF that has most, and of
/// the group that has most there, the one that waited longest. Fragments that overlap cost their whole datagram (RFC
/// 5722), for IPv4 as well.
///
/// Fragments of one [`Group`] alone are put together: what came in clear must not pass for protected, nor
/// what came from outside for what is inside.
pub struct Reassembly {
    hasher: SipHasher13,
    /// By place: the hash of the datagram there.
    tags: Box<[u64]>,
    places: Box<[Option<Incomplete>]>,
    deadlines: Deadlines,
    free: Vec<u16>,
    /// Fragments that are here, of all datagrams.
    fragments: usize,
    /// Datagrams in large buffers.
    large: usize,
    shares: Shares,
    highest: HighestShares,
}

/// Where fragments come from, as far as those of one datagram have that in common: they may come by several
/// ports, but not by such as are judged differently.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum Group {
    /// By any port of this side of the IPsec boundary.
    Side(Side),
    /// By any port of this zone of the firewall, and of this side.
    Zone(u16, Side),
    /// By this port alone, or by this SA.
    Origin(Origin),
}

#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
struct Datagram {
    vrf: VrfId,
    group: Group,
    addresses: Addresses,
    /// Zero for IPv6, whose fragments need not agree on it (RFC 8200 section 4.5).
    protocol: Protocol,
    identification: u32,
}

struct Incomplete {
    datagram: Datagram,
    /// The payload from [`PAYLOAD`] on; and in front of it, once it is here, the first fragment's
    /// header.
    buffer: Packet,
    /// If the header begins, once the first fragment is here.
    header: Option<usize>,
    /// Start and end of each fragment's payload.
    fragments: ArrayVec<(usize, usize), MAX_FRAGMENTS>,
    /// Bytes of payload that are here.
    present: usize,
    /// Bytes of payload in all, once the last fragment is here.
    total: Option<usize>,
    /// Which ECN codepoints were seen, by bit.
    congestion: u8,
    /// The length of the largest fragment with its headers.
    largest: u16,
    /// What stood in front of the first fragment's IP header, which is put there again: if it came
    /// in a frame, its Ethernet header.
    link: [u8; ETHERNET_HEADER],
}

impl Reassembly {
    /// How long the fragments of a datagram wait for the others.
    pub const fn lifetime(is_v6: bool) -> Duration {
        if is_v6 { LIFETIME_V6 } else { LIFETIME_V4 }
    }

    /// An empty table; `secret` keys its hash.
    pub fn new(secret: u64) -> Self {
        Self {
            hasher: SipHasher13::new_with_keys(secret, secret.rotate_left(32)),
            tags: vec![0; MAX_DATAGRAMS].into(),
            places: (0..MAX_DATAGRAMS).map(|_| None).collect(),
            deadlines: Deadlines::new(MAX_DATAGRAMS),
            free: (0..MAX_DATAGRAMS as u16).rev().collect(),
            fragments: 0,
            large: 0,
            shares: Shares::new(MAX_DATAGRAMS),
            highest: HighestShares::default(),
        }
    }

    /// From now on no VRF takes more than its highest share.
    pub fn limit(&mut self, highest: &HighestShares) {
        self.shares.limit(highest);
        self.highest = HighestShares::clone(highest);
    }

    /// Takes in a fragment. `packet` begins with the IP header, `headers` is what
    /// [`wire::headers::parse`] said of it, and `key` names its flow; fragments of other groups are of other
    /// datagrams. A packet that is no fragment is complete.
    pub fn push(
        &mut self,
        now: Time,
        (key, group): (&FlowKey, Group),
        headers: &Headers,
        mut packet: Packet,
        pool: &mut Pool,
    ) -> Reassembled {
        if headers.fragment.class == FragmentClass::Whole {
            return Reassembled::Complete { packet, largest: 0 };
        }
        let datagram = Datagram::of(key, group, headers.fragment.identification);
        let tag = self.tag(&datagram);
        let found = self.find(&datagram, tag);
        let mut evicted = 0;
        let place = match found {
            Some(place) => place,
            None => {
                let Some(buffer) = pool.take() else {
                    pool.give(packet);
                    return Reassembled::Dropped { reason: DropReason::NoBuffer, fragments: 1 };
                };
                if self.shares.is_at_highest(datagram.vrf) {
                    let own = self.oldest(|it| it.datagram.vrf == datagram.vrf);
                    evicted = own.map_or(0, |place| self.abandon(place, pool));
                } else if self.free.is_empty() {
                    evicted = self.make_place(datagram.vrf, pool);
                }
                // An abandoned place is a free one.
                let place = usize::from(self.free.pop().unwrap_or(0));
                self.tags[place] = tag;
                self.shares.take(datagram.vrf);
                self.places[place] = Some(Incomplete::new(datagram, buffer));
                let lifetime = Self::lifetime(datagram.addresses.is_v6());
                self.deadlines.set(place, Some(now + lifetime));
                place
            }
        };
        let Some(incomplete) = &mut self.places[place] else {
            pool.give(packet);
            return Reassembled::Held;
        };
        let (before, was_large) = (incomplete.fragments.len(), incomplete.buffer.is_large());
        let added = incomplete.add(headers, packet.bytes(), pool);
        if headers.fragment.class == FragmentClass::First {
            let (buffer, start, _) = packet.buffer_mut();
            if let Some(link) = start.checked_sub(ETHERNET_HEADER) {
                incomplete.link.copy_from_slice(&buffer[link..start]);
            }
        }
        self.fragments += incomplete.fragments.len() - before;
        self.large += usize::from(incomplete.buffer.is_large()) - usize::from(was_large);
        let port = packet.port();
        pool.give(packet);
        if matches!(added, Ok(false)) {
            evicted += self.abandon_large(place, datagram.vrf, pool);
        }
        match added {
            Ok(true) => self.complete(place, port),
            Err(reason) => {
                self.abandon(place, pool);
                Reassembled::Dropped { reason, fragments: before as u64 + 1 + evicted }
            }
            Ok(false) if evicted > 0 => {
                Reassembled::Dropped { reason: DropReason::ReassemblyFull, fragments: evicted }
            }
            Ok(false) => Reassembled::Held,
        }
    }

    /// Gives up datagrams that did not become whole in time (30 seconds for IPv4, 60 for IPv6), and
    /// tells how many fragments each had.
    pub fn expire(&mut self, now: Time, pool: &mut Pool, mut dropped: impl FnMut(u64)) {
        while self.deadlines.earliest().is_some_and(|due| due <= now) {
            let Some(place) = self.deadlines.first() else { break };
            dropped(self.abandon(place, pool));
        }
    }

    /// Gives up the datagrams of VRFs that are gone, and tells how many fragments each had. Another
    /// VRF may get the number of one of them.
    pub fn forget(
        &mut self,
        is_gone: impl Fn(VrfId) -> bool,
        pool: &mut Pool,
        mut dropped: impl FnMut(u64),
    ) {
        for place in 0..MAX_DATAGRAMS {
            if self.places[place].as_ref().is_some_and(|it| is_gone(it.datagram.vrf)) {
                dropped(self.abandon(place, pool));
            }
        }
    }

    /// Frees a place for a datagram of `vrf`: of the VRF that has most. Returns how many fragments were there.
    fn make_place(&mut self, vrf: VrfId, pool: &mut Pool) -> u64 {
        let largest = self.shares.gives_way_to(vrf);
        let from = largest.or_else(|| (self.shares.of(vrf) > 0).then_some(vrf));
        let place = self.oldest(|it| from.is_none_or(|vrf| it.datagram.vrf == vrf));
        place.map_or(0, |place| self.abandon(place, pool))
    }

    /// The place of one of these datagrams: of the group that has most of them, the one that waited longest.
    fn oldest(&self, is_meant: impl Fn(&Incomplete) -> bool) -> Option<usize> {
        let meant = || {
            let places = self.places.iter().enumerate();
            places.filter_map(|(place, it)| Some((place, it.as_ref().filter(|it| is_meant(it))?)))
        };
        let mut groups: ArrayVec<((VrfId, Group), usize), MAX_DATAGRAMS> = ArrayVec::new();
        for (_, incomplete) in meant() {
            let own = incomplete.datagram.owner();
            match groups.iter_mut().find(|(owner, _)| *owner == own) {
                Some((_, count)) => *count += 1,
                None => groups.push((own, 1)),
            }
        }
        let (largest, _) = groups.into_iter().max_by_key(|(_, count)| *count)?;
        let places = meant().filter(|(_, it)| it.datagram.owner() == largest);
        places.map(|(place, _)| place).min_by_key(|&place| self.deadlines.get(place))
    }

    /// When [`Reassembly::expire`] has something to do.
    #[inline]
    pub fn next_deadline(&self) -> Option<Time> {
        self.deadlines.earliest()
    }

    /// How many datagrams are incomplete, and how many fragments of them are here.
    pub fn waiting(&self) -> (usize, usize) {
        (MAX_DATAGRAMS - self.free.len(), self.fragments)
    }

    fn tag(&self, datagram: &Datagram) -> u64 {
        let mut hasher = self.hasher;
        datagram.hash(&mut hasher);
        hasher.finish()
    }

    fn find(&self, datagram: &Datagram, tag: u64) -> Option<usize> {
        let same = |place: usize| {
            self.places[place].as_ref().is_some_and(|there| there.datagram == *datagram)
        };
        (0..MAX_DATAGRAMS).find(|&place| self.tags[place] == tag && same(place))
    }

    fn complete(&mut self, place: usize, port: PortId) -> Reassembled {
        let Some(incomplete) = self.vacate(place) else { return Reassembled::Held };
        let largest = incomplete.largest;
        let mut packet = incomplete.finish();
        packet.set_port(port);
        Reassembled::Complete { packet, largest }
    }

    /// Frees a place. Returns how many fragments were there.
    fn abandon(&mut self, place: usize, pool: &mut Pool) -> u64 {
        let Some(incomplete) = self.vacate(place) else { return 0 };
        pool.give(incomplete.buffer);
        incomplete.fragments.len() as u64
    }

    /// If there are too many datagrams in large buffers, in all or of `own`, frees the place of
    /// another one than `place`: of the VRF that has most, or of `own`.
    /// Returns how many fragments were there.
    fn abandon_large(&mut self, place: usize, own: VrfId, pool: &mut Pool) -> u64 {
        let highest = self.highest.get(&own).map(|share| share.of(MAX_LARGE));
        if self.large <= highest.unwrap_or(MAX_LARGE) {
            return 0;
        }
        let mut shares = Shares::new(MAX_LARGE + 1);
        let large = self.places.iter().flatten().filter(|it| it.buffer.is_large());
        large.for_each(|incomplete| shares.take(incomplete.datagram.vrf));
        let from = match highest {
            Some(highest) if shares.of(own) > highest => Some(own),
            _ if self.large <= MAX_LARGE => return 0,
            _ => shares.largest().map(|(vrf, _)| vrf),
        };
        let own = self.places[place].as_ref().map(|it| it.datagram);
        let oldest = self.oldest(|it| {
            it.buffer.is_large()
                && from.is_none_or(|vrf| it.datagram.vrf == vrf)
                && Some(it.datagram) != own
        });
        oldest.map_or(0, |oldest| self.abandon(oldest, pool))
    }

    fn vacate(&mut self, place: usize) -> Option<Incomplete> {
        self.deadlines.set(place, None);
        let incomplete = self.places[place].take()?;
        self.fragments -= incomplete.fragments.len();
        self.shares.give_back(incomplete.datagram.vrf, 1);
        self.large -= usize::from(incomplete.buffer.is_large());
        // At most MAX_DATAGRAMS.
        self.free.push(place as u16);
        Some(incomplete)
    }
}

/// How many datagrams are incomplete.
impl fmt::Debug for Reassembly {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Reassembly").field("incomplete", &self.waiting().0).finish_non_exhaustive()
    }
}

impl Datagram {
    fn of(key: &FlowKey, group: Group, identification: u32) -> Self {
        let protocol = if key.addresses.is_v6() { Protocol(0) } else { key.protocol };
        let FlowKey { vrf, addresses, .. } = *key;
        Self { vrf, group, addresses, protocol, identification }
    }

    const fn owner(&self) -> (VrfId, Group) {
        (self.vrf, self.group)
    }
}

impl Incomplete {
    fn new(datagram: Datagram, buffer: Packet) -> Self {
        Self {
            datagram,
            buffer,
            header: None,
            fragments: ArrayVec::new(),
            present: 0,
            total: None,
            congestion: 0,
            largest: 0,
            link: [0; ETHERNET_HEADER],
        }
    }

    /// Puts a fragment where it belongs, and returns whether that was the last. An error is the
    /// datagram's end.
    fn add(
        &mut self,
        headers: &Headers,
        bytes: &[u8],
        pool: &mut Pool,
    ) -> Result<bool, DropReason> {
        let is_v6 = self.datagram.addresses.is_v6();
        let (header_length, payload_at) = match usize::from(headers.fragment_header_offset) {
            offset if is_v6 => (offset, offset + FRAGMENT_HEADER_LENGTH),
            _ => (usize::from(headers.upper_offset), usize::from(headers.upper_offset)),
        };
        let whole =
            bytes.get(..usize::from(headers.total_length)).ok_or(DropReason::IpTotalLength)?;
        let (header, payload) = match (whole.get(..header_length), whole.get(payload_at..)) {
            (Some(header), Some(payload)) => (header, payload),
            _ => return Err(DropReason::IpTotalLength),
        };
        let start = usize::from(headers.fragment.offset);
        let end = start + payload.len();
        // The datagram is as long as that at least. The first fragment's header is the one that
        // stays, and others' may be longer (RFC 8200 section 4.5).
        let last_byte = self.fragments.iter().map(|&(_, end)| end).max().unwrap_or(0);
        let header_there = match self.header {
            Some(at) => PAYLOAD - at,
            None if start == 0 => header_length,
            None if is_v6 => ipv6::HEADER_LENGTH,
            None => ipv4::HEADER_LENGTH,
        };
        let length = header_there + end.max(last_byte);
        if length > MAX_LENGTH {
            return Err(DropReason::ReassemblyTooBig);
        }

        let (buffer, ..) = self.buffer.buffer_mut();
        if self.fragments.contains(&(start, end))
            && buffer[PAYLOAD + start..PAYLOAD + end] == *payload
        {
            // RFC 8200 section 4.5: an exact duplicate may be ignored.
            return Ok(false);
        }
        if self
            .fragments
            .iter()
            .any(|&(other_start, other_end)| start < other_end && other_start < end)
        {
            return Err(DropReason::ReassemblyOverlap);
        }
        let too_far = self.total.is_some_and(|total| end > total);
        let ends_too_early = !headers.fragment.more && (self.total.is_some() || end < last_byte);
        if too_far || ends_too_early {
            return Err(DropReason::IpFragment);
        }
        if length > MAX_SMALL_LENGTH && !self.buffer.is_large() {
            if pool.longest_frame() <= MAX_FRAME {
                return Err(DropReason::ReassemblyTooBig);
            }
            self.move_to(pool.take_large().ok_or(DropReason::NoBuffer)?, last_byte, pool);
        }
        let (buffer, ..) = self.buffer.buffer_mut();
        self.fragments.try_push((start, end)).map_err(|_| DropReason::ReassemblyTooBig)?;
        buffer[PAYLOAD + start..PAYLOAD + end].copy_from_slice(payload);
        self.present += payload.len();
        self.largest = self.largest.max(headers.total_length);
        self.congestion |= 1 << (headers.traffic_class & 3);
        if !headers.fragment.more {
            self.total = Some(end);
        }
        if start == 0 {
            let at = PAYLOAD.checked_sub(header.len()).ok_or(DropReason::ReassemblyTooBig)?;
            buffer[at..PAYLOAD].copy_from_slice(header);
            if is_v6 && !close_fragment_gap(&mut buffer[at..PAYLOAD], whole[header_length]) {
                return Err(DropReason::IpExtensionChain);
            }
            self.header = Some(at);
        }

        let complete = self.total == Some(self.present);
        // RFC 3168 section 5.3: congestion that was marked on one fragment must not get lost, and
        // cannot be told to a receiver that another says knows nothing of ECN.
        if complete
            && self.congestion & (1 << CONGESTION) != 0
            && self.congestion & (1 << NOT_ECN) != 0
        {
            return Err(DropReason::IpFragment);
        }
        Ok(complete)
    }

    /// Goes on in a large buffer; of the payload, `last_byte` bytes are copied.
    fn move_to(&mut self, mut large: Packet, last_byte: usize, pool: &mut Pool) {
        let (to, ..) = large.buffer_mut();
        let (from, ..) = self.buffer.buffer_mut();
        to[..PAYLOAD + last_byte].copy_from_slice(&from[..PAYLOAD + last_byte]);
        pool.give(core::mem::replace(&mut self.buffer, large));
    }

    /// The packet, of which everything is here.
    fn finish(mut self) -> Packet {
        let (buffer, ..) = self.buffer.buffer_mut();
        let mut start = self.header.unwrap_or(PAYLOAD);
        let length = PAYLOAD - start + self.present;
        if start < HEADROOM {
            // A header with options or extensions: the next stages need the headroom.
            buffer.copy_within(start..start + length, HEADROOM);
            start = HEADROOM;
        }
        buffer[start - ETHERNET_HEADER..start].copy_from_slice(&self.link);
        let packet = &mut buffer[start..start + length];
        let congested = self.congestion & (1 << CONGESTION) != 0;
        // At most MAX_LENGTH.
        let length_field = length as u16;
        if self.datagram.addresses.is_v6() {
            packet[4..6]
                .copy_from_slice(&(length_field - ipv6::HEADER_LENGTH as u16).to_be_bytes());
            packet[1] |= if congested { CONGESTION << 4 } else { 0 };
        } else {
            packet[2..4].copy_from_slice(&length_field.to_be_bytes());
            packet[6..8].fill(0);
            packet[1] |= if congested { CONGESTION } else { 0 };
            ipv4::fill_checksum(packet);
        }
        self.buffer.set_used(start, length);
        self.buffer
    }
}

const FRAGMENT_HEADER_LENGTH: usize = 8;
/// ECN codepoints (RFC 3168 section 5).
const NOT_ECN: u8 = 0;
const CONGESTION: u8 = 3;

/// Makes the last of the headers in front of a fragment header, which is no longer there, say what
/// the fragment header said comes next. Returns false if the chain does not end there.
fn close_fragment_gap(headers: &mut [u8], next: u8) -> bool {
    // The IPv6 header's next-header field, then those of the extension headers, each first in its
    // header.
    let (mut field, mut at) = (6, ipv6::HEADER_LENGTH);
    while at < headers.len() {
        let Some(&units) = headers.get(at + 1) else { return false };
        field = at;
        at += (usize::from(units) + 1) * 8;
    }
    let ends_here = at == headers.len();
    if ends_here {
        headers[field] = next;
    }
    ends_here
}

#[cfg(test)]
mod tests;
