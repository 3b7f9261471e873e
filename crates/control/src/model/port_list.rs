//! The ports that are desired, found by their VRF, their number, and what they stand on.

use core::ops::Deref;

use types::PortId;

use super::desired::DesiredPort;
use super::tree::Tree;

/// Ports by name.
#[derive(Clone, Debug, Default)]
pub(super) struct PortList {
    ports: Tree<String, DesiredPort>,
    names: Tree<PortId, String>,
    /// By VRF.
    of_vrf: NamesBy,
    /// By parent: its VLANs.
    vlans: NamesBy,
    /// By port: the xfrm links that have it as their dev.
    xfrm_links: NamesBy,
}

impl PortList {
    /// Puts a port in the place of the one of this name.
    pub(super) fn insert(&mut self, name: String, port: DesiredPort) {
        self.remove(&name);
        self.names.insert(port.id, name.clone());
        self.of_vrf.add(&port.vrf, &name);
        let kind = &port.settings.kind;
        kind.vlan().into_iter().for_each(|(parent, _)| self.vlans.add(parent, &name));
        kind.xfrm().into_iter().for_each(|(dev, _)| self.xfrm_links.add(dev, &name));
        self.ports.insert(name, port);
    }

    pub(super) fn remove(&mut self, name: &str) -> Option<DesiredPort> {
        let port = self.ports.remove(name)?;
        // Another one may have its number already.
        if self.names.get(&port.id).is_some_and(|is| is == name) {
            self.names.remove(&port.id);
        }
        self.of_vrf.remove(&port.vrf, name);
        let kind = &port.settings.kind;
        kind.vlan().into_iter().for_each(|(parent, _)| self.vlans.remove(parent, name));
        kind.xfrm().into_iter().for_each(|(dev, _)| self.xfrm_links.remove(dev, name));
        Some(port)
    }

    /// Replaces what a port is like as it was found. Nothing is found by that.
    pub(super) fn set_found(&mut self, name: &str, found: super::desired::Found) {
        if let Some(port) = self.ports.get_mut(name) {
            port.found = found;
        }
    }

    /// What the port of this number is called.
    pub(super) fn name_of(&self, id: PortId) -> Option<&str> {
        self.names.get(&id).map(String::as_str)
    }

    /// The names of the ports of a VRF, in order.
    pub(super) fn of_vrf(&self, vrf: &str) -> impl Iterator<Item = &String> {
        self.of_vrf.of(vrf)
    }

    /// The ports that are meant, in order: the one of this name if one is said, and those of this VRF
    /// if one is said.
    pub(super) fn meant<'p>(
        &'p self,
        name: Option<&'p str>,
        vrf: Option<&'p str>,
    ) -> Box<dyn Iterator<Item = (&'p String, &'p DesiredPort)> + 'p> {
        match (name, vrf) {
            (Some(name), vrf) => {
                let found = self.ports.from(name.to_owned()).next().filter(|(is, _)| *is == name);
                let is_in = move |port: &DesiredPort| vrf.is_none_or(|vrf| vrf == port.vrf);
                Box::new(found.into_iter().filter(move |(_, port)| is_in(port)))
            }
            (None, Some(vrf)) => {
                Box::new(self.of_vrf(vrf).filter_map(|name| Some((name, self.ports.get(name)?))))
            }
            (None, None) => Box::new(self.ports.iter()),
        }
    }

    /// The names of a port's VLANs, in order, without theirs.
    pub(super) fn vlans_of(&self, parent: &str) -> impl Iterator<Item = &String> {
        self.vlans.of(parent)
    }

    /// The names of the xfrm links that have a port as their dev, in order.
    pub(super) fn xfrm_links_of(&self, dev: &str) -> impl Iterator<Item = &String> {
        self.xfrm_links.of(dev)
    }
}

impl Deref for PortList {
    type Target = Tree<String, DesiredPort>;

    fn deref(&self) -> &Self::Target {
        &self.ports
    }
}

/// The port of a name that is there.
#[cfg(test)]
impl core::ops::Index<&str> for PortList {
    type Output = DesiredPort;

    fn index(&self, name: &str) -> &DesiredPort {
        &self.ports[name]
    }
}

impl<'p> IntoIterator for &'p PortList {
    type Item = (&'p String, &'p DesiredPort);
    type IntoIter = <&'p Tree<String, DesiredPort> as IntoIterator>::IntoIter;

    fn into_iter(self) -> Self::IntoIter {
        self.ports.iter()
    }
}

/// Names by another name.
#[derive(Clone, Debug, Default)]
struct NamesBy(Tree<String, Tree<String, ()>>);

impl NamesBy {
    fn add(&mut self, by: &str, name: &str) {
        self.0.change_or_add(by.to_owned(), |names| names.insert(name.to_owned(), ()));
    }

    fn remove(&mut self, by: &str, name: &str) {
        let Some(names) = self.0.get_mut(by) else { return };
        names.remove(name);
        if names.is_empty() {
            self.0.remove(by);
        }
    }

    fn of(&self, by: &str) -> impl Iterator<Item = &String> {
        self.0.get(by).into_iter().flat_map(Tree::keys)
    }
}
