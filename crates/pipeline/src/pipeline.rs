//! The flows of all VRFs.

use std::collections::BTreeMap;
use std::sync::Arc;

use types::{PacketFields, VrfId};

use crate::action::Action;
use crate::ct::NatNew;
use crate::fields::Fields;
use crate::flow::{Entry, Flow, FlowId, Owner};

/// The flows of all VRFs. A clone shares everything, and a change to a clone copies one table.
#[derive(Clone, Debug, Default)]
pub struct Pipeline {
    vrfs: Arc<BTreeMap<VrfId, Arc<Tables>>>,
    count: usize,
    next: u32,
}

/// The flows of a VRF.
#[derive(Clone, Debug, Default)]
pub(crate) struct Tables {
    /// By number; empty ones are not there.
    tables: BTreeMap<u8, Arc<Vec<Arc<Entry>>>>,
    reads: PacketFields,
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

    /// Adds a flow. One with the same match and priority in the same table goes, and its counters
    /// with it.
    pub fn add(&mut self, flow: Flow, owner: Owner) -> FlowId {
        let id = FlowId(self.next);
        self.next = self.next.wrapping_add(1);
        let tables = Arc::make_mut(Arc::make_mut(&mut self.vrfs).entry(flow.vrf).or_default());
        let table = Arc::make_mut(tables.tables.entry(flow.table).or_default());
        let before = table.len();
        table.retain(|old| old.flow.priority != flow.priority || old.flow.matches != flow.matches);
        let at = table.partition_point(|old| old.flow.priority >= flow.priority);
        tables.reads = tables.reads | flow.reads();
        table.insert(at, Arc::new(Entry { id, owner, flow }));
        self.count = self.count + table.len() - before;
        id
    }

    /// All flows: by VRF, by table, and the highest priority first.
    pub fn flows(&self) -> impl Iterator<Item = &Entry> {
        self.vrfs
            .values()
            .flat_map(|tables| tables.tables.values())
            .flat_map(|table| table.iter().map(|entry| &**entry))
    }

    /// What `ct` translates of new connections, of all flows.
    pub fn translations(&self) -> impl Iterator<Item = &NatNew> {
        self.flows().flat_map(|entry| &entry.flow.actions).filter_map(|action| match action {
            Action::Ct(ct) => ct.nat.as_ref()?.new.as_ref(),
            _ => None,
        })
    }

    pub(crate) fn tables(&self, vrf: VrfId) -> Option<&Tables> {
        self.vrfs.get(&vrf).map(|tables| &**tables)
    }
}

impl Tables {
    /// The best flow of a table. What optional fields were read is added to `reads`.
    pub(crate) fn lookup(
        &self,
        table: u8,
        fields: &Fields,
        reads: &mut PacketFields,
    ) -> Option<&Entry> {
        let found = self.tables.get(&table)?.iter().find(|entry| {
            *reads = *reads | entry.flow.matches.reads();
            entry.flow.matches.matches(fields)
        });
        found.map(|entry| &**entry)
    }
}
