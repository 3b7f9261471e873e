//! Putting queueing disciplines on ports and VRFs, and taking them away.

use std::sync::Arc;

use types::qdisc::{Qdisc, QdiscHandle};
use wire::PortId;

use super::Tables;
use crate::counters::FlowCounters;
use crate::error::TableError;
use crate::port::{Port, PortSpec};
use crate::qdisc::{PlacedQdisc, QdiscDevice, QdiscNode, Qdiscs};
use crate::vlan::Vlan;

impl Tables {
    /// Every queueing discipline. The same until one of them, or its device, changes.
    pub fn qdiscs(&self) -> &Arc<Qdiscs> {
        &self.qdiscs
    }

    /// Puts `root` on a device, with `child` under it, in place of what is there. A discipline of
    /// the same handle and kind goes on counting.
    ///
    /// Next hops change, and no decision does.
    ///
    /// # Errors
    /// [`TableError::NoPort`], [`TableError::NoVrf`].
    pub fn set_qdisc(
        &mut self,
        device: QdiscDevice,
        root: (QdiscHandle, Qdisc),
        child: Option<(QdiscHandle, Qdisc)>,
    ) -> Result<(), TableError> {
        let up = match device {
            QdiscDevice::Port(id) => self.existing_port(id)?.spec.up,
            QdiscDevice::Vrf(id) => self.existing_vrf(id).map(|_| true)?,
        };
        let mut next = self.clone();
        let worker = self.worker_of(device);
        let qdiscs = &mut Arc::make_mut(&mut next.qdiscs).0;
        let old = qdiscs.get(&device);
        let old_child = old.and_then(|old| old.child.as_ref());
        let placed = PlacedQdisc {
            root: QdiscNode::new(root.0, root.1, old.map(|old| &old.root)),
            child: child.map(|(handle, qdisc)| QdiscNode::new(handle, qdisc, old_child)),
            // What waits does not move to another one.
            worker: old.map_or(worker, |old| old.worker),
            up,
            not_handed_over: old
                .map_or_else(|| FlowCounters::new(self.workers), |old| old.not_handed_over.clone()),
        };
        qdiscs.insert(device, placed);
        next.refresh_queued(device)?;
        *self = next;
        Ok(())
    }

    /// The worker that a device's discipline belongs to: that of a VLAN with those of the port whose
    /// VLAN it is, as its frames pass these next.
    fn worker_of(&self, device: QdiscDevice) -> usize {
        let number = match device {
            QdiscDevice::Port(id) => {
                let vlan = self.port(id).and_then(|port| port.spec.vlan);
                vlan.map_or(id, |vlan| vlan.queue()).0
            }
            QdiscDevice::Vrf(id) => id.0,
        };
        usize::from(number) % self.workers.max(1)
    }

    /// Takes what stands on a device away. Returns whether something did.
    ///
    /// # Errors
    /// None that a caller can cause.
    pub fn remove_qdisc(&mut self, device: QdiscDevice) -> Result<bool, TableError> {
        if self.qdiscs.on(device).is_none() {
            return Ok(false);
        }
        let mut next = self.clone();
        Arc::make_mut(&mut next.qdiscs).0.remove(&device);
        next.refresh_queued(device)?;
        *self = next;
        Ok(true)
    }

    /// Whether packets that leave by a port have to pass a discipline: its own, those of the ports
    /// whose VLAN it is, or its VRF's.
    pub(super) fn is_queued(&self, id: PortId, spec: &PortSpec) -> bool {
        let parent = spec.vlan.map(|vlan| QdiscDevice::Port(vlan.parent));
        let opened = spec.vlan.map(|vlan| QdiscDevice::Port(vlan.queue()));
        let own = Some(QdiscDevice::Port(id));
        let devices = [own, Some(QdiscDevice::Vrf(spec.vrf)), parent, opened];
        !self.qdiscs.0.is_empty()
            && devices.into_iter().flatten().any(|device| self.qdiscs.on(device).is_some())
    }

    /// Makes next hops of all ports that a device's discipline concerns what they are now.
    fn refresh_queued(&mut self, device: QdiscDevice) -> Result<(), TableError> {
        let ports: Vec<_> = match device {
            QdiscDevice::Port(id) => {
                let is_of = |port: &&Port| {
                    let of_parent = |vlan: Vlan| vlan.parent == id || vlan.queue() == id;
                    port.id == id || port.spec.vlan.is_some_and(of_parent)
                };
                self.ports().filter(is_of).map(|port| port.id).collect()
            }
            QdiscDevice::Vrf(vrf) => self.ports_of(vrf).map(|port| port.id).collect(),
        };
        for id in ports {
            let old = self.existing_port(id)?.clone();
            let is_queued = self.is_queued(id, &old.spec);
            if is_queued != old.is_queued {
                self.port_mut(id)?.is_queued = is_queued;
                self.refresh_next_hops(&old)?;
            }
        }
        Ok(())
    }

    /// A port is up or down now, or gone.
    pub(super) fn qdisc_follows(&mut self, id: PortId) {
        let device = QdiscDevice::Port(id);
        let Some(placed) = self.qdiscs.on(device) else { return };
        match self.port(id).map(|port| port.spec.up) {
            Some(up) if up == placed.up => {}
            Some(up) => {
                if let Some(placed) = Arc::make_mut(&mut self.qdiscs).0.get_mut(&device) {
                    placed.up = up;
                }
            }
            None => _ = Arc::make_mut(&mut self.qdiscs).0.remove(&device),
        }
    }
}
