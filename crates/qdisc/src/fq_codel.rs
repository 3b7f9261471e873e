//! Flow queues in turn, each with controlled delay (RFC 8290).

use crate::codel::{Codel, CodelSettings, Marks, Popped};
use crate::slots::{NONE, Queue, Slots};
use crate::{Dropped, Item, Nanoseconds};

/// The most items that are dropped at once where there is no room (RFC 8290 section 4.1.1).
pub(crate) const DROP_BATCH: u32 = 64;

/// What is counted beside [`crate::Statistics`], by the names of tc.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct FlowStatistics {
    /// The longest item so far.
    pub maxpacket: u64,
    /// Items dropped as there was no room.
    pub drop_overlimit: u64,
    /// Items marked instead of dropped.
    pub ecn_mark: u64,
    /// How often a queue became one of a new flow.
    pub new_flow_count: u64,
    /// Queues of new flows now.
    pub new_flows_len: u64,
    /// Queues of old flows now.
    pub old_flows_len: u64,
    /// Items marked for their waiting alone.
    pub ce_mark: u64,
    /// Memory of what waits.
    pub memory_used: u64,
    /// Items dropped as their memory was too much.
    pub drop_overmemory: u64,
}

/// Parameters in the crate's units.
#[derive(Clone, Copy)]
struct Parameters {
    limit: u32,
    flows: u32,
    quantum: i64,
    memory_limit: u64,
    codel: CodelSettings,
}

#[derive(Clone, Copy, PartialEq, Eq)]
enum List {
    None,
    New,
    Old,
}

#[derive(Clone, Copy)]
struct Flow {
    queue: Queue,
    codel: Codel,
    /// Bytes that it may still send in its turn.
    deficit: i64,
    /// In which list it is, and the one behind it there.
    list: List,
    next: u32,
}

/// Flows in the order in which it is their turn.
#[derive(Clone, Copy)]
struct Turns {
    head: u32,
    tail: u32,
    length: u64,
}

pub(crate) struct FqCodel {
    parameters: Parameters,
    flows: Box<[Flow]>,
    new: Turns,
    old: Turns,
    packets: u32,
    bytes: u64,
    statistics: FlowStatistics,
    marks: Marks,
}

impl Parameters {
    fn new(settings: &types::qdisc::FqCodel) -> Self {
        const MICROSECOND: u64 = 1000;
        Self {
            limit: settings.limit.max(1),
            flows: settings.flows.clamp(1, types::qdisc::MAX_FLOWS),
            quantum: settings.quantum.max(1).into(),
            memory_limit: settings.memory_limit.into(),
            codel: CodelSettings {
                target: u64::from(settings.target) * MICROSECOND,
                interval: u64::from(settings.interval) * MICROSECOND,
                ecn: settings.ecn,
                ce_threshold: settings.ce_threshold.map(|time| u64::from(time) * MICROSECOND),
            },
        }
    }
}

impl Turns {
    const EMPTY: Self = Self { head: NONE, tail: NONE, length: 0 };

    fn push(&mut self, flows: &mut [Flow], flow: u32) {
        flows[flow as usize].next = NONE;
        match flows.get_mut(self.tail as usize) {
            Some(last) => last.next = flow,
            None => self.head = flow,
        }
        self.tail = flow;
        self.length += 1;
    }

    fn pop(&mut self, flows: &[Flow]) {
        self.head = flows[self.head as usize].next;
        if self.head == NONE {
            self.tail = NONE;
        }
        self.length -= 1;
    }
}

impl FqCodel {
    pub(crate) fn new(settings: &types::qdisc::FqCodel) -> Self {
        const IDLE: Flow = Flow {
            queue: Queue::EMPTY,
            codel: Codel::NEW,
            deficit: 0,
            list: List::None,
            next: NONE,
        };
        let parameters = Parameters::new(settings);
        Self {
            parameters,
            flows: vec![IDLE; parameters.flows as usize].into_boxed_slice(),
            new: Turns::EMPTY,
            old: Turns::EMPTY,
            packets: 0,
            bytes: 0,
            statistics: FlowStatistics::default(),
            marks: Marks::default(),
        }
    }

    /// Whether [`FqCodel::change`] can be used: flows stay in their queues.
    pub(crate) fn can_change(&self, settings: &types::qdisc::FqCodel) -> bool {
        Parameters::new(settings).flows == self.parameters.flows
    }

    /// Sets other parameters. What is above the limits is dropped.
    pub(crate) fn change<T: Item>(
        &mut self,
        settings: &types::qdisc::FqCodel,
        slots: &mut Slots<T>,
        mut dropped: impl FnMut(T, Dropped),
    ) {
        self.parameters = Parameters::new(settings);
        while self.is_over() {
            self.drop_of_fattest(slots, &mut dropped);
        }
    }

    pub(crate) fn packets(&self) -> u32 {
        self.packets
    }

    pub(crate) fn bytes(&self) -> u64 {
        self.bytes
    }

    pub(crate) fn statistics(&self) -> FlowStatistics {
        FlowStatistics {
            ecn_mark: self.marks.ecn,
            ce_mark: self.marks.threshold,
            new_flows_len: self.new.length,
            old_flows_len: self.old.length,
            ..self.statistics
        }
    }

    /// Begins to count anew.
    pub(crate) fn forget_statistics(&mut self) {
        // What CoDel needs stays.
        let FlowStatistics { memory_used, maxpacket, .. } = self.statistics;
        self.statistics = FlowStatistics { memory_used, maxpacket, ..FlowStatistics::default() };
        self.marks = Marks::default();
    }

    /// Takes an item in (RFC 8290 section 4.1). Without `has_room`, or above a limit, items of the
    /// flow with most bytes are dropped, which may be this one.
    pub(crate) fn enqueue<T: Item>(
        &mut self,
        slots: &mut Slots<T>,
        item: T,
        at: Nanoseconds,
        has_room: bool,
        mut dropped: impl FnMut(T, Dropped),
    ) {
        if slots.is_full() {
            self.drop_of_fattest(slots, &mut dropped);
        }
        let index = (u64::from(item.flow()) * self.flows.len() as u64) >> 32;
        let (length, memory) = (u64::from(item.length()), u64::from(item.memory()));
        let flow = &mut self.flows[index as usize];
        if let Err(item) = slots.push(&mut flow.queue, item, at) {
            self.statistics.drop_overlimit += 1;
            return dropped(item, Dropped::Overlimit);
        }
        self.packets += 1;
        self.bytes += length;
        self.statistics.memory_used += memory;
        self.statistics.maxpacket = self.statistics.maxpacket.max(length);
        if flow.list == List::None {
            flow.list = List::New;
            flow.deficit = self.parameters.quantum;
            self.new.push(&mut self.flows, index as u32);
            self.statistics.new_flow_count += 1;
        }
        if !has_room || self.is_over() {
            if self.statistics.memory_used > self.parameters.memory_limit {
                self.statistics.drop_overmemory += 1;
            }
            self.drop_of_fattest(slots, &mut dropped);
        }
    }

    fn is_over(&self) -> bool {
        self.packets > self.parameters.limit
            || self.statistics.memory_used > self.parameters.memory_limit
    }

    /// Drops items at the head of the flow with most bytes: half of them, and not more than a batch
    /// (RFC 8290 section 4.1.1), so that finding it is paid for by many.
    fn drop_of_fattest<T: Item>(
        &mut self,
        slots: &mut Slots<T>,
        mut dropped: impl FnMut(T, Dropped),
    ) {
        let fattest = self.flows.iter_mut().max_by_key(|flow| flow.queue.bytes);
        let Some(flow) = fattest else { return };
        let threshold = flow.queue.bytes / 2;
        let mut gone = 0;
        for _ in 0..DROP_BATCH {
            let Some((item, _)) = slots.pop(&mut flow.queue) else { break };
            gone += u64::from(item.length());
            self.packets -= 1;
            self.bytes -= u64::from(item.length());
            self.statistics.memory_used -= u64::from(item.memory());
            self.statistics.drop_overlimit += 1;
            dropped(item, Dropped::Overlimit);
            if gone >= threshold {
                break;
            }
        }
    }

    /// The item whose turn it is (RFC 8290 section 4.2). If that may not leave, it is flushed, and
    /// there is none.
    pub(crate) fn dequeue<T: Item>(
        &mut self,
        slots: &mut Slots<T>,
        now: Nanoseconds,
        may_leave: impl Fn(&T) -> bool,
        mut dropped: impl FnMut(T, Dropped),
    ) -> Option<T> {
        loop {
            let is_new = self.new.head != NONE;
            let index = if is_new { self.new.head } else { self.old.head };
            let flow = self.flows.get_mut(index as usize)?;
            if flow.deficit <= 0 {
                flow.deficit += self.parameters.quantum;
                flow.list = List::Old;
                let turns = if is_new { &mut self.new } else { &mut self.old };
                turns.pop(&self.flows);
                self.old.push(&mut self.flows, index);
                continue;
            }
            let (statistics, packets, bytes) =
                (&mut self.statistics, &mut self.packets, &mut self.bytes);
            let maxpacket = statistics.maxpacket;
            let queue = &mut flow.queue;
            let in_vain = slots.first(queue).is_some_and(|item| !may_leave(item));
            let mut pop = || {
                let (item, at) = slots.pop(queue)?;
                *packets -= 1;
                *bytes -= u64::from(item.length());
                statistics.memory_used -= u64::from(item.memory());
                Some(Popped { item, at, left: queue.bytes })
            };
            // Its waiting says nothing of the link, so CoDel has nothing to learn from it.
            if in_vain && let Some(Popped { item, .. }) = pop() {
                dropped(item, Dropped::Flushed);
                return None;
            }
            let codel = &self.parameters.codel;
            let item =
                flow.codel.dequeue(now, codel, maxpacket, &mut self.marks, pop, &mut dropped);
            if let Some(item) = item {
                flow.deficit -= i64::from(item.length());
                return Some(item);
            }
            // A new flow that has run empty waits for the old ones once, so that it cannot be new
            // again at once.
            let stays = is_new && self.old.head != NONE;
            flow.list = if stays { List::Old } else { List::None };
            let turns = if is_new { &mut self.new } else { &mut self.old };
            turns.pop(&self.flows);
            if stays {
                self.old.push(&mut self.flows, index);
            }
        }
    }

    /// Takes items in the order of their queues, whatever the time is.
    pub(crate) fn take<T: Item>(&mut self, slots: &mut Slots<T>) -> Option<(T, Nanoseconds)> {
        let flow = self.flows.iter_mut().find(|flow| flow.queue.packets > 0)?;
        let (item, at) = slots.pop(&mut flow.queue)?;
        self.packets -= 1;
        self.bytes -= u64::from(item.length());
        self.statistics.memory_used -= u64::from(item.memory());
        Some((item, at))
    }
}
