//! Frames with VLAN tags, of one VLAN or of many: where they came by is found out, and counted.

use packet::Packet;
use tables::{Cell, Port, VlanDirectory, VlanProtocol};
use wire::common::{self, Tag};
use wire::{Origin, PortId, VrfId};

use super::{
    CommonAddresses, ETHERNET, Parser, Shared, Source, TAGGED, TWICE_TAGGED, fill, fill_and_read,
    fill_any,
};
use crate::batch::{Arrival, Record};
use crate::cache::key::{self, Prefix};
use crate::decide::Locality;
use crate::outputs::Objects;

/// What knows the common frames with VLAN tags of a port.
pub(super) struct Tagged<'a, 'n> {
    port: &'a Port,
    source: Source,
    /// The port's address.
    station: u64,
    locality: Locality<'a>,
    objects: Objects<'n>,
    /// Whether frames of many VLANs are looked at together: until one of the batch was not common,
    /// so that what was found out in vain is bounded.
    together: bool,
}

/// Where frames of the same tags came by.
#[derive(Clone, Copy)]
struct Entered<'t, const N: usize> {
    port: PortId,
    vrf: VrfId,
    /// Of each tag that leads to a sub-port, where its frames are counted.
    cells: [Option<&'t Cell>; N],
}

impl<const N: usize> Entered<'_, N> {
    #[inline(always)]
    fn count(&self, frames: u64, bytes: u64) {
        self.cells.into_iter().flatten().for_each(|cell| cell.add(frames, bytes));
    }
}

/// Where a frame of many VLANs came by.
#[derive(Clone, Copy)]
struct Place<'t, const N: usize> {
    /// Of each of its tags, where it is counted.
    cells: [&'t Cell; N],
    shared: Shared,
    port: PortId,
}

/// Of so many frames with different tags it is found out together where they came by, so that the
/// waits for memory overlap: thousands of VLANs have thousands of cells.
const TOGETHER: usize = 16;

impl<'a, 'n> Tagged<'a, 'n> {
    pub(super) fn new(
        port: &'a Port,
        source: Source,
        station: u64,
        parser: &'a Parser<'a, 'n>,
    ) -> Self {
        let (locality, objects) = (parser.locality, parser.neighbours.outputs.objects);
        Self { port, source, station, locality, objects, together: true }
    }

    /// Fills in common packets with one tag or two, up to the first that is none, or whose VLAN has
    /// no port that is up. Returns how many these are.
    pub(super) fn run(
        &mut self,
        packets: &mut [Packet],
        records: &mut [Record],
        keys: &mut [[u64; key::V6]],
    ) -> usize {
        let done = match self.run_of::<1, TAGGED>(packets, records, keys) {
            0 => self.run_of::<2, TWICE_TAGGED>(packets, records, keys),
            done => done,
        };
        self.together &= done == packets.len();
        done
    }

    /// The same of `N` tags, which make a link header of `LINK` bytes.
    #[inline(always)]
    fn run_of<const N: usize, const LINK: usize>(
        &self,
        packets: &mut [Packet],
        records: &mut [Record],
        keys: &mut [[u64; key::V6]],
    ) -> usize {
        let done = match kinds_of_many::<N>(packets).filter(|_| self.together) {
            Some(kinds) => self.many::<N, LINK>(kinds, packets, records, keys),
            None => 0,
        };
        match done {
            0 => self.few::<N, LINK>(packets, records, keys),
            done => done,
        }
    }

    /// Of frames of which each most often has the tags of the one before. IPv4 and IPv6 take one
    /// loop.
    #[inline(never)]
    fn few<const N: usize, const LINK: usize>(
        &self,
        packets: &mut [Packet],
        records: &mut [Record],
        keys: &mut [[u64; key::V6]],
    ) -> usize {
        let mut source = self.source;
        let (mut last, mut done) = ([Tag::NONE; N], 0);
        let (port, vrf) = (self.port.id, self.port.spec.vrf);
        let mut entered = Entered { port, vrf, cells: [None; N] };
        let [mut frames, mut bytes] = [0; 2];
        let mut may_be_sent_on = self.locality.has_flows(vrf);
        for ((packet, record), key) in packets.iter_mut().zip(records).zip(keys) {
            let length = packet.len();
            if !common::has_tags(packet.bytes(), &last) {
                let Some(tags) = common::tags(packet.bytes()) else { break };
                let Some(next) = self.enter(tags) else { break };
                entered.count(frames, bytes);
                if next.vrf != entered.vrf {
                    may_be_sent_on = self.locality.has_flows(next.vrf);
                }
                ([frames, bytes], last, entered) = ([0; 2], tags, next);
                self.lead(&entered, &mut source);
            }
            if !self.fill::<LINK>(packet, record, key, &source) {
                break;
            }
            if may_be_sent_on || entered.port == port {
                untag(packet, LINK);
            }
            packet.set_port(entered.port);
            done += 1;
            frames += 1;
            bytes += length as u64;
        }
        entered.count(frames, bytes);
        done
    }

    /// Of frames of many VLANs, up to the first whose tags are of other kinds, or lead to no sub-port
    /// that is up.
    #[inline(never)]
    fn many<const N: usize, const LINK: usize>(
        &self,
        kinds: [VlanProtocol; N],
        packets: &mut [Packet],
        records: &mut [Record],
        keys: &mut [[u64; key::V6]],
    ) -> usize {
        let Some(first) = self.port.vlans.of_kind(kinds[0]) else { return 0 };
        let (nowhere, mut source, mut done) = (Cell::default(), self.source, 0);
        let mut reads = !source.shared.reads.is_empty();
        let mut may_be_sent_on = self.locality.has_flows(source.arrival.vrf);
        let place = Place { cells: [&nowhere; N], shared: source.shared, port: self.port.id };
        let mut places = [place; TOGETHER];
        let rows = packets.chunks_mut(TOGETHER).zip(records.chunks_mut(TOGETHER));
        for ((packets, records), keys) in rows.zip(keys.chunks_mut(TOGETHER)) {
            let mut entered = 0;
            for (packet, place) in packets.iter().zip(&mut places) {
                let Some(vrf) = self.place(first, kinds, packet.bytes(), place) else { break };
                // Often many VLANs are in one VRF.
                if vrf != source.arrival.vrf {
                    source =
                        Source::new(Arrival::new(vrf, Origin::Port(place.port)), self.locality);
                    reads |= !source.shared.reads.is_empty();
                    may_be_sent_on |= self.locality.has_flows(vrf);
                }
                let prefix = source.shared.prefix.by_port(place.port);
                place.shared = Shared { prefix, ..source.shared };
                entered += 1;
            }
            let fill = match reads {
                false => fill_placed::<N, LINK, false>,
                true => fill_placed::<N, LINK, true>,
            };
            let filled = fill(packets, records, keys, &places[..entered], self.station);
            if may_be_sent_on {
                packets[..filled].iter_mut().for_each(|packet| untag(packet, LINK));
            }
            done += filled;
            if filled < TOGETHER {
                break;
            }
        }
        done
    }

    /// Finds out where a frame came by whose tags are of these kinds, and asks for the memory where
    /// it is counted. `first` has the sub-ports of the first kind. Returns the VRF.
    #[inline(always)]
    fn place<const N: usize>(
        &self,
        first: &VlanDirectory,
        kinds: [VlanProtocol; N],
        frame: &[u8],
        place: &mut Place<'n, N>,
    ) -> Option<VrfId> {
        let numbers = common::vlans_of(frame, kinds)?;
        let (mut directory, mut vrf) = (first, VrfId::MAIN);
        for (at, number) in numbers.into_iter().enumerate() {
            // What is up has parents that are.
            let (vlan, received) = directory.receiving(number)?;
            let cell = self.objects.cell(received)?;
            packet::prefetch(cell);
            (place.cells[at], place.port, vrf) = (cell, vlan.port, vlan.vrf);
            if at + 1 < N {
                directory = self.objects.port(vlan.port)?.vlans.of_kind(kinds[at + 1])?;
            }
        }
        Some(vrf)
    }

    #[inline(always)]
    fn fill<const LINK: usize>(
        &self,
        packet: &mut Packet,
        record: &mut Record,
        key: &mut [u64; key::V6],
        source: &Source,
    ) -> bool {
        match source.shared.reads.is_empty() {
            true => fill_any::<LINK, false>(packet, record, key, &source.shared, self.station),
            false => fill_and_read::<LINK>(packet, record, key, &source.shared, self.station),
        }
    }

    /// Where frames with these tags come by, if the port is up. A tag without a VLAN leads nowhere.
    #[inline(always)]
    fn enter<const N: usize>(&self, tags: [Tag; N]) -> Option<Entered<'n, N>> {
        let (mut parent, mut cells) = (self.port, [None; N]);
        let (mut port, mut vrf) = (parent.id, parent.spec.vrf);
        for (at, tag) in tags.into_iter().enumerate() {
            if tag.number() == 0 {
                continue;
            }
            // What is up has parents that are.
            let vlans = parent.vlans.of_kind(tag.protocol()?)?;
            let (vlan, received) = vlans.receiving(tag.number())?;
            (port, vrf, cells[at]) = (vlan.port, vlan.vrf, self.objects.cell(received));
            if at + 1 < N {
                parent = self.objects.port(port)?;
            }
        }
        Some(Entered { port, vrf, cells })
    }

    /// `source` becomes where frames are from that came by there.
    #[inline(always)]
    fn lead<const N: usize>(&self, entered: &Entered<'_, N>, source: &mut Source) {
        let arrival = Arrival::new(entered.vrf, Origin::Port(entered.port));
        if entered.vrf == source.arrival.vrf {
            (source.arrival, source.shared.prefix) = (arrival, Prefix::new(arrival));
        } else {
            *source = Source::new(arrival, self.locality);
        }
    }
}

/// Fills in and counts common packets whose places are known, up to the first that is none. Returns
/// how many these are.
#[inline(always)]
fn fill_placed<const N: usize, const LINK: usize, const READS: bool>(
    packets: &mut [Packet],
    records: &mut [Record],
    keys: &mut [[u64; key::V6]],
    places: &[Place<'_, N>],
    station: u64,
) -> usize {
    let mut at = 0;
    while at < places.len() {
        let (left, rows) = (&mut packets[at..], &mut records[at..]);
        let (keys, places) = (&mut keys[at..], &places[at..]);
        let mut done = run_placed::<N, LINK, READS, u64>(left, rows, keys, places, station);
        if done < places.len() {
            let (left, rows) = (&mut left[done..], &mut rows[done..]);
            let (keys, places) = (&mut keys[done..], &places[done..]);
            done += run_placed::<N, LINK, READS, [u64; 4]>(left, rows, keys, places, station);
        }
        if done == 0 {
            break;
        }
        at += done;
    }
    at
}

/// The same of one family. Loops of their own, which are short enough for the registers.
#[inline(never)]
fn run_placed<const N: usize, const LINK: usize, const READS: bool, A: CommonAddresses>(
    packets: &mut [Packet],
    records: &mut [Record],
    keys: &mut [[u64; key::V6]],
    places: &[Place<'_, N>],
    station: u64,
) -> usize {
    let mut done = 0;
    let rows = packets.iter_mut().zip(records).zip(keys);
    for (((packet, record), key), place) in rows.zip(places) {
        let length = packet.len() as u64;
        if !fill::<LINK, READS, A>(packet, record, key, &place.shared, station) {
            break;
        }
        packet.set_port(place.port);
        place.cells.iter().for_each(|cell| cell.add(1, length));
        done += 1;
    }
    done
}

/// Puts in front of a packet, which has a link header of `link` bytes there, an Ethernet header without its
/// tags, as flows may send the frame on: by a port of another VLAN or of none. One that has a priority alone is
/// of no VLAN (IEEE 802.1Q).
pub(super) fn untag(packet: &mut Packet, link: usize) {
    if let Some(frame) = packet.grow_front(link) {
        frame.copy_within(..STATIONS, link - ETHERNET);
        packet.strip(link);
    }
}

/// The two addresses that a frame begins with.
const STATIONS: usize = 12;

/// The kinds of the first frame's tags, if frames are of many VLANs: nearly all that are begin and
/// end with two of them.
#[inline(always)]
fn kinds_of_many<const N: usize>(packets: &[Packet]) -> Option<[VlanProtocol; N]> {
    let [first, .., last] = packets else { return None };
    let tags = common::tags::<N>(first.bytes())?;
    if common::has_tags(last.bytes(), &tags) {
        return None;
    }
    let mut kinds = [VlanProtocol::default(); N];
    for (kind, tag) in kinds.iter_mut().zip(tags) {
        *kind = tag.protocol()?;
    }
    Some(kinds)
}
