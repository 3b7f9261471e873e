//! Queue: frames wait in the queueing disciplines of their VRF, their port and their port's parent,
//! one after the other, and leave when it is their time.
//!
//! All disciplines belong to the first worker, which alone has a queue of every port. The others
//! hand their frames over by rings, and get an empty buffer for each, so that no worker runs out
//! of buffers for what waits. A flow that one worker handles stays in order.
//!
//! Exits: `qdisc_overlimit`, `qdisc_codel`, `qdisc_too_long`, `qdisc_handover`, `qdisc_flushed`,
//! `port_down`.

use core::cmp::Reverse;
use core::hash::Hasher;
use std::collections::{BTreeMap, BinaryHeap, VecDeque};
use std::sync::Arc;

use packet::{CAPACITY, DropReason, LARGE_CAPACITY, Packet, Time};
use qdisc::{Discipline, Dropped, Item, Next, Settings, Slots, Statistics};
use rtrb::{Consumer, Producer, RingBuffer};
use siphasher::sip::SipHasher13;
use tables::{PlacedQdisc, QdiscCounters, QdiscDevice, QdiscNode, Qdiscs};
use wire::{PortId, Protocol, ipv4, ipv6};

use crate::outputs::{Buffers, Objects, Outputs};

/// No discipline.
const NONE: u32 = u32::MAX;

/// A finished frame on its way to a port's link.
pub(crate) struct Queued {
    packet: Packet,
    /// By which port it leaves.
    port: PortId,
    /// Bytes of its link header.
    header: u8,
    flow: u32,
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

/// One end of the rings between a worker and the first one: see [`handovers`].
pub struct Handover(End);

enum End {
    First(Vec<Link>),
    Other(OtherEnd),
}

/// The first worker's end.
struct Link {
    frames: Consumer<Queued>,
    /// Empty buffers, one for each frame.
    buffers: Producer<Packet>,
}

/// Another worker's end.
struct OtherEnd {
    frames: Producer<Queued>,
    buffers: Consumer<Packet>,
    /// Frames for which no buffer has come back.
    owed: usize,
    most: usize,
    /// Whether frames were handed over since it was last asked.
    has_handed_over: bool,
}

/// The ends of rings between `workers` workers and the first of them, one for each worker, in
/// order. Each other worker may have `capacity` frames on the way.
pub fn handovers(workers: usize, capacity: usize) -> Vec<Handover> {
    let (mut links, mut others) = (Vec::new(), Vec::new());
    for _ in 1..workers {
        let (frames_in, frames) = RingBuffer::new(capacity);
        let (buffers, buffers_out) = RingBuffer::new(capacity);
        links.push(Link { frames, buffers });
        others.push(OtherEnd {
            frames: frames_in,
            buffers: buffers_out,
            owed: 0,
            most: capacity,
            has_handed_over: false,
        });
    }
    let first = core::iter::once(Handover(End::First(links)));
    first.chain(others.into_iter().map(|end| Handover(End::Other(end)))).collect()
}

/// A worker's part in queueing.
pub(crate) struct Queueing {
    secret: u64,
    role: Role,
}

enum Role {
    Owner(Box<Owner>),
    Other(Option<OtherEnd>),
    /// While the owner works.
    Busy,
}

impl Queueing {
    /// That of the worker number `index` with such buffers.
    pub(crate) fn new(index: usize, small: usize, large: usize, secret: u64) -> Self {
        let role = match index {
            0 => Role::Owner(Box::new(Owner::new(small, large))),
            _ => Role::Other(None),
        };
        Self { secret, role }
    }

    pub(crate) fn join(&mut self, Handover(end): Handover) {
        match (&mut self.role, end) {
            (Role::Owner(owner), End::First(links)) => owner.links = links,
            (Role::Other(other), End::Other(end)) => *other = Some(end),
            _ => {}
        }
    }

    /// Whether frames were handed to the first worker since this was last asked.
    pub(crate) fn take_handed_over(&mut self) -> bool {
        match &mut self.role {
            Role::Other(Some(end)) => core::mem::take(&mut end.has_handed_over),
            _ => false,
        }
    }

    /// When something may leave, if something waits.
    pub(crate) fn next_deadline(&self) -> Option<Time> {
        let Role::Owner(owner) = &self.role else { return None };
        match owner.ready.is_empty() {
            true => owner.waiting.peek().map(|Reverse((time, _))| Time(*time)),
            false => Some(Time(0)),
        }
    }

    /// Takes note of another snapshot's disciplines.
    pub(crate) fn snapshot_changed(
        &mut self,
        qdiscs: &Arc<Qdiscs>,
        now: Time,
        buffers: &mut Buffers<'_>,
    ) {
        if let Role::Owner(owner) = &mut self.role
            && !Arc::ptr_eq(&owner.known, qdiscs)
        {
            owner.follow(qdiscs, now, buffers);
        }
    }
}

/// Puts a finished frame of a port into the first discipline on its way.
#[cold]
pub(crate) fn enqueue(outputs: &mut Outputs<'_>, packet: Packet, port: PortId, header: usize) {
    let payload = packet.bytes().get(header..).unwrap_or_default();
    let flow = flow_of(payload, outputs.queueing.secret);
    let item = Queued { packet, port, header: header as u8, flow };
    match &mut outputs.queueing.role {
        Role::Owner(owner) => {
            let Outputs { buffers, objects, now, .. } = outputs;
            if let Some(item) = owner.admit(item, Stage::Vrf, *now, *objects, buffers) {
                transmit(outputs, item);
            }
        }
        Role::Other(Some(end)) if end.owed < end.most => match end.frames.push(item) {
            Ok(()) => {
                end.owed += 1;
                end.has_handed_over = true;
            }
            Err(rtrb::PushError::Full(item)) => not_handed_over(outputs, item),
        },
        Role::Other(_) | Role::Busy => not_handed_over(outputs, item),
    }
}

/// Takes frames that other workers have handed over, or the buffers that came back for one's own.
/// Returns how many frames.
pub(crate) fn exchange(outputs: &mut Outputs<'_>) -> usize {
    match &mut outputs.queueing.role {
        Role::Other(Some(end)) => {
            while let Ok(packet) = end.buffers.pop() {
                end.owed -= 1;
                outputs.buffers.pool.give(packet);
            }
            0
        }
        Role::Owner(owner) if !owner.links.is_empty() => {
            let mut links = core::mem::take(&mut owner.links);
            let count = links.iter_mut().map(|link| take_frames(link, outputs)).sum();
            if let Role::Owner(owner) = &mut outputs.queueing.role {
                owner.links = links;
            }
            count
        }
        _ => 0,
    }
}

fn take_frames(link: &mut Link, outputs: &mut Outputs<'_>) -> usize {
    // What comes meanwhile waits for the next round.
    let count = link.frames.slots();
    for _ in 0..count {
        let Ok(item) = link.frames.pop() else { break };
        let pool = &mut outputs.buffers.pool;
        let buffer = if item.packet.is_large() { pool.take_large() } else { pool.take() };
        let back = match buffer {
            Some(buffer) => {
                let Outputs { buffers, objects, now, queueing, .. } = &mut *outputs;
                let Role::Owner(owner) = &mut queueing.role else { return 0 };
                if let Some(item) = owner.admit(item, Stage::Vrf, *now, *objects, buffers) {
                    transmit(outputs, item);
                }
                buffer
            }
            None => {
                let statistics = outputs.buffers.statistics;
                statistics.drops.add(DropReason::QdiscHandover, 1);
                count_not_handed_over(outputs.objects, &item);
                item.packet
            }
        };
        // There is room: the other worker has no more frames on the way than buffers fit.
        if let Err(rtrb::PushError::Full(back)) = link.buffers.push(back) {
            outputs.buffers.pool.give(back);
        }
    }
    count
}

fn not_handed_over(outputs: &mut Outputs<'_>, item: Queued) {
    count_not_handed_over(outputs.objects, &item);
    outputs.drop(item.packet, DropReason::QdiscHandover);
}

/// Counts a packet that its worker could not hand over for the discipline that it was for.
fn count_not_handed_over(objects: Objects<'_>, item: &Queued) {
    let mut stage = Some(Stage::Vrf);
    while let Some(at) = stage {
        let placed = at.device(item.port, objects).and_then(|device| objects.qdiscs().on(device));
        if let Some(placed) = placed {
            let bytes = u64::from(item.length());
            return placed.not_handed_over.add(objects.worker, 1, bytes);
        }
        stage = at.next();
    }
}

/// Sends what may leave now.
pub(crate) fn send(outputs: &mut Outputs<'_>) {
    let Role::Owner(owner) = &outputs.queueing.role else { return };
    if owner.ready.is_empty() && owner.waiting.is_empty() && owner.touched.is_empty() {
        return;
    }
    let role = core::mem::replace(&mut outputs.queueing.role, Role::Busy);
    let Role::Owner(mut owner) = role else { return };
    owner.send(outputs);
    outputs.queueing.role = Role::Owner(owner);
}

/// Puts a frame that has passed all disciplines into the outgoing batch of its port.
fn transmit(outputs: &mut Outputs<'_>, item: Queued) {
    match outputs.objects.port(item.port).filter(|port| port.spec.up) {
        Some(port) => outputs.send_by(item.packet, item.port, port.queue()),
        None => outputs.drop(item.packet, DropReason::PortDown),
    }
}

/// Disciplines on a frame's way, in order.
#[derive(Clone, Copy)]
enum Stage {
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

/// What the first worker has: every discipline.
struct Owner {
    links: Vec<Link>,
    /// The disciplines of the last snapshot.
    known: Arc<Qdiscs>,
    places: Vec<Place>,
    /// Numbers of disciplines, by those of ports and VRFs.
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
    up: bool,
    /// Whether it is ready, or waits.
    is_listed: bool,
    is_touched: bool,
    root: Arc<QdiscCounters>,
    child: Option<Arc<QdiscCounters>>,
}

impl Owner {
    fn new(small: usize, large: usize) -> Self {
        // Half of the buffers are for what comes in.
        let (most, most_large) = ((small + large) / 2, large / 2);
        Self {
            links: Vec::new(),
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
        let count = qdiscs.iter().len();
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
        let Self { slots, held, held_large, .. } = self;
        let mut drop = |item: Queued, why| {
            *held_large -= usize::from(item.packet.is_large());
            buffers.drop(item.packet, reason(why));
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
            list[number] = self.places.len() as u32;
            let mut place = former.remove(&device).unwrap_or_else(|| Place {
                device,
                discipline: Discipline::new(settings, now.0),
                up: true,
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

    /// Puts a frame into the first discipline from `stage` on. It is handed back if there is none.
    fn admit(
        &mut self,
        item: Queued,
        stage: Stage,
        now: Time,
        objects: Objects<'_>,
        buffers: &mut Buffers<'_>,
    ) -> Option<Queued> {
        let mut stage = Some(stage);
        let number = loop {
            let at = stage?;
            let number = at.device(item.port, objects).and_then(|device| self.number(device));
            if let Some(number) = number {
                break number;
            }
            stage = at.next();
            if stage.is_none() {
                return Some(item);
            }
        };
        let Self { places, slots, held, held_large, .. } = self;
        let place = &mut places[number as usize];
        if !place.up {
            buffers.drop(item.packet, DropReason::PortDown);
            return None;
        }
        // No discipline takes more than is left for all others, so that one does not starve them.
        let before = place.discipline.len();
        let is_large = item.packet.is_large();
        let has_room = before + *held < self.most && (!is_large || *held_large < self.most_large);
        *held_large += usize::from(is_large);
        place.discipline.enqueue(slots, now.0, item, has_room, |item, why| {
            *held_large -= usize::from(item.packet.is_large());
            buffers.drop(item.packet, reason(why));
        });
        *held = *held + place.discipline.len() - before;
        if !core::mem::replace(&mut place.is_touched, true) {
            self.touched.push(number);
        }
        if !place.is_listed && !place.discipline.is_empty() {
            place.is_listed = true;
            self.ready.push_back(number);
        }
        None
    }

    fn number(&self, device: QdiscDevice) -> Option<u32> {
        let number = match device {
            QdiscDevice::Port(id) => self.of_ports.get(usize::from(id.0)),
            QdiscDevice::Vrf(id) => self.of_vrfs.get(usize::from(id.0)),
        };
        number.copied().filter(|number| *number != NONE)
    }

    fn send(&mut self, outputs: &mut Outputs<'_>) {
        let now = outputs.now;
        while let Some(Reverse((time, number))) = self.waiting.peek().copied()
            && time <= now.0
        {
            self.waiting.pop();
            self.ready.push_back(number);
        }
        while let Some(number) = self.ready.pop_front() {
            self.send_of(number, outputs);
        }
        for number in self.touched.drain(..) {
            let place = &mut self.places[number as usize];
            place.is_touched = false;
            place.write_counters();
        }
    }

    /// Sends what may leave one discipline: to the next one, or to its port.
    fn send_of(&mut self, number: u32, outputs: &mut Outputs<'_>) {
        let now = outputs.now;
        loop {
            let Self { places, slots, held, held_large, .. } = self;
            let place = &mut places[number as usize];
            if !core::mem::replace(&mut place.is_touched, true) {
                self.touched.push(number);
            }
            let before = place.discipline.len();
            let buffers = &mut outputs.buffers;
            let item = place.discipline.dequeue(slots, now.0, |item, why| {
                *held_large -= usize::from(item.packet.is_large());
                buffers.drop(item.packet, reason(why));
            });
            *held -= before - place.discipline.len();
            let Some(item) = item else { break };
            *held_large -= usize::from(item.packet.is_large());
            let left = match Stage::behind(place.device, item.port, outputs.objects) {
                Some(stage) => self.admit(item, stage, now, outputs.objects, &mut outputs.buffers),
                None => Some(item),
            };
            if let Some(item) = left {
                transmit(outputs, item);
            }
        }
        let place = &mut self.places[number as usize];
        match place.discipline.next() {
            Next::Empty => place.is_listed = false,
            Next::At(time) => self.waiting.push(Reverse((time, number))),
        }
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
        self.up = placed.up;
        if !self.up {
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
