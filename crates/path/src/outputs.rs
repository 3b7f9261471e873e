//! What several stages share: buffers, the ports' outgoing batches, and who waits for a neighbour.
//!
//! A stage is given the parts that it uses and no more, so its signature says what it may touch.

use std::net::IpAddr;
use std::sync::Arc;

use flow::{Group, Guarantee, Held, NeighbourQueue, RateLimiter, Sender};
use packet::{Batch, DropReason, Packet, Pool, Port, PortError, Time};
use tables::{
    Cell, CellId, Event, LinkHeader, NextHop, NextHopId, NextHopState, Qdiscs, Tables, WorkerCells,
};
use wire::ethernet::{self, EtherType};
use wire::{Addresses, FlowKey, Mac, Origin, PortId, SaSlot, VrfId};

use crate::batch::Known;
use crate::cost::Early;
use crate::decide::trace::Step;
use crate::decide::{entry_link, exit_link};
use crate::decision::{Decision, Verdict};
use crate::follower::{Ending, Follower, Frame};
use crate::host::conflict::Conflicts;
use crate::host::resolve;
use crate::stage::queue::{self, Queueing};
use crate::statistics::WorkerStatistics;

/// The objects that decisions name: next hops, SA slots, policies' counters; and ports. Nothing
/// here looks a policy or a route up.
#[derive(Clone, Copy)]
pub(crate) struct Objects<'t> {
    tables: &'t Tables,
    /// Whose counters are added to.
    pub worker: usize,
    /// The worker's, if the tables know it.
    cells: Option<&'t WorkerCells>,
}

impl<'t> Objects<'t> {
    pub(crate) fn new(tables: &'t Tables, worker: usize) -> Self {
        Self { tables, worker, cells: tables.cells_of(worker) }
    }

    #[inline]
    pub(crate) fn port(&self, id: PortId) -> Option<&'t tables::Port> {
        self.tables.port(id)
    }

    /// Whose fragments a fragment may be put together with: not those of the other side of the IPsec
    /// boundary, which owes different policies, nor of another zone of the firewall. Other flows may tell
    /// any port from the others.
    pub(crate) fn group_of_fragments(&self, vrf: VrfId, origin: Origin) -> Group {
        let Origin::Port(port) = origin else { return Group::Origin(origin) };
        let side = self.tables.boundary(port).side;
        match self.tables.firewall_zone(port) {
            Some(zone) => Group::Zone(zone, side),
            None if self.tables.pipeline().has(vrf) => Group::Origin(origin),
            None => Group::Side(side),
        }
    }

    #[inline(always)]
    pub(crate) fn next_hop(&self, id: NextHopId) -> Option<&'t NextHop> {
        self.tables.next_hop(id)
    }

    /// Asks for the memory of a next hop.
    #[inline(always)]
    pub(crate) fn prefetch_next_hop(&self, id: NextHopId) {
        self.tables.prefetch_next_hop(id);
    }

    /// Asks for where packets by a next hop are counted.
    #[inline(always)]
    pub(crate) fn prefetch_counted(&self, id: NextHopId) {
        let counted = self.tables.next_hop(id).and_then(|next_hop| next_hop.counted);
        if let Some(cell) = counted.and_then(|id| self.cell(id)) {
            packet::prefetch(cell);
        }
    }

    /// The next hop of a station on a port's link.
    pub(crate) fn neighbour(&self, port: PortId, address: IpAddr) -> Option<&'t NextHop> {
        self.tables.next_hop(self.tables.on_link_next_hop(port, address)?)
    }

    /// Neighbours that were asked for and have not answered yet.
    pub(crate) fn sought(&self) -> &'t tables::Sought {
        self.tables.sought()
    }

    /// The xfrm link with this `if_id`.
    #[cold]
    pub(crate) fn xfrm_link(&self, if_id: tables::IfId) -> Option<&'t tables::Port> {
        self.tables.xfrm_link(if_id)
    }

    /// See [`Tables::joined`].
    pub(crate) fn joined(&self, vrf: VrfId) -> &'t [PortId] {
        self.tables.joined(vrf)
    }

    /// The connection table, if there is one.
    #[inline(always)]
    pub(crate) fn connections(&self) -> Option<&'t conntrack::Connections> {
        self.tables.connections().map(|connections| &**connections)
    }

    /// Counts packets for a flow.
    pub(crate) fn count_flow(&self, id: tables::FlowId, packets: u64, bytes: u64, last: Time) {
        if let Some(meter) = self.tables.flow_meter(id) {
            meter.count(self.worker, packets, bytes, last);
        }
    }

    /// Whether a flow logs packets.
    pub(crate) fn logs_flow(&self, id: tables::FlowId) -> bool {
        self.tables.flow_log(id).is_some()
    }

    /// Every queueing discipline.
    pub(crate) fn qdiscs(&self) -> &'t Arc<Qdiscs> {
        self.tables.qdiscs()
    }

    /// The slot's SAs.
    pub(crate) fn slot(&self, slot: SaSlot) -> Option<&'t tables::Slot> {
        self.tables.sad().slot(slot)
    }

    /// See [`crate::decide::has_broadcast`].
    #[cold]
    pub(crate) fn has_broadcast(&self, vrf: VrfId, addresses: &Addresses) -> bool {
        crate::decide::has_broadcast(vrf, addresses, self.tables)
    }

    /// See [`Tables::is_systems`].
    #[cold]
    pub(crate) fn is_systems(&self, address: IpAddr) -> bool {
        self.tables.is_systems(address)
    }

    /// The SA that packets of the slot are encrypted by.
    #[inline]
    pub(crate) fn outbound(&self, slot: SaSlot) -> Option<&'t tables::Sa> {
        self.tables.sad().outbound(slot).map(|sa| &**sa)
    }

    /// Counts packets for a policy.
    #[inline]
    pub(crate) fn count(&self, policy: tables::PolicySlot, packets: u64, bytes: u64) {
        if let Some(counters) = self.tables.counters_in(policy) {
            counters.add(self.worker, packets, bytes);
        }
    }

    /// Counts a packet for a rule of a filter, and returns the rule.
    pub(crate) fn count_rule(
        &self,
        rule: tables::FilterSlot,
        bytes: u64,
    ) -> Option<&'t tables::FilterRule> {
        let rule = self.tables.filter_rule(rule)?;
        rule.counters.add(self.worker, 1, bytes);
        Some(rule)
    }

    /// The taps whose bits are set.
    pub(crate) fn taps_in(&self, set: u32) -> impl Iterator<Item = &'t tables::Tap> {
        self.tables.taps_in(set)
    }

    /// The port that packets leave by.
    pub(crate) fn exit_port(&self, decision: &Decision) -> Option<&'t tables::Port> {
        match decision.verdict() {
            Verdict::Output(port) => self.port(port),
            _ => self.port(self.next_hop(decision.next_hop()?)?.port),
        }
    }

    /// The xfrm link that packets of a flow entered by, if they did by one.
    pub(crate) fn entry_link(&self, key: &FlowKey) -> Option<&'t tables::Port> {
        entry_link(*key, self.tables).map(|(_, link)| link)
    }

    /// The xfrm link that packets leave by, if they do by one.
    pub(crate) fn exit_link(&self, decision: &Decision) -> Option<&'t tables::Port> {
        exit_link(decision.outbound(), self.tables)
    }

    /// The name of a VRF, and a decision in the words of `explain`.
    pub(crate) fn words<'d>(&self, vrf: VrfId, decision: &'d Decision) -> (&'d str, Step<'d>)
    where
        't: 'd,
    {
        Step::words(vrf, decision, self.tables)
    }

    /// Where the worker counts.
    #[inline(always)]
    pub(crate) fn cell(&self, id: CellId) -> Option<&'t Cell> {
        self.cells?.get(id)
    }

    /// Adds to a cell.
    #[inline(always)]
    pub(crate) fn add(&self, id: CellId, packets: u64, bytes: u64) {
        if let Some(cell) = self.cell(id) {
            cell.add(packets, bytes);
        }
    }

    /// Counts IP packets that are sent by a next hop.
    #[inline(always)]
    pub(crate) fn count_sent_by(&self, by: &NextHop, packets: u64, bytes: u64) {
        if let Some(cell) = by.counted {
            self.add(cell, packets, bytes);
        }
    }

    /// Counts frames that are to leave by a next hop, for the sub-ports whose they are.
    #[inline(always)]
    pub(crate) fn count_frames(&self, by: &NextHop, frames: u64, bytes: u64) {
        by.frames.into_iter().flatten().for_each(|cell| self.add(cell, frames, bytes));
    }

    /// Counts frames that came by a sub-port or an xfrm link.
    pub(crate) fn count_received(&self, port: PortId, frames: u64, bytes: u64) {
        if let Some(counters) = self.tables.port_counters(port) {
            self.add(counters.received_id(), frames, bytes);
        }
    }

    /// Counts frames that are to leave by a sub-port or an xfrm link.
    pub(crate) fn count_sent(&self, port: PortId, frames: u64, bytes: u64) {
        if let Some(counters) = self.tables.port_counters(port) {
            self.add(counters.sent_id(), frames, bytes);
        }
    }

    /// As [`Objects::count_sent`], of a sub-port that may be one of a sub-port, which counts them
    /// too.
    pub(crate) fn count_sent_inner(&self, port: PortId, frames: u64, bytes: u64) {
        self.count_sent(port, frames, bytes);
        let vlan = self.tables.port(port).and_then(|port| port.spec.vlan);
        if let Some(vlan) = vlan.filter(tables::Vlan::is_inner) {
            self.count_sent(vlan.parent, frames, bytes);
        }
    }

    /// Asks for the memory where a policy's counters are named.
    #[inline]
    pub(crate) fn prefetch_policy(&self, policy: tables::PolicySlot) {
        self.tables.prefetch_policy(policy);
    }

    /// Asks for the memory of a policy's counters.
    #[inline]
    pub(crate) fn prefetch_counters(&self, policy: tables::PolicySlot) {
        if let Some(counters) = self.tables.counters_in(policy) {
            counters.prefetch(self.worker);
        }
    }

    /// See [`crate::decide::source_to`].
    pub(crate) fn source_to(&self, vrf: VrfId, port: PortId, peer: IpAddr) -> Option<IpAddr> {
        crate::decide::source_to(vrf, port, peer, self.tables)
    }

    /// See [`crate::decide::source_of_error`].
    pub(crate) fn source_of_error(&self, known: &Known, packet: &Packet) -> Option<IpAddr> {
        crate::decide::source_of_error(&known.key, &known.decision, packet.port(), self.tables)
    }
}

/// Length of the link header of frames that leave as they came.
const FRAME_HEADER: usize = ethernet::HEADER_LENGTH;

/// Whether frames come and leave by a port: one of Ethernet.
fn is_of_frames(port: &tables::Port) -> bool {
    port.spec.link == packet::LinkKind::Ethernet && port.spec.if_id.is_none()
}

/// A port's queue and what is to leave by it.
pub(crate) struct Attached {
    pub port: Box<dyn Port>,
    pub outgoing: Box<Batch>,
    pub failed: Option<PortError>,
    /// Of known neighbours that have moved without being asked.
    pub moves: RateLimiter,
    /// With stations that have addresses of ours.
    pub conflicts: Conflicts,
}

/// Neighbours of a port that may move without being asked: this many a second, and so many at once.
/// A station that takes over others' addresses announces them all together.
const MOVE_RATE: u64 = 256;
const MOVE_BURST: u64 = 256;

impl Attached {
    pub(crate) fn new(port: Box<dyn Port>) -> Self {
        let moves = RateLimiter::new(MOVE_RATE, MOVE_BURST);
        Self {
            port,
            outgoing: Box::default(),
            failed: None,
            moves,
            conflicts: Conflicts::default(),
        }
    }

    pub(crate) fn fail(&mut self, error: PortError) {
        self.failed.get_or_insert(error);
    }
}

/// A worker's queues of the ports, by the ports' numbers.
pub(crate) type Ports = Vec<Option<Attached>>;

/// Where packets come from and go to when they end.
pub(crate) struct Buffers<'a> {
    pub pool: &'a mut Pool,
    pub statistics: &'a WorkerStatistics,
    /// Traced packets that wait.
    pub follower: &'a mut Follower,
}

impl Buffers<'_> {
    /// Counts a packet as dropped and takes its buffer back.
    #[inline]
    pub(crate) fn drop(&mut self, packet: Packet, reason: DropReason) {
        self.statistics.drops.add(reason, 1);
        self.pool.give(packet);
    }

    /// The same, of a packet that has waited.
    pub(crate) fn drop_waiting(&mut self, packet: Packet, reason: DropReason) {
        self.follower.dropped(&packet, reason, false);
        self.drop(packet, reason);
    }

    /// Counts a packet as consumed and takes its buffer back.
    pub(crate) fn consume(&mut self, packet: Packet) {
        self.statistics.consumed.add(1);
        self.pool.give(packet);
    }

    /// An empty packet of at least so many bytes, for something that the gateway sends itself.
    pub(crate) fn new_packet(&mut self, port: PortId, length: usize) -> Option<Packet> {
        let Some(mut packet) = self.pool.take_for(length) else {
            self.statistics.drops.add(DropReason::NoBuffer, 1);
            return None;
        };
        packet.set_port(port);
        self.statistics.generated.add(1);
        Some(packet)
    }
}

/// The way out of the gateway.
pub(crate) struct Outputs<'a> {
    pub ports: &'a mut Ports,
    pub buffers: Buffers<'a>,
    pub events: &'a mut rtrb::Producer<Event>,
    /// Events that each VRF may always tell.
    pub guaranteed: &'a mut Guarantee,
    pub objects: Objects<'a>,
    pub queueing: &'a mut Queueing,
    pub now: Time,
    pub sent: Sent,
    /// While the round is timed: what full batches cost.
    pub early: Option<&'a Early>,
}

/// Packets one after the other that were sent by one next hop, whatever else is different about
/// them. Written once for all, as the next addition would wait for the last.
#[derive(Default)]
pub(crate) struct Sent {
    /// Where these are counted.
    by: Option<CellId>,
    packets: u64,
    bytes: u64,
}

impl Outputs<'_> {
    /// Counts IP packets that are sent by a next hop.
    #[inline(always)]
    pub(crate) fn count(&mut self, by: &NextHop, packets: u64, bytes: u64) {
        if self.sent.by != by.counted {
            self.write_counts();
            self.sent.by = by.counted;
        }
        self.sent.packets += packets;
        self.sent.bytes += bytes;
    }

    /// Writes what was counted for next hops and is not written yet. Has to be called before the
    /// round ends.
    pub(crate) fn write_counts(&mut self) {
        let Sent { by, packets, bytes } = core::mem::take(&mut self.sent);
        if let Some(by) = by {
            self.objects.add(by, packets, bytes);
        }
    }

    /// Counts a packet as dropped and takes its buffer back.
    #[inline]
    pub(crate) fn drop(&mut self, packet: Packet, reason: DropReason) {
        self.buffers.drop(packet, reason);
    }

    /// Counts a packet that has waited as dropped and takes its buffer back.
    pub(crate) fn drop_waiting(&mut self, packet: Packet, reason: DropReason) {
        self.buffers.drop_waiting(packet, reason);
    }

    /// Puts a finished frame into the outgoing batch of a port with a queue.
    #[inline]
    pub(crate) fn send(&mut self, packet: Packet, queue: PortId) {
        let Some(Some(attached)) = self.ports.get_mut(usize::from(queue.0)) else {
            return self.drop(packet, DropReason::PortDown);
        };
        attached.outgoing.push(packet);
        if attached.outgoing.is_full() {
            self.transmit_full(queue);
        }
    }

    /// Hands a port its outgoing batch in the middle of another stage.
    #[inline(never)]
    pub(crate) fn transmit_full(&mut self, queue: PortId) {
        match self.early {
            None => {
                self.transmit(queue);
            }
            Some(early) => {
                let begin = early.begin();
                let sent = self.transmit(queue);
                early.end(begin, sent);
            }
        }
    }

    /// Puts a finished frame of any port into the outgoing batch where it belongs.
    #[inline]
    pub(crate) fn send_by(&mut self, packet: Packet, port: PortId, queue: PortId) {
        if port != queue {
            self.objects.count_sent_inner(port, 1, packet.len() as u64);
        }
        self.send(packet, queue);
    }

    /// Hands a port its outgoing batch. Returns how many frames that were.
    pub(crate) fn transmit(&mut self, id: PortId) -> usize {
        let Some(Some(attached)) = self.ports.get_mut(usize::from(id.0)) else { return 0 };
        let count = attached.outgoing.len();
        if count == 0 {
            return 0;
        }
        let Buffers { pool, statistics, .. } = &mut self.buffers;
        if let Err(error) = attached.port.transmit(self.now, pool, &mut attached.outgoing) {
            statistics.drops.add(DropReason::PortDown, attached.outgoing.len() as u64);
            pool.give_all(attached.outgoing.drain(..));
            attached.fail(error);
        }
        count
    }

    /// Puts the next hop's link header in front of an IP packet and sends it. A packet whose next
    /// hop is not resolved is handed back.
    #[inline]
    pub(crate) fn send_to(&mut self, mut packet: Packet, next_hop: &NextHop) -> Result<(), Packet> {
        match next_hop.state {
            NextHopState::Resolved | NextHopState::Queued => {}
            NextHopState::Pending | NextHopState::OnLink => return Err(packet),
            NextHopState::Down => {
                self.drop(packet, DropReason::PortDown);
                return Ok(());
            }
        }
        let header = next_hop.link_header();
        let bytes = packet.len() as u64;
        match packet.prepend(header.len()) {
            Some(room) => room.copy_from_slice(header),
            None => {
                self.drop(packet, DropReason::EspNoRoom);
                return Ok(());
            }
        }
        self.count(next_hop, 1, bytes);
        match next_hop.state {
            NextHopState::Queued => queue::enqueue(self, packet, next_hop.port, header.len()),
            _ => {
                self.objects.count_frames(next_hop, 1, packet.len() as u64);
                self.send(packet, next_hop.queue);
            }
        }
        Ok(())
    }

    /// As [`Outputs::send_to`], of a packet that has waited, while there are traces.
    #[cold]
    pub(crate) fn send_followed(
        &mut self,
        packet: Packet,
        next_hop: &NextHop,
    ) -> Result<(), Packet> {
        let frame = Frame::new(next_hop.queue, next_hop.link_header(), packet.bytes());
        let drops = &self.buffers.statistics.drops;
        let reasons = [DropReason::PortDown, DropReason::EspNoRoom];
        let before = reasons.map(|reason| drops.read(reason));
        self.buffers.follower.resume(&packet);
        self.send_to(packet, next_hop)?;
        let mut dropped = reasons.into_iter().zip(before);
        let reason = dropped.find(|(reason, count)| drops.read(*reason) != *count);
        self.buffers.follower.resumed(|| match reason {
            Some((reason, _)) => Ending::Dropped { reason, is_told: false },
            None => Ending::Sent(frame),
        });
        Ok(())
    }

    /// Sends an IPv4 or IPv6 packet of our own to a station whose Ethernet address is known.
    pub(crate) fn send_packet(&mut self, port: &tables::Port, mac: Mac, mut packet: Packet) {
        let is_v6 = packet.bytes().first().is_some_and(|octet| octet >> 4 == 6);
        let ether_type = if is_v6 { EtherType::IPV6 } else { EtherType::IPV4 };
        let header = port.spec.link_header(mac, ether_type);
        match packet.prepend(header.length()) {
            Some(room) => room.copy_from_slice(header.bytes()),
            None => return self.drop(packet, DropReason::EspNoRoom),
        }
        self.send_from(port, packet, header.length());
    }

    /// Sends a frame of our own.
    pub(crate) fn send_frame(
        &mut self,
        port: &tables::Port,
        mac: Mac,
        ether_type: EtherType,
        payload: &[u8],
    ) {
        let header = port.spec.link_header(mac, ether_type);
        let length = header.length() + payload.len();
        let Some(mut packet) = self.buffers.new_packet(port.id, length) else { return };
        if let Some(room) = packet.append(length) {
            let (front, rest) = room.split_at_mut(header.length());
            front.copy_from_slice(header.bytes());
            rest.copy_from_slice(payload);
        }
        self.send_from(port, packet, header.length());
    }

    /// Sends a frame, whose header parse has stripped, by another port of Ethernet as it came.
    #[cold]
    pub(crate) fn send_frame_on(&mut self, mut packet: Packet, by: &tables::Port, to: PortId) {
        match packet.grow_front(FRAME_HEADER).is_some() {
            true => self.send_whole(packet, by, to),
            false => self.drop(packet, DropReason::LinkTruncated),
        }
    }

    /// A copy of a packet, with the link header that it came with if that is still there. `None` if there
    /// is no buffer for it, which is counted.
    #[cold]
    pub(crate) fn copy(&mut self, packet: &mut Packet) -> Option<Packet> {
        let header = if packet.grow_front(FRAME_HEADER).is_some() { FRAME_HEADER } else { 0 };
        let copy = self.buffers.new_packet(packet.port(), packet.len()).map(|mut copy| {
            if let Some(room) = copy.append(packet.len()) {
                room.copy_from_slice(packet.bytes());
            }
            copy.strip(header);
            copy
        });
        packet.strip(header);
        copy
    }

    /// The same, by all ports that flows join with its own. One takes the packet, the others copies.
    #[cold]
    pub(crate) fn flood(&mut self, mut packet: Packet, by: &tables::Port) {
        let others = || {
            let joined = self.objects.joined(by.spec.vrf).iter().copied();
            joined.filter(|port| *port != by.id)
        };
        let mut others = others();
        let Some(first) = others.next() else {
            return self.drop(packet, DropReason::FlowMiss);
        };
        if packet.grow_front(FRAME_HEADER).is_none() {
            return self.drop(packet, DropReason::LinkTruncated);
        }
        for other in others {
            let Some(mut copy) = self.buffers.new_packet(by.id, packet.len()) else { break };
            if let Some(room) = copy.append(packet.len()) {
                room.copy_from_slice(packet.bytes());
            }
            self.send_whole(copy, by, other);
        }
        self.send_whole(packet, by, first);
    }

    fn send_whole(&mut self, packet: Packet, by: &tables::Port, to: PortId) {
        let port = self.objects.port(to);
        match port.filter(|port| is_of_frames(by) && is_of_frames(port)) {
            None => self.drop(packet, DropReason::FlowUnsupported),
            Some(port) if !port.spec.up => self.drop(packet, DropReason::PortDown),
            Some(port) if packet.len() > FRAME_HEADER + usize::from(port.spec.mtu) => {
                self.drop(packet, DropReason::TooBig);
            }
            Some(port) => {
                self.buffers.statistics.forwarded.add(1);
                self.send_untagged(port, packet);
            }
        }
    }

    /// Sends a frame without tags by a port, with the tags of its VLAN if it is one.
    pub(crate) fn send_untagged(&mut self, port: &tables::Port, mut packet: Packet) {
        let Some(vlan) = &port.spec.vlan else {
            return self.send_from(port, packet, FRAME_HEADER);
        };
        let Some(frame) = ethernet::Header::parse(packet.bytes()) else {
            return self.drop(packet, DropReason::LinkTruncated);
        };
        let header =
            LinkHeader::ethernet(frame.destination, frame.source, Some(vlan), frame.ether_type);
        packet.strip(FRAME_HEADER);
        match packet.prepend(header.length()) {
            Some(room) => room.copy_from_slice(header.bytes()),
            None => return self.drop(packet, DropReason::LinkTruncated),
        }
        self.send_from(port, packet, header.length());
    }

    /// Sends a finished frame with a link header of so many bytes. As in Linux, it passes
    /// the port's queueing discipline as all others do.
    pub(crate) fn send_from(&mut self, port: &tables::Port, packet: Packet, header: usize) {
        match port.is_queued {
            true => queue::enqueue(self, packet, port.id, header),
            false => self.send_by(packet, port.id, port.queue()),
        }
    }

    /// Whether there is a queue for what [`Outputs::send_from`] sends by a port. Queueing disciplines
    /// have another worker send what this one cannot.
    pub(crate) fn may_send_from(&self, port: &tables::Port) -> bool {
        port.is_queued || matches!(self.ports.get(usize::from(port.queue().0)), Some(Some(_)))
    }

    /// Tells the control thread what no flood gives rise to.
    pub(crate) fn tell_always(&mut self, event: Event) {
        if self.events.push(event).is_err() {
            self.buffers.statistics.events_lost.add(1);
        }
    }

    /// Tells the control thread what a packet of `vrf` gave rise to. All VRFs have one half of the
    /// ring; the other is left to what each is guaranteed.
    pub(crate) fn tell(&mut self, vrf: VrfId, event: Event) {
        let is_half_free = self.events.slots() > self.events.buffer().capacity() / 2;
        let may_tell = is_half_free || self.guaranteed.allow(self.now, vrf);
        if !may_tell || self.events.push(event).is_err() {
            self.buffers.statistics.events_lost.add(1);
        }
    }
}

/// The way out, with the packets that wait for a neighbour.
pub(crate) struct Neighbours<'a> {
    pub outputs: Outputs<'a>,
    pub waiting: &'a mut NeighbourQueue,
}

impl Neighbours<'_> {
    /// Sends an IP packet by a next hop, or keeps it until that is resolved. `sender` is the VRF of
    /// who sent it, if that is not the gateway.
    #[inline]
    pub(crate) fn emit(&mut self, packet: Packet, id: NextHopId, known: Option<&Known>) {
        let Some(next_hop) = self.outputs.objects.next_hop(id) else {
            return self.outputs.drop(packet, DropReason::PortDown);
        };
        if let Err(packet) = self.outputs.send_to(packet, next_hop) {
            self.emit_later(packet, known, next_hop);
        }
    }

    #[cold]
    fn emit_later(&mut self, packet: Packet, known: Option<&Known>, next_hop: &NextHop) {
        let waiting = (packet, known.and_then(Known::sender));
        // The destination of the packet as it is now, which of an ESP packet is the tunnel's end.
        match next_hop.address.or_else(|| destination(waiting.0.bytes())) {
            Some(address) => self.wait_for(next_hop.port, address, waiting),
            None => self.outputs.drop(waiting.0, DropReason::NeighbourUnresolved),
        }
    }

    /// Keeps a packet until its next hop has answered.
    fn wait_for(&mut self, port: PortId, next_hop: IpAddr, waiting: (Packet, Option<Sender>)) {
        let Some(vrf) = self.outputs.objects.port(port).map(|port| port.spec.vrf) else {
            return self.outputs.drop(waiting.0, DropReason::PortDown);
        };
        let (now, buffers) = (self.outputs.now, &mut self.outputs.buffers);
        buffers.follower.waits(&waiting.0, now);
        let give_way = |packet, reason| buffers.drop_waiting(packet, reason);
        match self.waiting.hold(now, (vrf, port), next_hop, waiting, give_way) {
            Held::Ask => {
                if !resolve::ask(&mut self.outputs, port, next_hop) {
                    self.waiting.put_off(port, next_hop);
                }
            }
            Held::Waiting => {}
            Held::Refused(packet, reason) => self.outputs.drop_waiting(packet, reason),
        }
    }

    /// Sends a packet of our own to a station on the port's link, once its address is known.
    pub(crate) fn send_to_station(&mut self, port: PortId, station: IpAddr, packet: Packet) {
        let Some(next_hop) = self.outputs.objects.neighbour(port, station) else {
            return self.outputs.drop(packet, DropReason::PortDown);
        };
        if let Err(packet) = self.outputs.send_to(packet, next_hop) {
            self.wait_for(port, station, (packet, None));
        }
    }
}

/// The destination of an IP packet.
fn destination(packet: &[u8]) -> Option<IpAddr> {
    match packet.first()? >> 4 {
        4 => Some(IpAddr::from(*packet.get(16..)?.first_chunk::<4>()?)),
        _ => Some(IpAddr::from(*packet.get(24..)?.first_chunk::<16>()?)),
    }
}
