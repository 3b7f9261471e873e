//! VRFs, and what the file says of them.

use std::collections::{BTreeSet, HashMap, HashSet};

use api::{
    ChangeKind, DefaultAction, Direction, FilterTarget, Origin, PolicyFilter, Refusal, RouteFilter,
    StateFilter,
};
use tables::TableId;
use types::{Ike, Ipsec, Share, VrfId};

use super::super::Draft;
use super::super::desired::{DesiredVrf, defaults_in_force};
use super::super::qdiscs::Device;
use super::super::refuse::refusal;
use super::Notes;
use super::ports::port_changes;
use crate::config::Config;

impl Draft<'_> {
    /// Makes the VRFs those of the file and of commands. Those that go do so at the end, when nothing
    /// is in them.
    pub(super) fn add_vrfs(&mut self, config: &Config, notes: &mut Notes) -> Result<(), Refusal> {
        self.reconcile_tables(config, notes)?;
        let said: HashSet<_> = config.vrfs.iter().filter_map(|vrf| vrf.table).collect();
        for vrf in &config.vrfs {
            match self.desired.vrfs.get_mut(&vrf.name) {
                Some(known) => {
                    known.table = vrf.table.map(TableId);
                    if known.origin == Origin::Runtime {
                        known.origin = Origin::Configuration;
                    }
                }
                None => {
                    let origin = Origin::Configuration;
                    self.add_vrf_beside(&vrf.name, vrf.table, origin, |it| said.contains(&it.0))?;
                    notes.note(ChangeKind::Added, "vrf", &vrf.name);
                }
            }
        }
        Ok(())
    }

    /// Gives the VRFs that are there the tables that the file says, all at once, so that they may
    /// exchange them. What the file wants for another VRF is given up by those that go, and by those
    /// whose table the gateway has chosen.
    fn reconcile_tables(&mut self, config: &Config, notes: &mut Notes) -> Result<(), Refusal> {
        let said: HashMap<_, _> =
            config.vrfs.iter().map(|vrf| (vrf.name.as_str(), vrf.table.map(TableId))).collect();
        let of_vrfs: HashSet<_> = said.values().copied().flatten().collect();
        let of_routes: HashSet<_> =
            config.routes.iter().filter_map(|spec| spec.table.map(TableId)).collect();
        let is_meant = |table| of_vrfs.contains(&table) || of_routes.contains(&table);
        let (tables, vrfs) = (self.tables.clone(), self.desired.vrfs.clone());
        let mut free = tables.free_tables(is_meant);
        let mut moves = Vec::new();
        for (name, vrf) in vrfs.iter().filter(|(name, _)| *name != api::MAIN_VRF) {
            let Some(is) = tables.vrf(vrf.id).map(|vrf| vrf.table) else { continue };
            let goes = vrf.origin == Origin::Configuration && !said.contains_key(name.as_str());
            let wanted = match said.get(name.as_str()).copied().unwrap_or(vrf.table) {
                _ if goes && is_meant(is) => free.next(),
                None if !goes && of_vrfs.contains(&is) => free.next(),
                Some(table) if !goes => Some(table),
                _ => None,
            };
            let Some(wanted) = wanted.filter(|wanted| *wanted != is) else { continue };
            moves.push((name.as_str(), wanted));
            if !goes {
                let text = format!("{name}: table {is} -> {wanted}");
                notes.note(ChangeKind::Modified, "vrf", text);
            }
        }
        self.renumber_vrfs(&moves)
    }

    pub(super) fn remove_vrfs(
        &mut self,
        config: &Config,
        notes: &mut Notes,
    ) -> Result<(), Refusal> {
        let wanted: HashSet<_> = config.vrfs.iter().map(|vrf| vrf.name.as_str()).collect();
        let gone = |(name, vrf): &(&String, &DesiredVrf)| {
            vrf.origin == Origin::Configuration && !wanted.contains(name.as_str())
        };
        let gone: Vec<_> =
            self.desired.vrfs.iter().filter(gone).map(|(name, _)| name.clone()).collect();
        for name in gone {
            // What commands have put into it goes with it, as there is no place left for it.
            let vrf = Some(name.clone());
            let policies =
                self.flush_policies(&PolicyFilter { vrf: vrf.clone(), ..Default::default() })?;
            let states =
                self.flush_states(&StateFilter { vrf: vrf.clone(), ..Default::default() })?;
            let routes = self.flush_routes(&RouteFilter { vrf, ..Default::default() })?;
            notes.removed_qdiscs(self.desired, &Device::Vrf(name.clone()));
            notes.removed_filters(self.desired, &FilterTarget::Vrf(name.clone()));
            let ports = self.desired.ports.meant(None, Some(&name));
            let ports: Vec<_> = ports.map(|(name, port)| (name.clone(), port.clone())).collect();
            self.delete_vrf(&name)?;
            for (port, before) in ports {
                let is = self.desired.port(&port)?;
                let most = self.desired.most_mtu(is);
                let changes = port_changes(&before, is, most).join(", ");
                notes.note(ChangeKind::Modified, "port", format!("{port}: {changes}"));
            }
            let with = match policies + states + routes {
                0 => String::new(),
                _ => format!(
                    ", with {policies} policies, {states} SAs and {routes} routes that commands \
                    had added"
                ),
            };
            notes.note(ChangeKind::Removed, "vrf", format!("{name}{with}"));
        }
        Ok(())
    }

    /// Sets what the file says of VRFs as gateways. What it no longer says stays, unless the VRF
    /// was to take no policies.
    pub(super) fn reconcile_ipsec(
        &mut self,
        config: &Config,
        notes: &mut Notes,
        now: impl Fn(Ipsec) -> bool,
    ) -> Result<(), Refusal> {
        let said: HashMap<_, _> =
            config.vrfs.iter().map(|vrf| (vrf.name.as_str(), vrf.ipsec)).collect();
        let vrfs: Vec<_> =
            self.desired.vrfs.iter().map(|(name, vrf)| (name.clone(), vrf.clone())).collect();
        for (name, vrf) in vrfs {
            let is = self.tables.vrf(vrf.id).map_or(Ipsec::Auto, |vrf| vrf.ipsec);
            let (wanted, origin) = match said.get(name.as_str()).copied().flatten() {
                // A gateway that had policies stays one.
                Some(Ipsec::Auto) if is == Ipsec::Required => (is, Origin::Configuration),
                Some(ipsec) => (ipsec, Origin::Configuration),
                None if vrf.ipsec == Origin::Configuration && is == Ipsec::Off => {
                    (Ipsec::Auto, Origin::Gateway)
                }
                None => continue,
            };
            if !now(wanted) {
                continue;
            }
            self.set_ipsec(&name, vrf.id, wanted, origin)?;
            if wanted != is {
                notes.note(ChangeKind::Modified, "vrf", format!("{name}: ipsec {is} -> {wanted}"));
            }
        }
        Ok(())
    }

    /// The VRFs that policies and SAs of the file can make IPsec gateways.
    pub(super) fn vrfs_of_auto(&self) -> Vec<(String, VrfId)> {
        let is_auto = |vrf| self.tables.vrf(vrf).is_some_and(|vrf| vrf.ipsec == Ipsec::Auto);
        let vrfs = self.desired.vrfs.iter().filter(|(_, vrf)| is_auto(vrf.id));
        vrfs.map(|(name, vrf)| (name.clone(), vrf.id)).collect()
    }

    /// Whose packets the file has SAs for is a gateway, whether its policies are there yet or not. Those of
    /// xfrm links have their VRF for outer packets alone. Notes those of `of_auto` that are gateways now.
    pub(super) fn require_ipsec(
        &mut self,
        config: &Config,
        of_auto: Vec<(String, VrfId)>,
        notes: &mut Notes,
    ) -> Result<(), Refusal> {
        let of_vrfs = config.states.iter().filter(|spec| spec.if_id == 0);
        for name in of_vrfs.map(|spec| spec.clear_vrf()).collect::<BTreeSet<_>>() {
            let vrf = self.desired.vrf(name)?;
            if self.tables.vrf(vrf).is_some_and(|vrf| vrf.ipsec == Ipsec::Auto) {
                self.tables.set_ipsec(vrf, Ipsec::Required).map_err(|error| refusal(&error))?;
            }
        }
        for (name, vrf) in of_auto {
            let Some(vrf) = self.tables.vrf(vrf) else { continue };
            let (auto, is) = (Ipsec::Auto, vrf.ipsec);
            if is == Ipsec::Required {
                let closed = match vrf.is_closed() {
                    true => " by its SAs; nothing crosses its boundary, since it has no policies",
                    false => "",
                };
                notes.note(
                    ChangeKind::Modified,
                    "vrf",
                    format!("{name}: ipsec {auto} -> {is}{closed}"),
                );
            }
        }
        Ok(())
    }

    /// Sets what the file says of IKE, and what it no longer says back.
    pub(super) fn reconcile_ike(
        &mut self,
        config: &Config,
        notes: &mut Notes,
    ) -> Result<(), Refusal> {
        let said: HashMap<_, _> =
            config.vrfs.iter().map(|said| (said.name.as_str(), said.ike)).collect();
        let vrfs: Vec<_> =
            self.desired.vrfs.iter().map(|(name, vrf)| (name.clone(), vrf.clone())).collect();
        for (name, vrf) in vrfs {
            let said = said.get(name.as_str()).copied().flatten();
            let (ike, origin) = match said {
                Some(ike) => (ike, Origin::Configuration),
                None if vrf.ike == Origin::Configuration => (Ike::Bypass, Origin::Gateway),
                None => continue,
            };
            let is = self.tables.vrf(vrf.id).map_or(Ike::Bypass, |vrf| vrf.ike);
            self.set_ike(&name, vrf.id, ike, origin)?;
            if ike != is {
                notes.note(ChangeKind::Modified, "vrf", format!("{name}: ike {is} -> {ike}"));
            }
        }
        Ok(())
    }

    /// Sets what the file says of highest shares, and what it no longer says back.
    pub(super) fn reconcile_highest_shares(
        &mut self,
        config: &Config,
        notes: &mut Notes,
    ) -> Result<(), Refusal> {
        let said: HashMap<_, _> =
            config.vrfs.iter().map(|vrf| (vrf.name.as_str(), vrf.highest_share)).collect();
        let vrfs: Vec<_> =
            self.desired.vrfs.iter().map(|(name, vrf)| (name.clone(), vrf.clone())).collect();
        for (name, vrf) in vrfs {
            let (share, origin) = match said.get(name.as_str()).copied().flatten() {
                Some(share) => (share, Origin::Configuration),
                None if vrf.highest_share == Origin::Configuration => {
                    (Share::WHOLE, Origin::Gateway)
                }
                None => continue,
            };
            let is = self.tables.highest_share(vrf.id);
            self.set_highest_share(&name, vrf.id, share, origin)?;
            if share != is {
                let (is, share) = (is.percent(), share.percent());
                let text = format!("{name}: highest-share {is} -> {share}");
                notes.note(ChangeKind::Modified, "vrf", text);
            }
        }
        Ok(())
    }

    pub(super) fn reconcile_defaults(
        &mut self,
        config: &Config,
        notes: &mut Notes,
    ) -> Result<(), Refusal> {
        let said: HashMap<_, _> =
            config.vrfs.iter().map(|vrf| (vrf.name.as_str(), &vrf.defaults)).collect();
        let vrfs: Vec<_> =
            self.desired.vrfs.iter().map(|(name, vrf)| (name.clone(), vrf.clone())).collect();
        for (name, vrf) in vrfs {
            let is = defaults_in_force(&self.tables, &name, vrf.id);
            for (direction, is) in [
                (Direction::In, is.inbound),
                (Direction::Out, is.outbound),
                (Direction::Fwd, is.forward),
            ] {
                let said = said
                    .get(name.as_str())
                    .and_then(|defaults| defaults.iter().find(|(of, _)| *of == direction));
                let (action, origin) = match said {
                    Some((_, action)) => (*action, Origin::Configuration),
                    None if vrf.defaults[direction as usize] == Origin::Configuration => {
                        (DefaultAction::Block, Origin::Gateway)
                    }
                    None => continue,
                };
                self.set_default(&name, vrf.id, direction, action, origin)?;
                if action != is {
                    notes.note(
                        ChangeKind::Modified,
                        "vrf",
                        format!("{name}: default {direction} {is} -> {action}"),
                    );
                }
            }
        }
        Ok(())
    }
}
