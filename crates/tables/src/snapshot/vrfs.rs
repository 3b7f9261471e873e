//! Adding and removing VRFs.

use std::sync::Arc;

use wire::VrfId;

use super::Tables;
use crate::error::TableError;
use crate::filter::FilterTarget;
use crate::limit::MAX_VRFS;
use crate::log::Change;
use crate::policy::{Action, Direction};
use crate::qdisc::QdiscDevice;
use crate::vrf::Vrf;

/// The longest name, in bytes.
const MAX_NAME: usize = 64;

impl Tables {
    /// Adds a VRF. It gets the lowest number that is free.
    ///
    /// # Errors
    /// [`TableError::VrfName`], [`TableError::VrfExists`], [`TableError::Limit`].
    pub fn add_vrf(&mut self, name: &str) -> Result<VrfId, TableError> {
        let unfit = |character: char| character.is_whitespace() || character.is_control();
        if name.is_empty() || name.len() > MAX_NAME || name.contains(unfit) {
            return Err(TableError::VrfName(name.into()));
        }
        if self.vrf_named(name).is_some() {
            return Err(TableError::VrfExists(name.into()));
        }
        let free = self.vrfs.iter().position(Option::is_none).unwrap_or(self.vrfs.len());
        if free >= MAX_VRFS {
            return Err(TableError::Limit { what: "VRFs", limit: MAX_VRFS });
        }
        let id = VrfId(free as u16);
        if free == self.vrfs.len() {
            self.vrfs.push(None);
        }
        self.vrfs[free] = Some(Arc::new(Vrf::new(id, name, self.lookup_engine, self.secret)));
        self.changed(Change::Vrf(id));
        Ok(id)
    }

    /// Whether a policy of another VRF has a tunnel whose outer packets are in this one.
    fn has_tunnels_of_others(&self, id: VrfId) -> bool {
        let directions = Direction::ALL.into_iter();
        let mut policies = directions
            .flat_map(|direction| self.vrfs().flat_map(move |vrf| vrf.spd.policies(direction)));
        policies.any(|policy| match policy.spec.action {
            Action::Protect(template) => template.vrf == Some(id),
            Action::Bypass | Action::Discard => false,
        })
    }

    /// Removes a VRF that has no port, policy or SA. Routes that are left, such as blackholes, go
    /// with it.
    ///
    /// # Errors
    /// [`TableError::NoVrf`], [`TableError::VrfMain`], [`TableError::VrfInUse`].
    pub fn remove_vrf(&mut self, id: VrfId) -> Result<(), TableError> {
        let vrf = self.existing_vrf(id)?;
        if id == VrfId::MAIN {
            return Err(TableError::VrfMain);
        }
        let what = if self.ports().any(|port| port.spec.vrf == id) {
            Some("ports")
        } else if !vrf.spd.is_empty() {
            Some("policies")
        } else if self
            .sad
            .iter()
            .any(|sa| [sa.spec.identity.vrf, sa.spec.identity.inner].contains(&id))
        {
            Some("SAs")
        } else if self.has_tunnels_of_others(id) {
            Some("tunnels of another VRF's policies")
        } else {
            None
        };
        if let Some(what) = what {
            return Err(TableError::VrfInUse { vrf: Arc::clone(&vrf.name), what });
        }
        self.remove_filters(FilterTarget::Vrf(id));
        self.vrfs[usize::from(id.0)] = None;
        self.remove_qdisc(QdiscDevice::Vrf(id))?;
        self.changed(Change::Vrf(id));
        Ok(())
    }
}
