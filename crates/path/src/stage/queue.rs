//! Queue: frames wait in the queueing disciplines of their VRF, their port and their port's parent,
//! one after the other, and leave when it is their time.
//!
//! Each discipline belongs to one worker. The others hand it their frames by rings ([`handover`]),
//! and so does it where the next discipline on a frame's way is another worker's. A flow that one
//! worker handles takes one way through the workers, and stays in order.
//!
//! Exits: `qdisc_overlimit`, `qdisc_codel`, `qdisc_too_long`, `qdisc_handover`, `qdisc_flushed`,
//! `port_down`.

mod handover;

use core::cmp::Reverse;
use core::hash::Hasher;
use std::collections::{BTreeMap, BinaryHeap, VecDeque};
use std::sync::Arc;

use packet::{CAPACITY, DropReason, LARGE_CAPACITY, Packet, Time};
use qdisc::{Discipline, Dropped, Item, Next, Settings, Slots, Statistics};
use siphasher::sip::SipHasher13;
use tables::{PlacedQdisc, QdiscCounters, QdiscDevice, QdiscNode, Qdiscs};
use wire::{PortId, Protocol, ipv4, ipv6};

pub use self::handover::{Handover, handovers};
use self::handover::{Link, hand_over};
use crate::outputs::{Buffers, Objects, Outputs};

/// No discipline, among numbers of disciplines.
const NONE: u32 = u32::MAX;
/// One of another worker, whose number is in the other bits.
const OTHERS: u32 = 1 << 31;
/// After so many frames that may not leave any more, a discipline waits for the next round.
const FLUSH_BATCH: u32 = 64;

/// A finished frame on its way to a port's link.
pub(crate) struct Queued {
    packet: Packet,
    /// By which port it leaves.
    port: PortId,
    /// [`tables::Port::since`] of then.
    since: u64,
    /// Bytes of its link header.
    header: u8,
    flow: u32,
}

impl Queued {
    /// Whether it may leave still. By a port that has moved it would leave in another VRF; by one that is
    /// gone it leaves no more, nor by another port that has its number.
    fn may_leave(&self, objects: Objects<'_>) -> bool {
        objects.port(self.port).is_some_and(|port| port.since == self.since && port.spec.up)
    }
}

impl Item for Queued {
    fn length(&self) -> u32 {
        self.packet.len() as u32
    }

    fn memory(&self) -> u32 {
        if self.packet.is_large() { LARGE_CAPACITY as u32 } else { CAPACITY as u32 }
    }

    fn flow(&self) -> u32 {
        self.flow
    }

    fn mark(&mut self) -> bool {
        match self.packet.bytes_mut().get_mut(usize::from(self.header)..) {
            Some(packet) => mark(packet),
            None => false,
        }
    }
}

/// Marks an IP packet as having met congestion, the outer header of a tunnel's. Returns false if
/// its sender does not understand that (RFC 3168 section 5).
fn mark(packet: &mut [u8]) -> bool {
    const CONGESTION: u8 = 3;
    let [first, second, ..] = *packet else { return false };
    let class = match first >> 4 {
        4 => second,
        6 => first << 4 | second >> 4,
        _ => return false,
    };
    match class & CONGESTION {
        0 => return false,
        CONGESTION => {}
        _ if first >> 4 == 4 => ipv4::set_traffic_class(packet, class | CONGESTION),
        _ => ipv6::set_traffic_class(packet, class | CONGESTION),
    }
    true
}

/// A hash of an IP packet's flow: addresses, protocol and ports, or the SPI of ESP; of fragments
/// without ports; of IPv6 with extension headers the flow label.
fn flow_of(packet: &[u8], secret: u64) -> u32 {
    let mut hasher = SipHasher13::new_with_keys(secret, !secret);
    let ports = |at: usize, protocol: u8| {
        let has_ports = [Protocol::TCP, Protocol::UDP, Protocol::ESP, Protocol::SCTP]
            .contains(&Protocol(protocol));
        packet.get(at..at + 4).filter(|_| has_ports)
    };
    match packet.first().map(|first| first >> 4) {
        Some(4) if packet.len() >= ipv4::HEADER_LENGTH => {
            let is_whole = packet[6] & 0x3f == 0 && packet[7] == 0;
            hasher.write(&packet[12..20]);
            hasher.write_u8(packet[9]);
            let at = usize::from(packet[0] & 0x0f) * 4;
            hasher.write(ports(at, packet[9]).filter(|_| is_whole).unwrap_or_default());
        }
        Some(6) if packet.len() >= ipv6::HEADER_LENGTH => {
            hasher.write(&packet[8..40]);
            hasher.write_u8(packet[6]);
            hasher.write(ports(ipv6::HEADER_LENGTH, packet[6]).unwrap_or(&packet[1..4]));
        }
        _ => {}
    }
    (hasher.finish() >> 32) as u32
}

/// A worker's part in queueing.
pub(crate) struct Queueing {
    secret: u64,
    /// The worker's number.
    index: usize,
    /// None while it works.
    owner: Option<Box<Owner>>,
    /// By worker: the rings between this one and that one.
    links: Vec<Option<Link>>,
    has_handed_over: bool,
}

impl Queueing {
    /// That of the worker number `index` with such buffers.
    pub(crate) fn new(index: usize, small: usize, large: usize, secret: u64) -> Self {
        let owner = Some(Box::new(Owner::new(index, small, large)));
        Self { secret, index, owner, links: Vec::new(), has_handed_over: false }
    }

    pub(crate) fn join(&mut self, handover: Handover) {
        self.links = handover.links;
    }

    /// Calls `wake` for each worker to which frames were handed since this was last asked.
    pub(crate) fn take_handed_over(&mut self, mut wake: impl FnMut(usize)) {
        if !core::mem::take(&mut self.has_handed_over) {
            return;
        }
        for (worker, link) in self.links.iter_mut().enumerate() {
            if link.as_mut().is_some_and(Link::take_handed_over) {
                wake(worker);
            }
        }
    }

    /// When something may leave, if something waits.
    pub(crate) fn next_deadline(&self) -> Option<Time> {
        let owner = self.owner.as_ref()?;
        match owner.ready.is_empty() {
            true => owner.waiting.peek().map(|Reverse((time, _))| Time(*time)),
            false => Some(Time(0)),
        }
    }

    /// Takes note of another snapshot's disciplines, and of what may not leave any more.
    pub(crate) fn snapshot_changed(
        &mut self,
        objects: Objects<'_>,
        now: Time,
        buffers: &mut Buffers<'_>,
    ) {
        let Some(owner) = &mut self.owner else { return };
        match Arc::ptr_eq(&owner.known, objects.qdiscs()) {
            true => owner.wake_vain(objects),
            false => owner.follow(objects.qdiscs(), now, buffers),
        }
    }
}

/// Puts a finished frame of a port into the first discipline on its way.
#[cold]
pub(crate) fn enqueue(outputs: &mut Outputs<'_>, packet: Packet, port: PortId, header: usize) {
    let payload = packet.bytes().get(header..).unwrap_or_default();
    let flow = flow_of(payload, outputs.queueing.secret);
    outputs.buffers.follower.is_queued(&packet, port, outputs.now);
    let Some(since) = outputs.objects.port(port).filter(|is| is.spec.up).map(|is| is.since) else {
        return outputs.drop_waiting(packet, DropReason::PortDown);
    };
    let item = Queued { packet, port, since, header: header as u8, flow };
    with_owner(outputs, |owner, outputs| owner.pass(item, Some(Stage::Vrf), outputs));
}

/// Takes frames that other workers have handed over, and the buffers that came back for one's own.
/// Returns how many frames.
pub(crate) fn exchange(outputs: &mut Outputs<'_>) -> usize {
    if outputs.queueing.links.is_empty() {
        return 0;
    }
    with_owner(outputs, |owner, outputs| {
        let count = outputs.queueing.links.len();
        (0..count).map(|worker| handover::take(owner, worker, outputs)).sum()
    })
}

/// Sends what may leave now. Returns how many frames have left a discipline.
pub(crate) fn send(outputs: &mut Outputs<'_>) -> usize {
    let Some(owner) = &outputs.queueing.owner else { return 0 };
    match owner.ready.is_empty() && owner.waiting.is_empty() && owner.touched.is_empty() {
        true => 0,
        false => with_owner(outputs, Owner::send),
    }
}

/// Works with the worker's disciplines while they hand frames on. Nothing that they do comes here
/// again.
fn with_owner<R: Default>(
    outputs: &mut Outputs<'_>,
    work: impl FnOnce(&mut Owner, &mut Outputs<'_>) -> R,
) -> R {
    let Some(mut owner) = outputs.queueing.owner.take() else {
        debug_assert!(false, "the disciplines are at work");
        return R::default();
    };
    let result = work(&mut owner, outputs);
    outputs.queueing.owner = Some(owner);
    result
}

/// Puts a frame that has passed all disciplines into the outgoing batch of its port. A port with
/// fewer queues than there are workers has one with the first of them.
fn transmit(outputs: &mut Outputs<'_>, item: Queued) {
    let Some(port) = outputs.objects.port(item.port) else {
        return outputs.drop_waiting(item.packet, DropReason::PortDown);
    };
    let queue = port.queue();
    let is_here = matches!(outputs.ports.get(usize::from(queue.0)), Some(Some(_)));
    match is_here {
        true => {
            if outputs.buffers.follower.is_on() {
                outputs.buffers.follower.sent(&item.packet, queue);
            }
            outputs.send_by(item.packet, item.port, queue);
        }
        false if outputs.queueing.index == 0 => {
            outputs.drop_waiting(item.packet, DropReason::PortDown);
        }
        false => hand_over(outputs, 0, item, None),
    }
}

/// Disciplines on a frame's way, in order.
#[derive(Clone, Copy)]
pub(crate) enum Stage {
    Vrf,
    Port,
    /// Of a VLAN.
    Parent,
    /// Of a VLAN of a VLAN: its parent's parent.
    Opened,
}

impl Stage {
    const fn next(self) -> Option<Self> {
        match self {
            Self::Vrf => Some(Self::Port),
            Self::Port => Some(Self::Parent),
            Self::Parent => Some(Self::Opened),
            Self::Opened => None,
        }
    }

    /// What comes behind the discipline of `device` for frames of `port`.
    fn behind(device: QdiscDevice, port: PortId, objects: Objects<'_>) -> Option<Self> {
        match device {
            QdiscDevice::Vrf(_) => Some(Self::Port),
            QdiscDevice::Port(id) if id == port => Some(Self::Parent),
            _ if Self::Parent.device(port, objects) == Some(device) => Some(Self::Opened),
            QdiscDevice::Port(_) => None,
        }
    }

    fn device(self, port: PortId, objects: Objects<'_>) -> Option<QdiscDevice> {
        match self {
            Self::Vrf => Some(QdiscDevice::Vrf(objects.port(port)?.spec.vrf)),
            Self::Port => Some(QdiscDevice::Port(port)),
            Self::Parent => Some(QdiscDevice::Port(objects.port(port)?.spec.vlan?.parent)),
            Self::Opened => {
                let vlan = objects.port(port)?.spec.vlan?;
                (vlan.queue() != vlan.parent).then(|| QdiscDevice::Port(vlan.queue()))
            }
        }
    }
}

/// The disciplines that a frame which leaves by a port passes, in order.
pub(crate) fn on_the_way<'t>(
    port: PortId,
    objects: Objects<'t>,
) -> impl Iterator<Item = (QdiscDevice, &'t PlacedQdisc)> {
    core::iter::successors(Some(Stage::Vrf), |stage| stage.next()).filter_map(move |stage| {
        let device = stage.device(port, objects)?;
        Some((device, objects.qdiscs().on(device)?))
    })
}

/// Whose a discipline is.
enum Whose {
    /// This worker's, and its number among those.
    Own(u32),
    /// That of the worker of this number.
    Other(usize),
}

/// A worker's disciplines.
pub(crate) struct Owner {
    /// The worker's number.
    worker: usize,
    /// The disciplines of the last snapshot.
    known: Arc<Qdiscs>,
    places: Vec<Place>,
    /// Numbers of disciplines, or whose they are, by the numbers of ports and VRFs.
    of_ports: Vec<u32>,
    of_vrfs: Vec<u32>,
    slots: Slots<Queued>,
    /// Those from which something may leave now.
    ready: VecDeque<u32>,
    /// Those that wait, by the time until when.
    waiting: BinaryHeap<Reverse<(u64, u32)>>,
    /// Those whose counters have to be written.
    touched: Vec<u32>,
    /// Packets that wait, of these large ones, and the most that may wait.
    held: usize,
    held_large: usize,
    most: usize,
    most_large: usize,
}

/// A discipline where it stands.
struct Place {
    device: QdiscDevice,
    discipline: Discipline<Queued>,
    /// Whether it is ready, or waits.
    is_listed: bool,
    is_touched: bool,
    root: Arc<QdiscCounters>,
    child: Option<Arc<QdiscCounters>>,
}

impl Owner {
    fn new(worker: usize, small: usize, large: usize) -> Self {
        // Half of the buffers are for what comes in.
        let (most, most_large) = ((small + large) / 2, large / 2);
        Self {
            worker,
            known: Arc::default(),
            places: Vec::new(),
            of_ports: Vec::new(),
            of_vrfs: Vec::new(),
            slots: Slots::new(0),
            ready: VecDeque::new(),
            waiting: BinaryHeap::new(),
            touched: Vec::new(),
            held: 0,
            held_large: 0,
            most,
            most_large,
        }
    }

    /// Makes the disciplines what the snapshot says. Packets in those that are no more are dropped.
    fn follow(&mut self, qdiscs: &Arc<Qdiscs>, now: Time, buffers: &mut Buffers<'_>) {
        self.known = Arc::clone(qdiscs);
        let count = qdiscs.iter().filter(|(_, placed)| placed.worker == self.worker).count();
        if count > 0 && self.most > 0 && self.slots.is_empty() {
            // A packet that comes in has a place before another one is dropped for it.
            self.slots = Slots::new(self.most + 1);
        }
        let former = core::mem::take(&mut self.places);
        let mut former: BTreeMap<_, _> =
            former.into_iter().map(|place| (place.device, place)).collect();
        self.places.reserve_exact(count);
        self.touched = Vec::with_capacity(count);
        self.ready = VecDeque::with_capacity(count);
        self.waiting = BinaryHeap::with_capacity(count);
        (self.of_ports, self.of_vrfs) = (Vec::new(), Vec::new());
        let worker = self.worker;
        let Self { slots, held, held_large, .. } = self;
        let mut drop = |item: Queued, why| {
            *held_large -= usize::from(item.packet.is_large());
            buffers.drop_waiting(item.packet, reason(why));
        };
        for (device, placed) in qdiscs.iter() {
            let Some(settings) = settings(placed) else { continue };
            let (list, number) = match device {
                QdiscDevice::Port(id) => (&mut self.of_ports, usize::from(id.0)),
                QdiscDevice::Vrf(id) => (&mut self.of_vrfs, usize::from(id.0)),
            };
            if list.len() <= number {
                list.resize(number + 1, NONE);
            }
            if placed.worker != worker {
                list[number] = OTHERS | placed.worker as u32;
                continue;
            }
            list[number] = self.places.len() as u32;
            let mut place = former.remove(&device).unwrap_or_else(|| Place {
                device,
                discipline: Discipline::new(settings, now.0),
                is_listed: false,
                is_touched: false,
                root: Arc::clone(&placed.root.counters),
                child: None,
            });
            let before = place.discipline.len();
            place.become_like(placed, settings, slots, now, &mut drop);
            *held -= before - place.discipline.len();
            place.write_counters();
            self.places.push(place);
        }
        for (_, mut place) in former {
            *held -= place.discipline.len();
            place.discipline.flush(slots, &mut drop);
            place.write_counters();
        }
        for (number, place) in (0..).zip(&mut self.places) {
            place.is_touched = false;
            place.is_listed = !place.discipline.is_empty();
            if place.is_listed {
                self.ready.push_back(number);
            }
        }
    }

    /// Has disciplines dequeue at once that wait for tokens for a frame which may not leave.
    fn wake_vain(&mut self, objects: Objects<'_>) {
        let Self { places, waiting, ready, .. } = self;
        waiting.retain(|Reverse((_, number))| {
            let discipline = &places[*number as usize].discipline;
            let in_vain = discipline.waits_in_vain(|item| item.may_leave(objects));
            if in_vain {
                ready.push_back(*number);
            }
            !in_vain
        });
    }

    /// Puts a frame into the next discipline from `stage` on, hands it to that one's worker, or has
    /// its port send it. It may leave: a frame that was somewhere else in the meantime is asked first.
    fn pass(&mut self, item: Queued, stage: Option<Stage>, outputs: &mut Outputs<'_>) {
        let mut stage = stage;
        while let Some(at) = stage {
            let device = at.device(item.port, outputs.objects);
            match device.and_then(|device| self.whose(device)) {
                Some(Whose::Own(number)) => return self.admit(item, number, outputs),
                Some(Whose::Other(worker)) => return hand_over(outputs, worker, item, Some(at)),
                None => stage = at.next(),
            }
        }
        transmit(outputs, item);
    }

    fn admit(&mut self, item: Queued, number: u32, outputs: &mut Outputs<'_>) {
        let Outputs { buffers, now, .. } = outputs;
        let Self { places, slots, held, held_large, .. } = self;
        let place = &mut places[number as usize];
        // No discipline takes more than is left for all others, so that one does not starve them.
        let before = place.discipline.len();
        let is_large = item.packet.is_large();
        let has_room = before + *held < self.most && (!is_large || *held_large < self.most_large);
        *held_large += usize::from(is_large);
        place.discipline.enqueue(slots, now.0, item, has_room, |item, why| {
            *held_large -= usize::from(item.packet.is_large());
            buffers.drop_waiting(item.packet, reason(why));
        });
        *held = *held + place.discipline.len() - before;
        if !core::mem::replace(&mut place.is_touched, true) {
            self.touched.push(number);
        }
        if !place.is_listed && !place.discipline.is_empty() {
            place.is_listed = true;
            self.ready.push_back(number);
        }
    }

    fn whose(&self, device: QdiscDevice) -> Option<Whose> {
        let number = match device {
            QdiscDevice::Port(id) => self.of_ports.get(usize::from(id.0)),
            QdiscDevice::Vrf(id) => self.of_vrfs.get(usize::from(id.0)),
        };
        match number.copied()? {
            NONE => None,
            number if number & OTHERS != 0 => Some(Whose::Other((number & !OTHERS) as usize)),
            number => Some(Whose::Own(number)),
        }
    }

    fn send(&mut self, outputs: &mut Outputs<'_>) -> usize {
        let (now, mut left) = (outputs.now, 0);
        while let Some(Reverse((time, number))) = self.waiting.peek().copied()
            && time <= now.0
        {
            self.waiting.pop();
            self.ready.push_back(number);
        }
        while let Some(number) = self.ready.pop_front() {
            left += self.send_of(number, outputs);
        }
        for number in self.touched.drain(..) {
            let place = &mut self.places[number as usize];
            place.is_touched = false;
            place.write_counters();
        }
        left
    }

    /// Sends what may leave one discipline: to the next one, or to its port. Returns how many frames.
    fn send_of(&mut self, number: u32, outputs: &mut Outputs<'_>) -> usize {
        let (now, objects, mut left, mut flushed) = (outputs.now, outputs.objects, 0, 0);
        loop {
            let Self { places, slots, held, held_large, .. } = self;
            let place = &mut places[number as usize];
            if !core::mem::replace(&mut place.is_touched, true) {
                self.touched.push(number);
            }
            let before = place.discipline.len();
            let (buffers, flushed_before) = (&mut outputs.buffers, flushed);
            let may_leave = |item: &Queued| item.may_leave(objects);
            let item = place.discipline.dequeue(slots, now.0, may_leave, |item, why| {
                flushed += u32::from(why == Dropped::Flushed);
                *held_large -= usize::from(item.packet.is_large());
                buffers.drop_waiting(item.packet, reason(why));
            });
            *held -= before - place.discipline.len();
            let Some(item) = item else {
                match flushed > flushed_before && flushed < FLUSH_BATCH {
                    true => continue,
                    false => break,
                }
            };
            *held_large -= usize::from(item.packet.is_large());
            let stage = Stage::behind(place.device, item.port, outputs.objects);
            self.pass(item, stage, outputs);
            left += 1;
        }
        let place = &mut self.places[number as usize];
        match place.discipline.next() {
            Next::Empty => place.is_listed = false,
            Next::At(time) => self.waiting.push(Reverse((time, number))),
        }
        left
    }
}

impl Place {
    /// Becomes what the snapshot says.
    fn become_like(
        &mut self,
        placed: &PlacedQdisc,
        settings: Settings,
        slots: &mut Slots<Queued>,
        now: Time,
        mut drop: impl FnMut(Queued, Dropped),
    ) {
        if *self.discipline.settings() != settings {
            self.discipline.change(settings, slots, now.0, &mut drop);
        }
        if !placed.up {
            self.discipline.flush(slots, drop);
        }
        let counters = |node: &QdiscNode| Arc::clone(&node.counters);
        let (root, child) = (counters(&placed.root), placed.child.as_ref().map(counters));
        let is_other_root = !Arc::ptr_eq(&root, &self.root);
        let is_other_child = match (&child, &self.child) {
            (Some(new), Some(old)) => !Arc::ptr_eq(new, old),
            (None, None) => is_other_root,
            _ => true,
        };
        self.discipline.forget_statistics(is_other_root, is_other_child);
        (self.root, self.child) = (root, child);
    }

    fn write_counters(&self) {
        write(&self.root, &self.discipline.statistics());
        let queue = match &self.child {
            Some(child) => {
                write(child, &self.discipline.queue_statistics());
                child
            }
            None => &self.root,
        };
        let Some(flows) = self.discipline.flow_statistics() else { return };
        queue.maxpacket.set(flows.maxpacket);
        queue.drop_overlimit.set(flows.drop_overlimit);
        queue.ecn_mark.set(flows.ecn_mark);
        queue.new_flow_count.set(flows.new_flow_count);
        queue.new_flows_len.set(flows.new_flows_len);
        queue.old_flows_len.set(flows.old_flows_len);
        queue.ce_mark.set(flows.ce_mark);
        queue.memory_used.set(flows.memory_used);
        queue.drop_overmemory.set(flows.drop_overmemory);
    }
}

fn write(counters: &QdiscCounters, statistics: &Statistics) {
    let Statistics { packets, bytes, drops, overlimits, backlog, queued } = *statistics;
    counters.packets.set(packets);
    counters.bytes.set(bytes);
    counters.drops.set(drops);
    counters.overlimits.set(overlimits);
    counters.backlog.set(backlog);
    counters.queued.set(queued);
}

fn settings(placed: &PlacedQdisc) -> Option<Settings> {
    Settings::new(&placed.root.qdisc, placed.child.as_ref().map(|child| &child.qdisc))
}

const fn reason(why: Dropped) -> DropReason {
    match why {
        Dropped::Overlimit => DropReason::QdiscOverlimit,
        Dropped::Congestion => DropReason::QdiscCodel,
        Dropped::TooLong => DropReason::QdiscTooLong,
        Dropped::Flushed => DropReason::QdiscFlushed,
    }
}
