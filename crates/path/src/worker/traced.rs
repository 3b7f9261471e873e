//! Packets that traces want.
//!
//! While there is a trace, each packet that one may want takes the stages by itself, and what the
//! stages did with it is read from what they counted. They know nothing of traces, so that other
//! packets pay for nothing but one question a batch.

mod text;

use packet::{BATCH, Batch, DropReason, LinkKind, Packet};
use tables::{Port, Trace};
use wire::ethernet::{self, EtherType};
use wire::{FlowKey, Origin, PortId, Protocol, common::Facts};

use super::Stages;
use crate::batch::{AS_QUOTED, table_of};
use crate::cache::lookup::{Family, V4, V6};
use crate::decision::Decision;
use crate::follower::{Begun, Frame};
use crate::outputs::Outputs;
use crate::stage::parse::{Parser, parse_frames};
use crate::tap::{TapDirection, TapRecord};

/// Room in a port's outgoing batch that a packet finds before it is traced, so that what it becomes
/// is there to be looked at.
const ROOM: usize = BATCH / 2;

/// Traces as bits, by their position.
type Bits = u32;

/// A packet before apply.
struct Seen {
    key: FlowKey,
    length: u16,
    is_quoted: bool,
    /// Its table of the cache.
    table: usize,
    /// What the cache knew of it before: the generation, and the decision.
    entry: Option<(u64, Decision)>,
    decision: Decision,
}

/// One time through the stages.
struct Pass {
    seen: Vec<Seen>,
    parsed: Counted,
    decided: Counted,
    applied: Counted,
    sent: Vec<Frame>,
    /// What began to wait.
    begun: Begun,
    /// Whether something of it goes through the stages again.
    goes_on: bool,
}

/// What a worker has counted.
struct Marks {
    counters: Vec<(&'static str, u64)>,
    drops: Vec<u64>,
    caches: [[u64; 6]; 4],
    /// Frames in the ports' outgoing batches.
    outgoing: Vec<usize>,
}

/// What was counted in between.
struct Counted {
    counters: Vec<(&'static str, u64)>,
    drops: Vec<(DropReason, u64)>,
    caches: [[u64; 6]; 4],
}

/// Positions in [`Marks::caches`].
mod lookup {
    pub(super) const HITS: usize = 0;
    pub(super) const RESTAMPED: usize = 1;
    pub(super) const NEW: usize = 2;
    pub(super) const STALE: usize = 3;
    pub(super) const EVICTED: usize = 4;
    pub(super) const BYPASSED: usize = 5;
}

impl Marks {
    fn counted_since(&self, before: &Self) -> Counted {
        let counters = self.counters.iter().zip(&before.counters);
        let counters = counters.map(|((name, now), (_, then))| (*name, now - then));
        let drops = DropReason::ALL.iter().zip(self.drops.iter().zip(&before.drops));
        let drops = drops.map(|(reason, (now, then))| (*reason, now - then));
        let mut caches = self.caches;
        for (now, then) in caches.iter_mut().flatten().zip(before.caches.iter().flatten()) {
            *now -= then;
        }
        Counted {
            counters: counters.filter(|(_, count)| *count > 0).collect(),
            drops: drops.filter(|(_, count)| *count > 0).collect(),
            caches,
        }
    }
}

impl Counted {
    fn of(&self, counter: &str) -> u64 {
        self.counters.iter().find(|(name, _)| *name == counter).map_or(0, |(_, count)| *count)
    }
}

impl<'a> Stages<'a> {
    /// As [`Stages::frames`], while there are traces. The order of the packets stays.
    #[cold]
    pub(super) fn frames_with_traces(&mut self, frames: &mut Box<Batch>, port: &'a Port) {
        let mut all: Batch = core::mem::take(frames);
        for packet in all.drain(..) {
            let inside = ip_of(packet.bytes(), port.spec.link);
            let wanted = self.wanting(|trace| trace.matches(inside));
            // What is inside may be wanted.
            let may_be = is_esp(inside)
                && self.wanting(|trace| trace.is_filtered() && trace.left() > 0) != 0;
            if wanted == 0 && !may_be {
                frames.push(packet);
                continue;
            }
            if !frames.is_empty() {
                self.frames(frames, port, &mut ());
            }
            frames.push(packet);
            self.frame_with_trace(frames, port, wanted);
        }
        if !frames.is_empty() {
            self.frames(frames, port, &mut ());
        }
    }

    /// One frame through all stages, and what is told of it.
    fn frame_with_trace(&mut self, frames: &mut Box<Batch>, port: &'a Port, mut wanted: Bits) {
        self.make_room();
        let length = frames.iter().map(Packet::len).sum();
        let mut passes = Vec::new();
        let mut before = self.marks();
        let (fragments, neighbours) = (&mut *self.fragments, &mut self.neighbours);
        let mut parser = Parser { locality: self.locality, fragments, neighbours };
        parse_frames(frames, port, self.batch, &mut parser);
        for depth in 1.. {
            let parsed = self.marks();
            let mut seen = self.seen();
            for (seen, packet) in seen.iter().zip(self.batch.packets.iter()) {
                if matches!(seen.key.origin, Origin::Sa(_)) {
                    wanted |= self.wanting(|trace| trace.matches(packet.bytes()));
                }
            }
            self.neighbours.outputs.buffers.follower.begin();
            self.decide(&mut ());
            self.confirm(&mut ());
            for (seen, record) in seen.iter_mut().zip(self.batch.records.iter()) {
                seen.decision = record.decision;
            }
            let decided = self.marks();
            self.apply(&mut ());
            self.seal(&mut ());
            self.open(&mut ());
            let applied = self.marks();
            passes.push(Pass {
                seen,
                parsed: parsed.counted_since(&before),
                decided: decided.counted_since(&parsed),
                applied: applied.counted_since(&decided),
                sent: self.sent_since(&before),
                begun: self.neighbours.outputs.buffers.follower.finish(),
                goes_on: !self.queues.again.is_empty(),
            });
            if self.queues.again.is_empty() {
                break;
            }
            before = applied;
            self.parse(depth, &mut ());
        }
        let is_told = wanted != 0 && self.tell(wanted, &port.spec.name, length, &passes);
        if !is_told {
            let follower = &mut self.neighbours.outputs.buffers.follower;
            follower.forget(passes.iter().flat_map(|pass| pass.begun.tickets()));
        }
    }

    /// The traces of which something is true.
    fn wanting(&self, wants: impl Fn(&Trace) -> bool) -> Bits {
        let traces = self.tables.traces().iter().enumerate();
        traces.fold(0, |bits, (at, trace)| bits | Bits::from(wants(trace)) << at)
    }

    /// What the batch has, before it is decided.
    fn seen(&mut self) -> Vec<Seen> {
        let look = |at: usize| {
            let facts = self.batch.records[at].facts;
            let key = match facts.is(Facts::V6) {
                true => V6::flow(&self.batch.v6[at]),
                false => V4::flow(&self.batch.records[at].key),
            };
            Seen {
                key,
                length: facts.total_length(),
                is_quoted: facts.is(AS_QUOTED),
                table: table_of(facts),
                entry: self.cache.entry(self.batch, at),
                decision: Decision::NONE,
            }
        };
        (0..self.batch.len()).map(look).collect()
    }

    /// Whether a table of the cache is switched off.
    fn is_cache_off(&self, table: usize) -> bool {
        self.neighbours.outputs.buffers.statistics.caches[table].buckets.read() == 0
    }

    /// Sends what is in outgoing batches that are rather full.
    fn make_room(&mut self) {
        let outputs = &mut self.neighbours.outputs;
        for index in 0..outputs.ports.len() {
            let attached = outputs.ports[index].as_ref();
            if attached.is_some_and(|attached| attached.outgoing.len() > BATCH - ROOM) {
                outputs.transmit(PortId(index as u16));
            }
        }
    }

    fn marks(&self) -> Marks {
        let outputs = &self.neighbours.outputs;
        let statistics = outputs.buffers.statistics;
        let drops = DropReason::ALL.iter().map(|reason| statistics.drops.read(*reason));
        let cache = |at: usize| {
            let cache = &statistics.caches[at];
            let (new, stale) = (&cache.missed_new, &cache.missed_stale);
            let all =
                [&cache.hits, &cache.restamped, new, stale, &cache.missed_evicted, &cache.bypassed];
            all.map(packet::Counter::read)
        };
        let outgoing = |attached: &Option<crate::outputs::Attached>| {
            attached.as_ref().map_or(0, |attached| attached.outgoing.len())
        };
        Marks {
            counters: statistics.entries().map(|(name, _, value)| (name, value)).collect(),
            drops: drops.collect(),
            caches: core::array::from_fn(cache),
            outgoing: outputs.ports.iter().map(outgoing).collect(),
        }
    }

    /// The frames that are new in outgoing batches.
    fn sent_since(&self, before: &Marks) -> Vec<Frame> {
        let ports = self.neighbours.outputs.ports.iter().zip(&before.outgoing).enumerate();
        let mut all = Vec::new();
        for (index, (attached, was)) in ports {
            let Some(attached) = attached else { continue };
            // If it was sent meanwhile, all that is there is new.
            let new = attached.outgoing.get(*was..).unwrap_or(&attached.outgoing);
            let queue = PortId(index as u16);
            all.extend(new.iter().map(|frame| Frame::new(queue, &[], frame.bytes())));
        }
        all
    }

    /// Tells the traces that want the packet, as far as their bounds let them. Returns whether one
    /// was told.
    fn tell(&mut self, wanted: Bits, port: &str, length: usize, passes: &[Pass]) -> bool {
        let waiting = passes.iter().flat_map(|pass| pass.begun.tickets());
        let tickets: Vec<u8> = waiting.flat_map(|ticket| ticket.0.to_le_bytes()).collect();
        let mut is_told = false;
        let (tables, now) = (self.tables, self.neighbours.outputs.now);
        let is_wanted = |(at, _): &(usize, _)| wanted >> at & 1 == 1;
        let traces = tables.traces().iter().enumerate().filter(is_wanted);
        // Made once, if somebody may have it.
        let mut text = None;
        for (_, trace) in traces.filter(|(_, trace)| trace.take(now)) {
            let text = text.get_or_insert_with(|| text::of(tables, self, port, length, passes));
            let record = TapRecord {
                tap: trace.spec.id,
                time: now,
                direction: TapDirection::Traced,
                interface: port,
                comment: text,
                length: length as u32,
                bytes: &tickets,
            };
            match self.taps.as_mut().is_some_and(|writer| writer.push(&record)) {
                true => is_told = true,
                false => trace.count_lost(),
            }
        }
        is_told
    }

    /// Tells what became of traced packets that waited.
    #[cold]
    pub(super) fn tell_ends(&mut self) {
        let Outputs { buffers, now, .. } = &mut self.neighbours.outputs;
        for end in buffers.follower.take_ends() {
            let record = TapRecord {
                tap: end.ticket.0,
                time: *now,
                direction: TapDirection::Ended,
                interface: "",
                comment: &text::of_end(self.tables, &end, *now),
                length: 0,
                bytes: &[],
            };
            // Without room nobody hears of it; who waits for it does not do so for ever.
            let _ = self.taps.as_mut().is_some_and(|writer| writer.push(&record));
        }
    }
}

/// The IP packet in a frame, without padding; nothing if there is none.
fn ip_of(frame: &[u8], link: LinkKind) -> &[u8] {
    let packet = match link {
        LinkKind::Ip => frame,
        LinkKind::Ethernet => match behind_link(frame) {
            Some((EtherType::IPV4 | EtherType::IPV6, packet)) => packet,
            _ => &[],
        },
    };
    let length = match (packet.first().map(|octet| octet >> 4), packet) {
        (Some(4), [_, _, high, low, ..]) => usize::from(u16::from_be_bytes([*high, *low])),
        (Some(6), [_, _, _, _, high, low, ..]) => {
            40 + usize::from(u16::from_be_bytes([*high, *low]))
        }
        _ => 0,
    };
    &packet[..packet.len().min(length)]
}

/// What an Ethernet frame carries, behind up to two VLAN tags.
fn behind_link(frame: &[u8]) -> Option<(EtherType, &[u8])> {
    let mut at = ethernet::HEADER_LENGTH;
    loop {
        let [high, low] = *frame.get(at - 2..at)?.first_chunk()?;
        let kind = EtherType(u16::from_be_bytes([high, low]));
        let most = ethernet::HEADER_LENGTH + 2 * ethernet::VLAN_TAG_LENGTH;
        if kind.vlan_protocol().is_none() || at >= most {
            return Some((kind, &frame[at..]));
        }
        at += ethernet::VLAN_TAG_LENGTH;
    }
}

/// Whether ESP follows the IP header at once.
fn is_esp(packet: &[u8]) -> bool {
    let next = match packet.first().map(|octet| octet >> 4) {
        Some(4) => packet.get(9),
        _ => packet.get(6),
    };
    next == Some(&Protocol::ESP.0)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_packet_in_a_frame_is_found_behind_tags_and_without_padding() {
        let packet = [0x45, 0, 0, 21, 0, 0, 0, 0, 64, 50, 0, 0, 1, 2, 3, 4, 5, 6, 7, 8, 9];
        for tags in [&[][..], &[0x81, 0, 0, 5], &[0x88, 0xa8, 0, 7, 0x81, 0, 0, 5]] {
            let frame = [&[0; 12], tags, &[8, 0], &packet, &[0; 25]].concat();
            assert_eq!(ip_of(&frame, LinkKind::Ethernet), packet);
            assert!(is_esp(ip_of(&frame, LinkKind::Ethernet)));
            for end in 0..frame.len() {
                let _ = ip_of(&frame[..end], LinkKind::Ethernet);
            }
        }
        assert_eq!(ip_of(&packet, LinkKind::Ip), packet);
        let arp = [&[0; 12][..], &[8, 6], &[0x45; 30]].concat();
        assert_eq!(ip_of(&arp, LinkKind::Ethernet), []);
    }
}
