//! Apply: does to each packet what was decided.
//!
//! Packets one after the other that leave in clear by one next hop are a run: what they have in
//! common is done once. Whatever is not common (a hop limit that runs out, a packet too large, a
//! next hop that is not resolved) ends the run, and is handled by itself, in order.
//!
//! Exits: the reason decided, `hop_limit`, `too_big`, `source_route`, `port_down`, and those of the
//! stages behind it.

use flow::{FairLimiter, Reassembled, Reassembly};
use packet::{BATCH, DropReason, Packet};
use rand::rngs::StdRng;
use tables::{NextHop, NextHopId, NextHopState};
use wire::common::Facts;
use wire::{Origin, SaSlot, Upper, ipv4, ipv6};

use crate::batch::{Arrival, Known, Opening, Packets, Queues, Record, Sealing};
use crate::cache::lookup::{Family, V4, V6};
use crate::decision::{Decision, Verdict, code};
use crate::encapsulation::{Inner, inner_limit};
use crate::host::{self, errors::IcmpError};
use crate::outputs::{Attached, Buffers, Neighbours, Objects, Outputs};
use crate::stage::seal;

/// So many changes of the policies from packet to packet, in the batch before, make two passes for
/// the counters' memory worth it.
const MANY: u32 = 16;

/// Length of an Ethernet header.
const ETHERNET: usize = 14;

/// What apply may touch.
pub(crate) struct Applier<'a, 'n> {
    pub neighbours: &'a mut Neighbours<'n>,
    pub state: State<'a>,
}

/// What a worker keeps between batches for apply and seal.
pub(crate) struct State<'a> {
    pub reassembly: &'a mut Reassembly,
    /// Of ICMP errors.
    pub errors: &'a mut FairLimiter,
    pub randomness: &'a mut StdRng,
    /// Of outer IPv4 headers.
    pub identification: &'a mut u16,
    /// How often the policies changed from one packet of the last batch to the next.
    pub policy_runs: &'a mut u32,
}

impl State<'_> {
    /// The same, for a shorter time.
    pub(crate) fn reborrow(&mut self) -> State<'_> {
        State {
            reassembly: self.reassembly,
            errors: self.errors,
            randomness: self.randomness,
            identification: self.identification,
            policy_runs: self.policy_runs,
        }
    }
}

/// Packets of a batch one after the other that count for the same policies. Written once for all,
/// as the next addition would wait for the last.
#[derive(Default)]
struct Tally {
    policies: u64,
    packets: u64,
    bytes: u64,
    runs: u32,
}

impl Tally {
    #[inline(always)]
    fn add(&mut self, policies: u64, bytes: u16, objects: Objects<'_>) {
        if policies != self.policies {
            self.write(objects);
            *self = Self { policies, runs: self.runs + 1, ..Self::default() };
        }
        self.packets += 1;
        self.bytes += u64::from(bytes);
    }

    fn write(&self, objects: Objects<'_>) {
        for policy in Decision::policies_of(self.policies).into_iter().flatten() {
            objects.count(policy, self.packets, self.bytes);
        }
    }
}

/// What packets of one tunnel by one next hop may be as large as, remembered for the next packet.
#[derive(Clone, Copy, Default)]
struct Limit {
    way: [u64; 2],
    limit: u16,
}

/// Does what was decided. Leaves the batch empty.
pub(crate) fn apply(batch: &mut Packets, queues: &mut Queues, applier: &mut Applier<'_, '_>) {
    let objects = applier.neighbours.outputs.objects;
    let count = batch.len();
    if *applier.state.policy_runs >= MANY {
        prefetch_counters(objects, &batch.records[..count]);
    }
    let mut packets = core::mem::take(&mut batch.packets).into_iter();
    let (mut tally, mut limit) = (Tally::default(), Limit::default());
    let mut at = 0;
    while at < count {
        let decision = batch.records[at].decision;
        if decision.code() == code::FORWARD {
            let run = batch.records[at..count].iter();
            let outputs = &mut applier.neighbours.outputs;
            let done = forward(run, &mut packets, &decision, &mut tally, outputs);
            at += done;
            if done > 0 {
                continue;
            }
        }
        let Some(packet) = packets.next() else { break };
        let facts = batch.records[at].facts;
        tally.add(decision.policies(), facts.total_length(), objects);
        let key = match facts.is(Facts::V6) {
            true => V6::flow(V6::key(batch, at as u8)),
            false => V4::flow(V4::key(batch, at as u8)),
        };
        let inner = Inner::of(packet.bytes());
        let known = Known { facts, decision, key, inner };
        applier.one(packet, &known, &mut limit, queues);
        at += 1;
    }
    tally.write(objects);
    *applier.state.policy_runs = tally.runs;
}

/// Sends packets in clear that leave by the next hop of `decision`, up to the first that is not
/// common. Returns how many these were.
#[inline(always)]
fn forward<'r>(
    run: impl Iterator<Item = &'r Record>,
    packets: &mut arrayvec::IntoIter<Packet, BATCH>,
    decision: &Decision,
    tally: &mut Tally,
    outputs: &mut Outputs<'_>,
) -> usize {
    let Outputs { ports, buffers, objects, .. } = outputs;
    let objects = *objects;
    let Some(next_hop) = objects.next_hop(decision.next_hop_id()) else { return 0 };
    let is_plain =
        next_hop.state == NextHopState::Resolved && usize::from(next_hop.header_length) == ETHERNET;
    let port = next_hop.port;
    let Some(Some(Attached { outgoing, .. })) = ports.get_mut(usize::from(port.0)) else {
        return 0;
    };
    if !is_plain {
        return 0;
    }
    let (way, mtu, header) = (decision.way(), next_hop.mtu, LinkHeader::of(next_hop));
    let mut done = 0;
    for record in run.take(outgoing.remaining_capacity()) {
        let facts = record.facts;
        let is_common = record.decision.way() == way
            && facts.hop_limit() > 1
            && !facts.is(Facts::OPTIONS | Facts::OWN)
            && facts.total_length() <= mtu;
        let Some(mut packet) = (if is_common { packets.next() } else { None }) else { break };
        tally.add(record.decision.policies(), facts.total_length(), objects);
        if packet.prepend(ETHERNET).is_some() {
            header.write(packet.bytes_mut(), facts.is(Facts::V6));
            outgoing.push(packet);
        } else {
            buffers.drop(packet, DropReason::EspNoRoom);
        }
        done += 1;
    }
    buffers.statistics.forwarded.add(done as u64);
    if outgoing.is_full() {
        outputs.transmit(port);
    }
    done
}

/// An Ethernet header as two words that overlap: bytes 0 to 7 and 6 to 13.
#[derive(Clone, Copy)]
struct LinkHeader {
    first: [u8; 8],
    last: [u8; 8],
}

impl LinkHeader {
    fn of(next_hop: &NextHop) -> Self {
        let header = &next_hop.header;
        let mut words = Self { first: [0; 8], last: [0; 8] };
        words.first.copy_from_slice(&header[..8]);
        words.last.copy_from_slice(&header[6..ETHERNET]);
        words
    }

    /// Writes it to the front of a frame whose IP header stands behind, and takes one from that
    /// one's hop limit.
    #[inline(always)]
    fn write(self, frame: &mut [u8], is_v6: bool) {
        let Some(front) = frame.first_chunk_mut::<{ ETHERNET + ipv4::HEADER_LENGTH }>() else {
            return;
        };
        front[..8].copy_from_slice(&self.first);
        front[6..ETHERNET].copy_from_slice(&self.last);
        if is_v6 {
            front[ETHERNET + 7] = front[ETHERNET + 7].wrapping_sub(1);
        } else {
            let (_, header) = front.split_at_mut(ETHERNET);
            wire::checksum::decrement_ttl_v4(header);
        }
    }
}

/// Asks for all that counting a batch's packets will touch, so that the waits overlap.
fn prefetch_counters(objects: Objects<'_>, records: &[Record]) {
    let policies = || {
        let words = records.iter().map(|record| record.decision.policies());
        words.flat_map(Decision::policies_of).flatten()
    };
    policies().for_each(|policy| objects.prefetch_policy(policy));
    policies().for_each(|policy| objects.prefetch_counters(policy));
}

impl Applier<'_, '_> {
    /// Does what was decided to one packet, whatever that is.
    #[inline(never)]
    fn one(&mut self, mut packet: Packet, known: &Known, limit: &mut Limit, queues: &mut Queues) {
        match known.decision.verdict() {
            Verdict::Forward(next_hop) => {
                let limit = self.neighbours.outputs.objects.next_hop(next_hop).map(|hop| hop.mtu);
                self.send_on(packet, known, None, (next_hop, limit), queues);
            }
            Verdict::Protect(slot, next_hop) => {
                let limit = self.tunnel_limit(known.decision, slot, next_hop, limit);
                self.send_on(packet, known, Some(slot), (next_hop, limit), queues);
            }
            Verdict::Decrypt(slot) => {
                let Upper::Spi(spi) = known.key.upper else {
                    return self.drop(packet, DropReason::EspNoSa);
                };
                packet.strip(usize::from(known.facts.upper_offset()));
                let order = queues.opening.len() as u16;
                let outer_traffic_class = known.inner.traffic_class;
                queues.opening.push(Opening { packet, slot, spi, order, outer_traffic_class });
            }
            Verdict::Drop(reason) => self.drop(packet, reason),
            Verdict::Refuse(reason, refusal) => {
                self.tell_sender(&packet, known, IcmpError::Unreachable(refusal), queues);
                self.drop(packet, reason);
            }
            Verdict::Reassemble => self.reassemble(packet, known, queues),
            Verdict::Deliver => host::deliver(self, packet, known, queues),
        }
    }

    /// The largest packet that fits the tunnel by this next hop.
    fn tunnel_limit(
        &self,
        decision: Decision,
        slot: SaSlot,
        next_hop: NextHopId,
        last: &mut Limit,
    ) -> Option<u16> {
        let way = decision.way();
        if last.way != way {
            let objects = self.neighbours.outputs.objects;
            let mtu = objects.next_hop(next_hop)?.mtu;
            // Without an SA, which seal will say, the packet is as good as any.
            let limit = objects.outbound(slot).map_or(mtu, |sa| inner_limit(sa, mtu));
            *last = Limit { way, limit };
        }
        Some(last.limit)
    }

    /// Sends a packet on, in clear or by an SA, unless its hop limit or its size forbid it.
    fn send_on(
        &mut self,
        mut packet: Packet,
        known: &Known,
        slot: Option<SaSlot>,
        (next_hop, limit): (NextHopId, Option<u16>),
        queues: &mut Queues,
    ) {
        let state = self.neighbours.outputs.objects.next_hop(next_hop).map(|hop| hop.state);
        let (Some(limit), Some(state)) = (limit, state) else {
            return self.drop(packet, DropReason::PortDown);
        };
        if state == NextHopState::Down {
            return self.drop(packet, DropReason::PortDown);
        }
        if !known.facts.is(Facts::OWN) {
            if known.facts.hop_limit() <= 1 {
                self.tell_sender(&packet, known, IcmpError::HopLimit, queues);
                return self.drop(packet, DropReason::HopLimit);
            }
            if known.facts.is(Facts::OPTIONS) && is_source_routed(packet.bytes()) {
                return self.drop(packet, DropReason::SourceRoute);
            }
            match known.is_v6() {
                true => ipv6::decrement_hop_limit(packet.bytes_mut()),
                false => wire::checksum::decrement_ttl_v4(packet.bytes_mut()),
            }
        }
        let way = Way { slot, next_hop, limit };
        if known.facts.total_length() > limit {
            return self.oversize(packet, known, way, queues);
        }
        self.leave(packet, known, way, queues);
    }

    /// The last step of a packet that fits its way, or whose tunnel must carry it in any case.
    pub(crate) fn leave(&mut self, packet: Packet, known: &Known, way: Way, queues: &mut Queues) {
        let Some(slot) = way.slot else {
            self.neighbours.outputs.buffers.statistics.forwarded.add(1);
            return self.neighbours.emit(packet, way.next_hop);
        };
        if queues.sealing.is_full() {
            seal::seal(&mut queues.sealing, self);
        }
        let order = queues.sealing.len() as u16;
        let is_oversize = packet.len() > usize::from(way.limit);
        let dont_fragment = known.inner.dont_fragment && !is_oversize;
        let inner = Inner { dont_fragment, ..known.inner };
        let next_hop = way.next_hop;
        queues.sealing.push(Sealing { packet, slot, order, inner, is_oversize, next_hop });
    }

    fn reassemble(&mut self, packet: Packet, known: &Known, queues: &mut Queues) {
        let headers = known.headers(&packet);
        let Outputs { buffers: Buffers { pool, statistics }, now, .. } =
            &mut self.neighbours.outputs;
        let reassembly = &mut *self.state.reassembly;
        let (_, waiting) = reassembly.waiting();
        let outcome = reassembly.push(*now, &known.key, &headers, packet, pool);
        let (_, still_waiting) = reassembly.waiting();
        // What neither waits nor was dropped nor goes on was joined, or was there already.
        let gone_on = match &outcome {
            Reassembled::Complete(_) => 1,
            Reassembled::Held => 0,
            Reassembled::Dropped { reason, fragments } => {
                statistics.drops.add(*reason, *fragments);
                *fragments
            }
        };
        let joined = (waiting as u64 + 1).saturating_sub(still_waiting as u64 + gone_on);
        statistics.consumed.add(joined);
        if let Reassembled::Complete(packet) = outcome {
            statistics.reassembled.add(1);
            self.again(packet, Arrival { vrf: known.key.vrf, origin: known.key.origin }, queues);
        }
    }

    /// Puts a packet into the stages (again).
    pub(crate) fn again(&mut self, packet: Packet, arrival: Arrival, queues: &mut Queues) {
        if let Err(packet) = queues.again.push(packet, arrival) {
            self.drop(packet, DropReason::NoBuffer);
        }
    }

    pub(crate) fn drop(&mut self, packet: Packet, reason: DropReason) {
        self.neighbours.outputs.drop(packet, reason);
    }
}

/// By which way a packet leaves.
#[derive(Clone, Copy)]
pub(crate) struct Way {
    /// The SA that it is encrypted by, if it is.
    pub slot: Option<SaSlot>,
    pub next_hop: NextHopId,
    /// The largest packet in bytes, before it is encrypted.
    pub limit: u16,
}

/// Whether the gateway built the packet itself.
pub(crate) fn is_own(origin: Origin) -> bool {
    matches!(origin, Origin::Host | Origin::HostProtected)
}

fn is_source_routed(packet: &[u8]) -> bool {
    ipv4::source_routed(packet) || ipv6::source_routed(packet)
}
