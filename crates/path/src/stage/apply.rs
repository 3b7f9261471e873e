//! Apply: does to each packet what was decided.
//!
//! Packets one after the other that leave in clear by one next hop and count for the same policies
//! are a run: what they have in common is done once. Whatever is not common (a hop limit that runs
//! out, a packet too large, a next hop that is not resolved) ends the run, and is handled by
//! itself, in order.
//!
//! Exits: the reason decided, `hop_limit`, `too_big`, `source_route`, `port_down`, and those of the
//! stages behind it.

use flow::{FairLimiter, Reassembled, Reassembly};
use packet::{Batch, DropReason, Packet};
use rand::rngs::StdRng;
use tables::{Event, FilterVerdict, LoggedBy, LoggedPacket, NextHopId, NextHopState};
use wire::common::Facts;
use wire::{FlowKey, Origin, PortId, SaSlot, Upper, ipv4, ipv6};

use crate::batch::{
    AS_QUOTED, Arrival, DEFRAGMENTED, FOREIGN, Known, Opening, Packets, Queues, Record, Sealing,
    longest_fragment,
};
use crate::cache::key;
use crate::cache::lookup::{Family, V4, V6};
use crate::decision::{Decision, Verdict};
use crate::encapsulation::Inner;
use crate::extension::Extensions;
use crate::host::{self, errors::IcmpError};
use crate::mss::{self, SynWay, tunnel_limit};
use crate::outputs::{Attached, Buffers, Neighbours, Objects, Outputs};
use crate::stage::runs::{ClearWay, ETHERNET, FrameWay, Run};
use crate::stage::{seal, translate};
use crate::tap::TapWriter;

/// So many changes of the policies from packet to packet, in the batch before, make two passes for
/// the counters' memory worth it.
const MANY: u32 = 16;

/// What apply may touch.
pub(crate) struct Applier<'a, 'n> {
    pub neighbours: &'a mut Neighbours<'n>,
    pub state: State<'a>,
    pub extensions: &'a mut Extensions,
    /// Where copies go, if anywhere.
    pub taps: &'a mut Option<TapWriter>,
    /// Whose packets are encrypted now, if they are copied then.
    pub tapped: Option<Known>,
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
    /// Into how many runs the last batch fell that left with VLAN tags.
    pub tagged_runs: &'a mut u32,
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
            tagged_runs: self.tagged_runs,
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
    fn add(&mut self, policies: u64, packets: u64, bytes: u64, objects: Objects<'_>) {
        if policies != self.policies {
            self.write(objects);
            *self = Self { policies, runs: self.runs + 1, ..Self::default() };
        }
        self.packets += packets;
        self.bytes += bytes;
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
    if *applier.state.tagged_runs >= MANY {
        let next_hops = || batch.records[..count].iter().map(|it| it.decision.next_hop_id());
        next_hops().for_each(|id| objects.prefetch_next_hop(id));
        next_hops().for_each(|id| objects.prefetch_counted(id));
    }
    let Packets { packets, records, v6, .. } = batch;
    let records = &records[..count];
    let (mut tally, mut limit) = (Tally::default(), Limit::default());
    let mut tagged_runs = 0;
    let (mut at, mut done) = (0, Done::default());
    while let Some(record) = records.get(at) {
        let decision = record.decision;
        if let Some(way) = ClearWay::of(&decision, objects) {
            done.go_by(way.next_hop.queue, packets, &mut applier.neighbours.outputs);
            let (packets_left, records) = (&mut packets[done.count()..], &records[at..]);
            let run = match decision.is_translated() {
                false => way.send::<false>(packets_left, records, objects),
                true => way.send::<true>(packets_left, records, objects),
            };
            if run.packets > 0 {
                at += run.packets;
                done.add_frames(run.packets, packets);
                applier.left(&run, records, &mut tally);
                let (by, packets) = (way.next_hop, run.packets as u64);
                match by.link.length() {
                    ETHERNET => applier.neighbours.outputs.count(by, packets, run.bytes),
                    // Often the next run leaves by another sub-port.
                    link => {
                        objects.count_sent_by(by, packets, run.bytes);
                        objects.count_frames(by, packets, run.bytes + packets * link as u64);
                        tagged_runs += 1;
                    }
                }
                continue;
            }
        } else if let Some(way) = FrameWay::of(&decision, objects) {
            done.go_by(way.queue, packets, &mut applier.neighbours.outputs);
            let records = &records[at..];
            let run = way.send(&mut packets[done.count()..], records);
            if run.packets > 0 {
                at += run.packets;
                done.add_frames(run.packets, packets);
                applier.left(&run, records, &mut tally);
                continue;
            }
        }
        // Copies of it would leave before the frames that are ahead of it.
        if decision.is_dropped()
            && !decision.is_copied()
            && applier.drop_in_place(&mut packets[done.count()], record, &v6[at], queues)
        {
            tally.add(decision.policies(), 1, record.facts.total_length().into(), objects);
            done.dropped += 1;
            at += 1;
            continue;
        }
        done.hand_over(packets, &mut applier.neighbours.outputs);
        // This one, and those behind it that do not leave in clear either.
        let others = records[at + 1..].iter();
        let is_run =
            |decision: &Decision| decision.is_plain_forward() || decision.is_plain_output();
        let count = 1 + others.take_while(|next| !is_run(&next.decision)).count();
        for packet in packets.drain(..count) {
            let known = known_of(&packet, &records[at], &v6[at]);
            // Policies count a packet once, at its last judgement.
            if !known.decision.is_dropped() || !is_judged_again(&known) {
                let length = known.facts.total_length().into();
                tally.add(known.decision.policies(), 1, length, objects);
            }
            applier.one(packet, &known, &mut limit, queues);
            at += 1;
        }
    }
    done.hand_over(packets, &mut applier.neighbours.outputs);
    *applier.state.tagged_runs = tagged_runs;
    tally.write(objects);
    *applier.state.policy_runs = tally.runs;
}

/// All that is known of a packet, in one place.
#[inline(always)]
fn known_of(packet: &Packet, record: &Record, v6: &[u64; key::V6]) -> Known {
    let Record { facts, decision, ref key } = *record;
    let key = match facts.is(Facts::V6) {
        true => V6::flow(v6),
        false => V4::flow(key),
    };
    Known { facts, decision, key, inner: Inner::of(packet.bytes()) }
}

/// The packets of a batch that are done, but still in it: first the frames for one queue, then what
/// was dropped among these.
///
/// So the others move up once, however many packets are dropped among those that leave.
#[derive(Default)]
struct Done {
    frames: usize,
    dropped: usize,
    queue: Option<PortId>,
}

impl Done {
    #[inline(always)]
    const fn count(&self) -> usize {
        self.frames + self.dropped
    }

    /// The frames that follow are for this queue.
    #[inline(always)]
    fn go_by(&mut self, queue: PortId, packets: &mut Box<Batch>, outputs: &mut Outputs<'_>) {
        if self.queue != Some(queue) {
            self.hand_over(packets, outputs);
            self.queue = Some(queue);
        }
    }

    /// So many packets behind those that are done have become frames.
    #[inline(always)]
    fn add_frames(&mut self, count: usize, packets: &mut Batch) {
        if self.dropped > 0 {
            let from = self.count();
            (0..count).for_each(|at| packets.swap(self.frames + at, from + at));
        }
        self.frames += count;
    }

    /// Puts the frames into the queue's outgoing batch, and takes the buffers of what was dropped
    /// back. Nothing is done then that is still in the batch.
    fn hand_over(&mut self, packets: &mut Box<Batch>, outputs: &mut Outputs<'_>) {
        let Self { frames, dropped, queue } = core::mem::take(self);
        if dropped > 0 {
            outputs.buffers.pool.give_all(packets.drain(frames..frames + dropped));
        }
        let Some(queue) = queue.filter(|_| frames > 0) else { return };
        let attached = outputs.ports.get_mut(usize::from(queue.0)).and_then(Option::as_mut);
        match attached {
            // A whole batch for one queue, as is usual.
            Some(Attached { outgoing, .. }) if outgoing.is_empty() && frames == packets.len() => {
                core::mem::swap(outgoing, packets);
                // There is always room for the next packet.
                if outgoing.is_full() {
                    outputs.transmit_full(queue);
                }
            }
            _ => packets.drain(..frames).for_each(|packet| outputs.send(packet, queue)),
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
    fn one(&mut self, packet: Packet, known: &Known, limit: &mut Limit, queues: &mut Queues) {
        match known.decision.extension() {
            None => self.handle::<false>(packet, known, limit, queues),
            Some(number) => self.extended(number, packet, known, limit, queues),
        }
    }

    /// Counts a run, which begins with the first of the records, of packets that were forwarded.
    #[inline(always)]
    fn left(&mut self, run: &Run, records: &[Record], tally: &mut Tally) {
        let (decision, packets) = (records[0].decision, run.packets as u64);
        let outputs = &mut self.neighbours.outputs;
        tally.add(decision.policies(), packets, run.bytes, outputs.objects);
        outputs.buffers.statistics.forwarded.add(packets);
        if decision.is_counted() {
            self.count_flows(run, &records[..run.packets]);
        }
    }

    /// Counts the packets of a run for the flows that they have matched, which may be others from
    /// packet to packet.
    #[inline(never)]
    fn count_flows(&mut self, run: &Run, records: &[Record]) {
        let now = self.neighbours.outputs.now;
        let number = |record: &Record| record.decision.way()[1] >> 32;
        let first = number(&records[0]);
        if records.iter().fold(0, |all, record| all | (number(record) ^ first)) == 0 {
            return self.extensions.count(first as u32, run.packets as u64, run.bytes, now);
        }
        let (mut last, mut packets, mut bytes) = (first, 0, 0);
        for record in records {
            let number = number(record);
            if number != last {
                self.extensions.count(last as u32, packets, bytes, now);
                (last, packets, bytes) = (number, 0, 0);
            }
            packets += 1;
            bytes += u64::from(record.facts.total_length());
        }
        self.extensions.count(last as u32, packets, bytes, now);
    }

    /// Drops a packet whose buffer somebody else takes back. Returns false, and does nothing, if it is to
    /// be judged once more, or refused and is of IPv6 or for another station.
    #[inline(never)]
    fn drop_in_place(
        &mut self,
        packet: &mut Packet,
        record: &Record,
        v6: &[u64; key::V6],
        queues: &mut Queues,
    ) -> bool {
        let Record { facts, decision, .. } = *record;
        let (reason, refusal) = match decision.verdict() {
            Verdict::Drop(reason) => (reason, None),
            // What tells a link-local sender of it leaves at once, behind the frames ahead.
            Verdict::Refuse(reason, refusal) if !facts.is(FOREIGN | Facts::V6) => {
                (reason, Some(refusal))
            }
            _ => return false,
        };
        let extension = decision.extension();
        let is_counted_at_most = extension.is_none() || decision.is_counted();
        if is_counted_at_most && refusal.is_none() && !is_of_no_policy(reason) {
            if let Some(number) = extension {
                let now = self.neighbours.outputs.now;
                self.extensions.count(number, 1, facts.total_length().into(), now);
            }
        } else {
            let mut known = known_of(packet, record, v6);
            if is_judged_again(&known) {
                return false;
            }
            let mut features = |number| self.features(number, packet, &mut known, queues);
            let is_tapped = extension.is_some_and(&mut features);
            if let Some(refusal) = refusal {
                self.tell_sender(packet, &known, IcmpError::Unreachable(refusal), queues);
            }
            if is_tapped {
                self.tap_drop(packet.bytes(), &known, reason);
            }
        }
        self.neighbours.outputs.buffers.statistics.drops.add(reason, 1);
        true
    }

    /// What features want of a packet beside its decision, and that.
    #[cold]
    #[inline(never)]
    fn extended(
        &mut self,
        number: u32,
        mut packet: Packet,
        known: &Known,
        limit: &mut Limit,
        queues: &mut Queues,
    ) {
        let mut known = *known;
        match self.features(number, &mut packet, &mut known, queues) {
            false => self.handle::<false>(packet, &known, limit, queues),
            true => self.handle::<true>(packet, &known, limit, queues),
        }
    }

    /// What features want of a packet beside its decision. Returns whether they want more of it while
    /// that is done.
    #[cold]
    #[inline(never)]
    fn features(
        &mut self,
        number: u32,
        packet: &mut Packet,
        known: &mut Known,
        queues: &mut Queues,
    ) -> bool {
        // Flows say the same of it once more, and count it then.
        if is_judged_again(known) && self.extensions.get(number).flows().iter().next().is_some() {
            return false;
        }
        let length = known.facts.total_length();
        self.extensions.count(number, 1, length.into(), self.neighbours.outputs.now);
        if known.decision.is_counted() {
            return false;
        }
        for slot in self.extensions.get(number).rules() {
            let outputs = &mut self.neighbours.outputs;
            let Some(rule) = outputs.objects.count_rule(slot, length.into()) else { continue };
            if !rule.spec.action.log {
                continue;
            }
            let by = LoggedBy::Rule { place: rule.spec.place, preference: rule.spec.preference };
            let verdict = rule.spec.action.verdict;
            if let Some(untold) = self.extensions.log.tell(slot.0, outputs.now) {
                let flow = known.key;
                let packet = LoggedPacket { by, verdict, flow, length, untold };
                outputs.tell(known.key.vrf, Event::Logged(packet));
            }
        }
        if self.extensions.get(number).logs {
            self.log_flows(number, known);
        }
        self.tap_ingress(packet.bytes(), known);
        // What goes through the stages again is copied and written then.
        let goes_again = known.decision.verdict() == Verdict::Reassemble || is_judged_again(known);
        if known.decision.is_copied() && !goes_again {
            self.copies(number, packet, known, queues);
        }
        if let Some(rewrite) = self.extensions.get(number).rewrite.filter(|_| !goes_again) {
            translate::write_fields(packet, known, &rewrite);
        }
        true
    }

    /// Does with copies of a packet what was decided about these, before the packet itself goes on.
    #[cold]
    fn copies(&mut self, number: u32, packet: &mut Packet, known: &Known, queues: &mut Queues) {
        for copied in self.extensions.take_copies(number) {
            let outputs = &mut self.neighbours.outputs;
            let Some(mut copy) = outputs.copy(packet) else { continue };
            outputs.buffers.statistics.copied.add(1);
            let length = u64::from(known.facts.total_length());
            for slot in copied.extension.rules() {
                outputs.objects.count_rule(slot, length);
            }
            let policies = Decision::policies_of(copied.decision.policies());
            for policy in policies.into_iter().flatten() {
                outputs.objects.count(policy, 1, length);
            }
            let mut known = Known { decision: self.extensions.begin_copy(&copied), ..*known };
            if let Some(rewrite) = copied.extension.rewrite {
                translate::write_fields(&mut copy, &mut known, &rewrite);
            }
            match known.decision.verdict() {
                // There is room for one of these for each packet.
                Verdict::Decrypt(_) | Verdict::Reassemble => {
                    self.end::<true>(copy, &known, DropReason::FlowUnsupported);
                }
                Verdict::Drop(reason) => self.end::<true>(copy, &known, reason),
                _ => self.handle::<true>(copy, &known, &mut Limit::default(), queues),
            }
        }
    }

    /// Has a packet logged for the flows that ask for it.
    #[cold]
    fn log_flows(&mut self, number: u32, known: &Known) {
        let verdict = match known.decision.verdict() {
            Verdict::Drop(_) => FilterVerdict::Drop,
            Verdict::Refuse(..) => FilterVerdict::Reject,
            _ => FilterVerdict::Pass,
        };
        let matched = *self.extensions.get(number).flows();
        for id in matched.iter() {
            let outputs = &mut self.neighbours.outputs;
            if !outputs.objects.logs_flow(id) {
                continue;
            }
            if let Some(untold) = self.extensions.log.tell(id.0, outputs.now) {
                let (by, flow) = (LoggedBy::Flow(id), known.key);
                let length = known.facts.total_length();
                let packet = LoggedPacket { by, verdict, flow, length, untold };
                outputs.tell(known.key.vrf, Event::Logged(packet));
            }
        }
    }

    /// Does what was decided to a packet, which has an `EXTENSION` or none.
    #[inline(always)]
    fn handle<const EXTENSION: bool>(
        &mut self,
        mut packet: Packet,
        known: &Known,
        limit: &mut Limit,
        queues: &mut Queues,
    ) {
        if known.facts.is(FOREIGN) && known.decision.verdict().is_routed() {
            return self.end::<EXTENSION>(packet, known, DropReason::LinkNotForUs);
        }
        match known.decision.verdict() {
            Verdict::Forward(next_hop) => {
                let limit = self.neighbours.outputs.objects.next_hop(next_hop).map(|hop| hop.mtu);
                self.send_on::<EXTENSION>(packet, known, None, (next_hop, limit), queues);
            }
            Verdict::Protect(slot, next_hop) => {
                let limit = self.tunnel_limit(known.decision, slot, next_hop, limit);
                self.send_on::<EXTENSION>(packet, known, Some(slot), (next_hop, limit), queues);
            }
            Verdict::Decrypt(slot) => {
                let Upper::Spi(spi) = known.key.upper else {
                    return self.end::<EXTENSION>(packet, known, DropReason::EspNoSa);
                };
                packet.strip(usize::from(known.facts.upper_offset()));
                let order = queues.opening.len() as u16;
                let outer_traffic_class = known.inner.traffic_class;
                queues.opening.push(Opening { packet, slot, spi, order, outer_traffic_class });
            }
            Verdict::Drop(_) if is_judged_again(known) => {
                let arrival = Arrival {
                    as_quoted: true,
                    largest_fragment: match known.facts.is(DEFRAGMENTED) {
                        true => longest_fragment(known.facts),
                        false => 0,
                    },
                    foreign: known.facts.is(FOREIGN),
                    ..Arrival::new(known.key.vrf, known.key.origin)
                };
                self.again(packet, arrival, queues);
            }
            Verdict::Drop(reason) => self.end::<EXTENSION>(packet, known, reason),
            Verdict::Refuse(reason, refusal) => {
                self.tell_sender(&packet, known, IcmpError::Unreachable(refusal), queues);
                self.end::<EXTENSION>(packet, known, reason);
            }
            Verdict::Reassemble => self.reassemble(packet, known, queues),
            Verdict::Deliver => host::deliver(self, packet, known, queues),
            Verdict::Output(port) => self.output::<EXTENSION>(packet, known, port),
            Verdict::Flood => self.flood::<EXTENSION>(packet, known),
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
            let limit = tunnel_limit(objects, slot, mtu);
            *last = Limit { way, limit };
        }
        Some(last.limit)
    }

    /// Sends a packet on, in clear or by an SA, unless its hop limit or its size forbid it.
    fn send_on<const EXTENSION: bool>(
        &mut self,
        mut packet: Packet,
        known: &Known,
        slot: Option<SaSlot>,
        (next_hop, limit): (NextHopId, Option<u16>),
        queues: &mut Queues,
    ) {
        let state = self.neighbours.outputs.objects.next_hop(next_hop).map(|hop| hop.state);
        let (Some(limit), Some(state)) = (limit, state) else {
            return self.end::<EXTENSION>(packet, known, DropReason::PortDown);
        };
        if state == NextHopState::Down {
            return self.end::<EXTENSION>(packet, known, DropReason::PortDown);
        }
        if !known.facts.is(Facts::OWN) {
            if known.facts.hop_limit() <= 1 {
                self.tell_sender(&packet, known, IcmpError::HopLimit, queues);
                return self.end::<EXTENSION>(packet, known, DropReason::HopLimit);
            }
            if known.facts.is(Facts::OPTIONS) && is_source_routed(packet.bytes()) {
                return self.end::<EXTENSION>(packet, known, DropReason::SourceRoute);
            }
            match known.is_v6() {
                true => ipv6::decrement_hop_limit(packet.bytes_mut()),
                false => wire::checksum::decrement_ttl_v4(packet.bytes_mut()),
            }
        }
        let way = Way { slot, next_hop, limit };
        if EXTENSION {
            self.clamp_mss(&mut packet, known, way);
        }
        if known.facts.total_length() > limit || known.facts.is(DEFRAGMENTED) {
            return self.oversize(packet, known, way, queues);
        }
        match self.translate(packet, known) {
            Ok(packet) => self.leave::<EXTENSION>(packet, known, way, queues),
            Err(packet) => self.end::<EXTENSION>(packet, known, DropReason::ConnectionGone),
        }
    }

    /// Translates a packet as its connection says, if its decision says so. Hands the packet back if
    /// the connection has ended since.
    #[inline(always)]
    pub(crate) fn translate(&mut self, packet: Packet, known: &Known) -> Result<Packet, Packet> {
        // Connections translate what is both, and flows write other fields of it.
        if known.decision.is_rewritten() && !known.decision.is_translated() {
            let extension = known.decision.extension().map(|number| self.extensions.get(number));
            return translate::rewrite(packet, known, extension.and_then(|it| it.rewrite));
        }
        match known.decision.is_translated() {
            false => Ok(packet),
            true if known.decision.has_further() => {
                let extension = known.decision.extension();
                let further = extension.map(|number| self.extensions.get(number).further);
                let objects = self.neighbours.outputs.objects;
                translate::by_all(packet, known, &further.unwrap_or_default(), objects)
            }
            true => translate::by_connection(packet, known, self.neighbours.outputs.objects),
        }
    }

    /// Lowers the MSS that a SYN announces, if ports on its way want that.
    #[cold]
    fn clamp_mss(&mut self, packet: &mut Packet, known: &Known, way: Way) {
        let extension = known.decision.extension().map(|number| self.extensions.get(number));
        let Some(mss) = extension.and_then(|extension| extension.mss) else { return };
        let outputs = &mut self.neighbours.outputs;
        let Some(next_hop) = outputs.objects.next_hop(way.next_hop) else { return };
        let (origin, is_v6) = (known.key.origin, known.is_v6());
        let (exit, slot, limit) = (next_hop.port, way.slot, way.limit);
        let way = SynWay { origin, is_v6, exit, slot, limit, mss };
        let segment = packet.bytes_mut().get_mut(usize::from(known.facts.upper_offset())..);
        if let Some(most) = mss::most(&way, outputs.objects)
            && segment.is_some_and(|segment| wire::tcp::clamp_mss(segment, most))
        {
            outputs.buffers.statistics.mss_clamped.add(1);
        }
    }

    /// The last step of a packet that fits its way, or whose tunnel must carry it in any case.
    #[inline(always)]
    pub(crate) fn leave<const EXTENSION: bool>(
        &mut self,
        packet: Packet,
        known: &Known,
        way: Way,
        queues: &mut Queues,
    ) {
        if EXTENSION {
            self.tap_egress(packet.bytes(), known);
        }
        let Some(slot) = way.slot else {
            self.neighbours.outputs.buffers.statistics.forwarded.add(1);
            return self.neighbours.emit(packet, way.next_hop, Some(known));
        };
        let is_tapped = EXTENSION && self.taps_encrypted(known);
        if queues.sealing.is_full() || is_tapped && !queues.sealing.is_empty() {
            seal::seal(&mut queues.sealing, self);
        }
        let order = queues.sealing.len() as u16;
        let is_oversize = packet.len() > usize::from(way.limit);
        let dont_fragment = known.inner.dont_fragment && !is_oversize;
        let inner = Inner { dont_fragment, ..known.inner };
        let next_hop = way.next_hop;
        queues.sealing.push(Sealing { packet, slot, order, inner, is_oversize, next_hop });
        // By itself, so that it is known whose packet it is.
        if is_tapped {
            self.tapped = Some(*known);
            seal::seal(&mut queues.sealing, self);
        }
    }

    fn reassemble(&mut self, packet: Packet, known: &Known, queues: &mut Queues) {
        let headers = known.headers(&packet);
        let Outputs { buffers: Buffers { pool, statistics, .. }, now, objects, .. } =
            &mut self.neighbours.outputs;
        let reassembly = &mut *self.state.reassembly;
        let FlowKey { vrf, origin, .. } = known.key;
        let group = objects.group_of_fragments(vrf, origin);
        let (_, waiting) = reassembly.waiting();
        let outcome = reassembly.push(*now, (&known.key, group), &headers, packet, pool);
        let (_, still_waiting) = reassembly.waiting();
        // What neither waits nor was dropped nor goes on was joined, or was there already.
        let gone_on = match &outcome {
            Reassembled::Complete { .. } => 1,
            Reassembled::Held => 0,
            Reassembled::Dropped { reason, fragments } => {
                statistics.drops.add(*reason, *fragments);
                *fragments
            }
        };
        let joined = (waiting as u64 + 1).saturating_sub(still_waiting as u64 + gone_on);
        statistics.consumed.add(joined);
        if let Reassembled::Complete { packet, largest: largest_fragment } = outcome {
            statistics.reassembled.add(1);
            let arrival = Arrival::new(known.key.vrf, known.key.origin);
            let foreign = known.facts.is(FOREIGN);
            self.again(packet, Arrival { largest_fragment, foreign, ..arrival }, queues);
        }
    }

    /// Puts a packet into the stages (again).
    pub(crate) fn again(&mut self, packet: Packet, arrival: Arrival, queues: &mut Queues) {
        if let Err(packet) = queues.again.push(packet, arrival) {
            self.drop(packet, DropReason::NoBuffer);
        }
    }

    /// Drops a packet that may have an `EXTENSION`.
    #[inline(always)]
    pub(crate) fn end<const EXTENSION: bool>(
        &mut self,
        packet: Packet,
        known: &Known,
        reason: DropReason,
    ) {
        if EXTENSION {
            self.tap_drop(packet.bytes(), known, reason);
        }
        self.drop(packet, reason);
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

/// Whether it is an ICMP error that no policy lets pass as itself: it is judged as an answer to the
/// packet that it is about.
pub(crate) fn is_judged_again(known: &Known) -> bool {
    is_judged_by_quote(&known.key, &known.decision) && !known.facts.is(AS_QUOTED)
}

/// The same of a packet of which only that is known.
pub(crate) fn is_judged_by_quote(key: &FlowKey, decision: &Decision) -> bool {
    let is_refused = matches!(decision.verdict(), Verdict::Drop(reason) if is_of_no_policy(reason));
    is_refused && is_icmp_error(key)
}

/// Whether packets are dropped for it that no policy is for.
const fn is_of_no_policy(reason: DropReason) -> bool {
    matches!(reason, DropReason::PolicyNoMatch | DropReason::PolicyWrongSelector)
}

/// Whether packets of the flow say what became of others.
fn is_icmp_error(key: &FlowKey) -> bool {
    matches!(key.upper, Upper::Icmp { kind, .. } if wire::quoted::is_error(key.protocol, kind))
}

/// Whether the gateway built the packet itself.
pub(crate) fn is_own(origin: Origin) -> bool {
    matches!(origin, Origin::Host | Origin::HostError(_) | Origin::HostProtected)
}

pub(crate) fn is_source_routed(packet: &[u8]) -> bool {
    ipv4::source_routed(packet) || ipv6::source_routed(packet)
}
