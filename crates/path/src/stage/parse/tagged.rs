//! Frames with VLAN tags, of one VLAN or of many: where they came by is found out, and counted.

use arrayvec::ArrayVec;
use packet::Packet;
use tables::{Cell, Port};
use wire::common::{self, Tag};
use wire::{Origin, PortId, VrfId};

use super::{ETHERNET, Parser, Source, TAGGED, TWICE_TAGGED, fill_and_read, fill_any};
use crate::batch::{Arrival, Record};
use crate::cache::key::{self, Prefix};

/// What knows the common frames with VLAN tags of a port.
pub(super) struct Tagged<'a, 'n> {
    port: &'a Port,
    source: Source,
    /// The port's address.
    station: u64,
    parser: &'a Parser<'a, 'n>,
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
        Self { port, source, station, parser, together: true }
    }

    /// Fills in common packets with one tag or two, up to the first that is none, or whose VLAN has
    /// no port that is up. Returns how many these are. IPv4 and IPv6 take one loop.
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
        match self.together && has_many_tags::<N>(packets) {
            true => self.many::<N, LINK>(packets, records, keys),
            false => self.few::<N, LINK>(packets, records, keys),
        }
    }

    /// Of frames of which each most often has the tags of the one before.
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
        for ((packet, record), key) in packets.iter_mut().zip(records).zip(keys) {
            let length = packet.len();
            if !common::has_tags(packet.bytes(), &last) {
                let Some(tags) = common::tags(packet.bytes()) else { break };
                let Some(next) = self.enter(tags) else { break };
                entered.count(frames, bytes);
                ([frames, bytes], last, entered) = ([0; 2], tags, next);
                self.lead(&entered, &mut source);
            }
            if !self.fill::<LINK>(packet, record, key, &source) {
                break;
            }
            if entered.port == port {
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

    /// Of frames of many VLANs.
    #[inline(never)]
    fn many<const N: usize, const LINK: usize>(
        &self,
        packets: &mut [Packet],
        records: &mut [Record],
        keys: &mut [[u64; key::V6]],
    ) -> usize {
        let (mut source, mut done) = (self.source, 0);
        let rows = packets.chunks_mut(TOGETHER).zip(records.chunks_mut(TOGETHER));
        for ((packets, records), keys) in rows.zip(keys.chunks_mut(TOGETHER)) {
            let enter = |packet: &Packet| self.enter(common::tags(packet.bytes())?);
            let entered: ArrayVec<Entered<'_, N>, TOGETHER> =
                packets.iter().map_while(enter).collect();
            let rows = packets.iter_mut().zip(records).zip(keys);
            for (((packet, record), key), entered) in rows.zip(&entered) {
                let length = packet.len();
                self.lead(entered, &mut source);
                if !self.fill::<LINK>(packet, record, key, &source) {
                    return done;
                }
                if entered.port == self.port.id {
                    untag(packet, LINK);
                }
                packet.set_port(entered.port);
                entered.count(1, length as u64);
                done += 1;
            }
            if entered.len() < TOGETHER {
                break;
            }
        }
        done
    }

    #[inline(always)]
    fn fill<const LINK: usize>(
        &self,
        packet: &mut Packet,
        record: &mut Record,
        key: &mut [u64; key::V6],
        source: &Source,
    ) -> bool {
        match source.reads.is_empty() {
            true => fill_any::<LINK, false>(packet, record, key, source, self.station),
            false => fill_and_read::<LINK>(packet, record, key, source, self.station),
        }
    }

    /// Where frames with these tags come by, if the port is up. A tag without a VLAN leads nowhere.
    #[inline(always)]
    fn enter<const N: usize>(&self, tags: [Tag; N]) -> Option<Entered<'n, N>> {
        let objects = self.parser.neighbours.outputs.objects;
        let (mut parent, mut cells) = (self.port, [None; N]);
        let (mut port, mut vrf) = (parent.id, parent.spec.vrf);
        for (at, tag) in tags.into_iter().enumerate() {
            if tag.number() == 0 {
                continue;
            }
            // What is up has parents that are.
            let vlan = parent.vlans.get(tag.protocol()?, tag.number()).filter(|vlan| vlan.up)?;
            (port, vrf, cells[at]) = (vlan.port, vlan.vrf, objects.cell(vlan.received));
            cells[at].into_iter().for_each(packet::prefetch);
            if at + 1 < N {
                parent = objects.port(port)?;
            }
        }
        Some(Entered { port, vrf, cells })
    }

    /// `source` becomes where frames are from that came by there.
    #[inline(always)]
    fn lead<const N: usize>(&self, entered: &Entered<'_, N>, source: &mut Source) {
        let arrival = Arrival::new(entered.vrf, Origin::Port(entered.port));
        // Often many VLANs are in one VRF.
        if entered.vrf == source.arrival.vrf {
            (source.arrival, source.prefix) = (arrival, Prefix::new(arrival));
        } else {
            *source = Source::new(arrival, self.parser.locality);
        }
    }
}

/// Puts in front of a packet, which has a link header of `link` bytes there, an Ethernet header without its
/// priority tags, as flows may send the frame on (IEEE 802.1Q: such a frame is of no VLAN).
pub(super) fn untag(packet: &mut Packet, link: usize) {
    if let Some(frame) = packet.grow_front(link) {
        frame.copy_within(..STATIONS, link - ETHERNET);
        packet.strip(link);
    }
}

/// The two addresses that a frame begins with.
const STATIONS: usize = 12;

/// Whether frames are of many VLANs: nearly all that are begin and end with two of them.
#[inline(always)]
fn has_many_tags<const N: usize>(packets: &[Packet]) -> bool {
    let [first, .., last] = packets else { return false };
    let tags = common::tags::<N>(first.bytes());
    tags.is_some_and(|tags| !common::has_tags(last.bytes(), &tags))
}
