//! What ports were when commands put something on them, as the log tells it.

use std::collections::HashMap;

use api::{
    FilterTarget, FirewallSpec, LinkSpec, MAIN_VRF, Refusal, RefusalCode, Request, ZoneSpec,
};

use super::super::desired::{Desired, DesiredPort};

/// The VLANs, xfrm links and VRFs of ports. One of which nothing is said is neither VLAN nor xfrm
/// link, and in `main`.
#[derive(Debug, Default)]
pub(super) struct FormerPorts {
    links: HashMap<String, LinkSpec>,
    vrfs: HashMap<String, String>,
    /// Whether something that was said of ports cannot be read.
    is_incomplete: bool,
}

impl FormerPorts {
    /// Takes note of a command of the log.
    pub(super) fn note(&mut self, request: &Request) {
        match request {
            Request::LinkAdd(spec) => {
                self.links.insert(spec.name.clone(), spec.clone());
                let vrf = spec.vrf.as_deref().unwrap_or(MAIN_VRF);
                self.vrfs.insert(spec.name.clone(), vrf.to_owned());
            }
            Request::LinkSet(change) => {
                if let Some(vrf) = &change.vrf {
                    self.vrfs.insert(change.port.clone(), vrf.clone());
                }
            }
            Request::LinkDelete(link) => {
                self.links.remove(&link.port);
                self.vrfs.remove(&link.port);
            }
            _ => {}
        }
    }

    /// What is said of a port cannot be read.
    pub(super) fn note_unread(&mut self) {
        self.is_incomplete = true;
    }

    pub(super) fn is_incomplete(&self) -> bool {
        self.is_incomplete
    }

    /// The VRFs that a firewall is in, by what its ports were if they are gone.
    pub(super) fn vrfs_of_firewall(&self, spec: &FirewallSpec, desired: &Desired) -> Vec<String> {
        let vrf_of = |port: &String| match (desired.ports.get(port), self.vrfs.get(port)) {
            (Some(port), _) => port.vrf.clone(),
            (None, Some(vrf)) => vrf.clone(),
            (None, None) => MAIN_VRF.to_owned(),
        };
        let of_zone = |zone: &ZoneSpec| {
            let ports = zone.ports.iter().map(vrf_of);
            let networks = zone.networks_vrf.as_deref().unwrap_or(MAIN_VRF);
            let networks = zone.networks.first().map(|_| networks.to_owned());
            ports.chain(zone.vrfs.clone()).chain(networks).collect::<Vec<_>>()
        };
        spec.zones.iter().flat_map(of_zone).collect()
    }

    /// Refuses what a command puts on a port that is another one now: it would be somebody else's.
    pub(super) fn check(&self, request: &Request, desired: &Desired) -> Result<(), Refusal> {
        let (name, may_move) = match request {
            Request::AddressAdd(spec) | Request::AddressReplace(spec) => (&spec.port, false),
            Request::NeighbourAdd(spec) | Request::NeighbourReplace(spec) => (&spec.port, false),
            Request::QdiscAdd(spec) | Request::QdiscReplace(spec) | Request::QdiscChange(spec) => {
                (&spec.dev, false)
            }
            Request::FilterAdd(spec) | Request::FilterReplace(spec) => match &spec.target {
                FilterTarget::Dev(port) => (port, false),
                FilterTarget::Vrf(_) => return Ok(()),
            },
            // A VLAN of it, which is in a VRF of its own.
            Request::LinkAdd(spec) if spec.vlan != 0 => (&spec.parent, true),
            _ => return Ok(()),
        };
        let Some(port) = desired.ports.get(name) else { return Ok(()) };
        let was = self.vrfs.get(name).map_or(MAIN_VRF, String::as_str);
        let is_unknown = self.is_incomplete && !self.vrfs.contains_key(name);
        let why = if is_unknown {
            "may be another one in this file: what it was cannot be read".to_owned()
        } else if !self.is_same_line(name, port, desired) {
            "is another VLAN or xfrm link in this file".to_owned()
        } else if port.vrf != was && !may_move {
            format!("is in VRF {} with this file, and was in {was}", port.vrf)
        } else {
            return Ok(());
        };
        Err(Refusal::new(RefusalCode::Invalid, format!("port {name} {why}")))
    }

    /// Whether a port is the VLAN or xfrm link that it was, and so are those above it.
    fn is_same_line(&self, name: &str, port: &DesiredPort, desired: &Desired) -> bool {
        let mut is = desired.family(port);
        let mut was = Some(name);
        while let Some(name) = was {
            let Some(is) = is.next() else { return false };
            let link = self.links.get(name);
            let vlan = link.filter(|link| link.vlan != 0);
            let tag = vlan.map(|link| (link.parent.as_str(), link.vlan, link.protocol));
            let is_tag = is.settings.kind.vlan().map(|it| (it.0, it.1.id.number(), it.1.protocol));
            let if_id = link.map_or(0, |link| link.if_id);
            let is_if_id = is.settings.kind.xfrm().map_or(0, |(_, if_id)| if_id.number());
            if (tag, if_id) != (is_tag, is_if_id) {
                return false;
            }
            was = vlan.map(|link| link.parent.as_str());
        }
        is.next().is_none()
    }
}
