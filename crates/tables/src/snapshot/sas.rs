//! Adding and removing SAs.

use std::net::IpAddr;
use std::sync::Arc;

use wire::{Spi, VrfId};

use super::Tables;
use crate::error::TableError;
use crate::limit::MAX_SAS;
use crate::log::Change;
use crate::policy::check_tunnel;
use crate::sad::{Sa, SaSpec};

impl Tables {
    /// Adds an SA to its slot. The first SA of a slot makes the slot.
    ///
    /// # Errors
    /// [`TableError::NoVrf`], [`TableError::Tunnel`], [`TableError::SaExists`],
    /// [`TableError::Limit`].
    pub fn add_sa(
        &mut self,
        spec: SaSpec,
        outbound: esp::OutboundSa,
        inbound: esp::InboundSa,
    ) -> Result<Arc<Sa>, TableError> {
        let spec = SaSpec { identity: spec.identity.canonical(), ..spec };
        self.check_new_sa(&spec)?;
        let identity = spec.identity;
        let sa = Arc::make_mut(&mut self.sad).add(spec, outbound, inbound, self.workers);
        let is_slot = self.sad.slot(sa.slot).is_some_and(|slot| slot.sas.len() == 1);
        self.changed(Change::Sa { identity, spi: spec.spi, slot: sa.slot, is_slot });
        self.hold_tunnel(identity.vrf, [Some(identity.source), Some(identity.destination)])?;
        Ok(sa)
    }

    /// Whether an SA may be added.
    ///
    /// # Errors
    /// As [`Tables::add_sa`].
    pub fn check_new_sa(&self, spec: &SaSpec) -> Result<(), TableError> {
        let identity = spec.identity;
        self.existing_vrf(identity.inner)?;
        let vrf = self.existing_vrf(identity.vrf)?;
        check_tunnel(identity.source, identity.destination, Some(spec.spi))?;
        if self.sad.inbound(identity.vrf, identity.destination, spec.spi).is_some() {
            let vrf = Arc::clone(&vrf.name);
            return Err(TableError::SaExists {
                vrf,
                destination: identity.destination,
                spi: spec.spi,
            });
        }
        if self.sad.len() >= MAX_SAS {
            return Err(TableError::Limit { what: "SAs", limit: MAX_SAS });
        }
        Ok(())
    }

    /// Removes an SA.
    ///
    /// # Errors
    /// [`TableError::NoVrf`], [`TableError::NoSa`].
    pub fn remove_sa(
        &mut self,
        vrf: VrfId,
        destination: IpAddr,
        spi: Spi,
    ) -> Result<Arc<Sa>, TableError> {
        let name = &self.existing_vrf(vrf)?.name;
        let missing = TableError::NoSa { vrf: Arc::clone(name), destination, spi };
        if self.sad.inbound(vrf, destination, spi).is_none() {
            return Err(missing);
        }
        let sa = Arc::make_mut(&mut self.sad).remove(vrf, destination, spi).ok_or(missing)?;
        let is_slot = self.sad.slot(sa.slot).is_none();
        let identity = sa.spec.identity;
        self.changed(Change::Sa { identity, spi, slot: sa.slot, is_slot });
        self.release_tunnel(identity.vrf, [Some(identity.source), Some(identity.destination)])?;
        Ok(sa)
    }
}
