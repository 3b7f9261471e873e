//! Frames with VLAN tags, of one VLAN or of many: where they came by is found out, and counted.

use packet::Packet;
use tables::{Cell, Port, VlanDirectory, VlanPort, VlanProtocol};
use wire::common::{self, Tag};
use wire::{Origin, PortId, VrfId};

use super::{
    CommonAddresses, ETHERNET, Parser, Shared, Source, TAGGED, TWICE_TAGGED, fill_and_read,
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

/// Packets, and what becomes known of each.
type Rows<'r> = (&'r mut [Packet], &'r mut [Record], &'r mut [[u64; key::V6]]);

impl<'a, 'n> Tagged<'a, 'n> {
    pub(super) fn new(
        port: &'a Port,
        source: Source,
        station: u64,
        parser: &'a Parser<'a, 'n>,
    ) -> Self {
        let (locality, objects) = (parser.locality, parser.neighbours.outputs.objects);
        Self { port, source, station, locality, objects }
    }

    /// Fills in common packets with one tag or two, up to the first that is none, or whose VLAN has
    /// no port that is up. Returns how many these are.
    pub(super) fn run(
        &self,
        packets: &mut [Packet],
        records: &mut [Record],
        keys: &mut [[u64; key::V6]],
    ) -> usize {
        match self.run_of::<1, TAGGED>(packets, records, keys) {
            0 => self.run_of::<2, TWICE_TAGGED>(packets, records, keys),
            done => done,
        }
    }

    /// The same of `N` tags, which make a link header of `LINK` bytes.
    #[inline(always)]
    fn run_of<const N: usize, const LINK: usize>(
        &self,
        packets: &mut [Packet],
        records: &mut [Record],
        keys: &mut [[u64; key::V6]],
    ) -> usize {
        let done = match kinds_of_many::<N>(packets) {
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
        let (mut source, mut done) = (self.source, 0);
        let mut reads = !source.shared.reads.is_empty();
        while done < packets.len() {
            let before = (done, reads);
            let left = (&mut packets[done..], &mut records[done..], &mut keys[done..]);
            done += self.run_many::<N, LINK, u64>((first, kinds), (&mut source, &mut reads), left);
            let left = (&mut packets[done..], &mut records[done..], &mut keys[done..]);
            let from = (&mut source, &mut reads);
            done += self.run_many::<N, LINK, [u64; 4]>((first, kinds), from, left);
            if (done, reads) == before {
                break;
            }
        }
        done
    }

    /// The same of one family. `source` is that of the last frame, and `reads` becomes true with the first
    /// in whose VRF optional fields are read.
    #[inline(always)]
    fn run_many<const N: usize, const LINK: usize, A: CommonAddresses>(
        &self,
        vlans: (&VlanDirectory, [VlanProtocol; N]),
        (source, reads): (&mut Source, &mut bool),
        rows: Rows<'_>,
    ) -> usize {
        let done = match *reads {
            false => self.run_reading::<N, LINK, false, A>(vlans, source, rows),
            true => self.run_reading::<N, LINK, true, A>(vlans, source, rows),
        };
        *reads |= !source.shared.reads.is_empty();
        done
    }

    /// The same, without `READS` up to the first in whose VRF optional fields are read. Loops of their own,
    /// which are short enough for the registers.
    #[inline(never)]
    fn run_reading<const N: usize, const LINK: usize, const READS: bool, A: CommonAddresses>(
        &self,
        (first, kinds): (&VlanDirectory, [VlanProtocol; N]),
        source: &mut Source,
        (packets, records, keys): Rows<'_>,
    ) -> usize {
        let (mut of, mut done) = (*source, 0);
        for ((packet, record), key) in packets.iter_mut().zip(records).zip(keys) {
            let frame = packet.bytes();
            let Some((addresses, common)) = A::parse::<LINK>(frame, self.station) else { break };
            let Some((vlan, cells)) = self.place(first, kinds, frame) else { break };
            // Often many VLANs are in one VRF.
            if vlan.vrf != of.arrival.vrf {
                of = Source::new(Arrival::new(vlan.vrf, Origin::Port(vlan.port)), self.locality);
                if !READS && !of.shared.reads.is_empty() {
                    break;
                }
            }
            let (length, prefix) = (frame.len() as u64, of.shared.prefix.by_port(vlan.port));
            let shared = Shared { prefix, ..of.shared };
            // As `fill` does.
            packet.narrow(LINK, usize::from(common.facts.total_length()));
            addresses.write(shared.key::<READS>(&common, packet.bytes()), record, key);
            record.facts = shared.facts(common.facts);
            packet.set_port(vlan.port);
            cells.into_iter().for_each(|cell| cell.add(1, length));
            done += 1;
        }
        *source = of;
        done
    }

    /// The sub-port that a frame came by whose tags are of these kinds, and of each tag, where its frames
    /// are counted. `first` has the sub-ports of the first kind.
    #[inline(always)]
    fn place<const N: usize>(
        &self,
        first: &VlanDirectory,
        kinds: [VlanProtocol; N],
        frame: &[u8],
    ) -> Option<(VlanPort, [&'n Cell; N])> {
        let numbers = common::vlans_of(frame, kinds)?;
        let (mut vlan, received) = first.receiving(numbers[0])?;
        let mut cells = [self.objects.cell(received)?; N];
        for at in 1..N {
            // What is up has parents that are.
            let directory = self.objects.port(vlan.port)?.vlans.of_kind(kinds[at])?;
            let (inner, received) = directory.receiving(numbers[at])?;
            (vlan, cells[at]) = (inner, self.objects.cell(received)?);
        }
        Some((*vlan, cells))
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
