//! The flows of all VRFs.

use std::collections::{BTreeMap, HashSet};
use std::sync::Arc;

use types::{PacketFields, PortId, VrfId};

use crate::fields::Fields;
use crate::flow::{Entry, Flow, FlowId};
use crate::matches::EndReads;
use crate::table::Table;

/// The flows of all VRFs. A clone shares everything, and a change to a clone copies one table's
/// flows of one mask.
#[derive(Clone, Default)]
pub struct Pipeline {
    vrfs: Arc<BTreeMap<VrfId, Arc<Tables>>>,
    count: usize,
    next: u32,
    /// Whether numbers have begun anew, so that one may be in use.
    wrapped: bool,
    order: u64,
}

/// The flows of a VRF.
#[derive(Clone, Default)]
pub(crate) struct Tables {
    /// By number. Behind the last table that has flows there is none.
    tables: Vec<Arc<Table>>,
    len: usize,
    reads: PacketFields,
    leads_back: bool,
    rewrites: bool,
    asks_for_exit: bool,
    reads_opened: bool,
    end_reads: Option<EndReads>,
}

impl Pipeline {
    /// Without flows.
    pub fn new() -> Self {
        Self::default()
    }

    /// Whether a VRF has flows. Packets of one without are routed as if there were no tables.
    pub fn has(&self, vrf: VrfId) -> bool {
        self.vrfs.contains_key(&vrf)
    }

    /// How many flows there are.
    pub const fn len(&self) -> usize {
        self.count
    }

    /// Whether there are no flows.
    pub const fn is_empty(&self) -> bool {
        self.count == 0
    }

    /// The optional fields that flows of a VRF read: what the flow keys of its packets must have.
    pub fn reads(&self, vrf: VrfId) -> PacketFields {
        self.tables(vrf).map_or(PacketFields::NONE, |tables| tables.reads)
    }

    /// How many sets of fields and masks the flows match, over all tables. A lookup makes as many
    /// probes as its table has, at most.
    pub fn masks(&self) -> usize {
        let tables = self.vrfs.values().flat_map(|tables| &tables.tables);
        tables.map(|table| table.masks()).sum()
    }

    /// All flows, in the order of [`Pipeline::sorted`] by VRFs and tables alone.
    pub fn entries(&self) -> impl Iterator<Item = &Arc<Entry>> {
        let tables = self.vrfs.values().flat_map(|tables| &tables.tables);
        tables.flat_map(|table| table.entries())
    }

    /// The flows of a VRF.
    pub fn entries_of(&self, vrf: VrfId) -> impl Iterator<Item = &Arc<Entry>> {
        let tables = self.vrfs.get(&vrf).into_iter().flat_map(|tables| &tables.tables);
        tables.flat_map(|table| table.entries())
    }

    /// Whether a flow asks for connections.
    pub fn tracks(&self) -> bool {
        let mut tables = self.vrfs.values().flat_map(|tables| &tables.tables);
        tables.any(|table| table.tracks())
    }

    /// The flow with the same table, match and priority, if there is one.
    pub fn find(&self, flow: &Flow) -> Option<&Arc<Entry>> {
        self.table(flow.vrf, flow.table)?.find(&flow.matches, flow.priority)
    }

    /// The flows that another pipeline lacks, or has as others.
    pub fn unshared<'a>(&'a self, other: &'a Self) -> impl Iterator<Item = &'a Arc<Entry>> {
        let is_shared = |vrf: &VrfId, tables: &Arc<Tables>| {
            other.vrfs.get(vrf).is_some_and(|others| Arc::ptr_eq(tables, others))
        };
        let vrfs = self.vrfs.iter().filter(move |(vrf, tables)| !is_shared(vrf, tables));
        vrfs.flat_map(|(vrf, tables)| {
            let numbered = (0..=Flow::LAST_TABLE).zip(&tables.tables);
            let paired = numbered.map(|(number, table)| (table, other.table(*vrf, number)));
            let changed = paired.filter(|(table, other)| {
                other.is_none_or(|other| !core::ptr::eq(&raw const ***table, other))
            });
            changed.flat_map(|(table, other)| table.unshared(other))
        })
    }

    /// All flows: by VRF, by table, the highest priority first, and then the oldest.
    pub fn sorted(&self) -> Vec<&Arc<Entry>> {
        let mut entries: Vec<_> = self.entries().collect();
        entries.sort_by_key(|entry| (entry.flow.vrf, entry.flow.table, entry.rank()));
        entries
    }

    /// The ports that flows of a VRF send frames by, in order.
    pub fn outputs(&self, vrf: VrfId) -> Vec<PortId> {
        let tables = self.tables(vrf).map_or(&[][..], |tables| &tables.tables);
        let ports = tables.iter().flat_map(|table| table.outputs());
        let ports: std::collections::BTreeSet<PortId> = ports.collect();
        ports.into_iter().collect()
    }

    /// Whether a flow of a VRF matches where packets would be routed to.
    pub fn asks_for_exit(&self, vrf: VrfId) -> bool {
        self.tables(vrf).is_some_and(|tables| tables.asks_for_exit)
    }

    /// Whether flows of a VRF may read the mark or the label of a connection of a packet that has opened it,
    /// if nothing has announced the connection.
    pub fn reads_opened(&self, vrf: VrfId) -> bool {
        self.tables(vrf).is_some_and(|tables| tables.reads_opened)
    }

    /// Whether flows of a VRF may make of packets what their keys do not say, translations aside: then
    /// [`FlowPackets`](crate::FlowPackets) do not say which flows a packet may meet.
    pub fn rewrites(&self, vrf: VrfId) -> bool {
        self.tables(vrf).is_some_and(|tables| tables.rewrites)
    }

    /// What flows of a VRF read of packets' ends: packets of connections with the same state, mark and
    /// label that differ in nothing else meet the same flows. `None` if that cannot be said, as flows read
    /// of a connection more than these, make something else of the packet, or ask for no connection or
    /// for one in another zone.
    #[inline]
    pub fn end_reads(&self, vrf: VrfId) -> Option<&EndReads> {
        self.tables(vrf)?.end_reads.as_ref()
    }

    pub(crate) fn tables(&self, vrf: VrfId) -> Option<&Tables> {
        self.vrfs.get(&vrf).map(|tables| &**tables)
    }

    pub(crate) fn table(&self, vrf: VrfId, table: u8) -> Option<&Table> {
        self.tables(vrf)?.tables.get(usize::from(table)).map(|table| &**table)
    }

    /// Whether a flow of a VRF leads to its own table or an earlier one.
    pub(crate) fn leads_back(&self, vrf: VrfId) -> bool {
        self.tables(vrf).is_some_and(|tables| tables.leads_back)
    }

    /// A table to be changed. [`Pipeline::recount`] is due then.
    pub(crate) fn table_mut(&mut self, vrf: VrfId, table: u8) -> &mut Table {
        let tables = Arc::make_mut(Arc::make_mut(&mut self.vrfs).entry(vrf).or_default());
        let at = usize::from(table);
        if tables.tables.len() <= at {
            tables.tables.resize_with(at + 1, Arc::default);
        }
        Arc::make_mut(&mut tables.tables[at])
    }

    /// Puts right what is known of a VRF's flows together.
    pub(crate) fn recount(&mut self, vrf: VrfId) {
        let vrfs = Arc::make_mut(&mut self.vrfs);
        let Some(tables) = vrfs.get_mut(&vrf).map(Arc::make_mut) else { return };
        while tables.tables.last().is_some_and(|table| table.len() == 0) {
            tables.tables.pop();
        }
        for table in tables.tables.iter_mut().filter(|table| table.is_disarranged()) {
            Arc::make_mut(table).arrange();
        }
        let before = tables.len;
        tables.len = tables.tables.iter().map(|table| table.len()).sum();
        tables.asks_for_exit = tables.tables.iter().any(|table| table.asks_for_exit());
        tables.reads_opened = tables.tables.iter().any(|table| table.reads_opened());
        tables.leads_back = tables.tables.iter().any(|table| table.leads_back());
        tables.rewrites = tables.tables.iter().any(|table| table.rewrites());
        let ends = tables
            .tables
            .iter()
            .try_fold(EndReads::default(), |all, table| table.end_reads().map(|reads| all | reads));
        let tracks = tables.tables.iter().any(|table| table.tracks());
        tables.end_reads = ends.filter(|reads| tracks && !reads.connection && !tables.rewrites);
        let reads = tables.tables.iter().map(|table| table.reads());
        tables.reads = reads.fold(PacketFields::NONE, |all, reads| all | reads);
        self.count = self.count + tables.len - before;
        if tables.len == 0 {
            vrfs.remove(&vrf);
        }
    }

    /// A number for a new flow.
    pub(crate) fn next_id(&mut self) -> FlowId {
        // There are fewer flows than numbers, so that one is free.
        let used: HashSet<u32> = match self.wrapped {
            true => self.entries().map(|entry| entry.id.0).collect(),
            false => HashSet::new(),
        };
        loop {
            let id = self.next;
            self.next = self.next.wrapping_add(1);
            self.wrapped |= self.next == 0;
            if !used.contains(&id) {
                return FlowId(id);
            }
        }
    }

    /// The place of a new flow among those of its priority.
    pub(crate) fn order_of(&mut self, flow: &Flow) -> u64 {
        if flow.drops_all() {
            return 0;
        }
        self.order += 1;
        self.order
    }
}

/// Flows, not counters or ages.
impl core::fmt::Debug for Pipeline {
    fn fmt(&self, f: &mut core::fmt::Formatter<'_>) -> core::fmt::Result {
        let flows = self.sorted();
        f.debug_list().entries(flows.iter().map(|entry| (entry.id, &entry.flow))).finish()
    }
}

impl Tables {
    /// Whether a flow of a table matches where the packet would be routed to.
    pub(crate) fn asks_for_exit(&self, table: u8) -> bool {
        self.tables.get(usize::from(table)).is_some_and(|table| table.asks_for_exit())
    }

    /// The best flow of a table. What optional fields were read is added to `reads`.
    pub(crate) fn lookup(
        &self,
        table: u8,
        fields: &Fields,
        reads: &mut PacketFields,
    ) -> Option<&Entry> {
        self.tables.get(usize::from(table))?.lookup(fields, reads)
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::change::Change;
    use crate::field::Field;
    use crate::flow::{Flow, Owner};
    use crate::matches::Match;

    fn add(pipeline: &mut Pipeline, reg: u128) -> u32 {
        let mut matches = Match::ANY;
        matches.set(Field::Reg0, reg, u128::MAX);
        let (vrf, table, priority, actions) = (VrfId::MAIN, 0, 1, Vec::new());
        let (cookie, idle_timeout, hard_timeout) = (0, 0, 0);
        let flow =
            Flow { vrf, table, priority, matches, actions, cookie, idle_timeout, hard_timeout };
        let change = Change::Add { flow, check_overlap: false };
        pipeline.apply(change, Owner::User).unwrap().added[0].0
    }

    #[test]
    fn a_number_is_given_again_when_all_were_given_and_never_while_it_is_in_use() {
        let mut pipeline = Pipeline::new();
        assert_eq!([0, 1, 2].map(|reg| add(&mut pipeline, reg)), [0, 1, 2]);
        pipeline.remove(&[FlowId(1)]);
        assert_eq!(add(&mut pipeline, 1), 3);
        pipeline.next = u32::MAX;
        let numbers = [10, 11, 12].map(|reg| add(&mut pipeline, reg));
        assert_eq!(numbers, [u32::MAX, 1, 4]);
    }
}
