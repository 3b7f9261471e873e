//! What the system's interfaces are like, and which ports and routes that takes out of use.

use core::fmt::Write;
use std::net::IpAddr;

use api::{InterfaceState, Refusal, RouteSpec};
use tables::{SystemAddresses, TableRef, Tables};
use types::{IpPrefix, Mac, PortId, VrfId};

use super::desired::{Desired, DesiredPort};
use super::ports::check_buffers;
use super::recursive;
use super::refuse::no_port;
use super::routes::usable;
use super::{Control, Draft};
use crate::describe;

/// What was seen of the interface that a port is on.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct SeenInterface {
    /// Whether it can send and receive.
    pub state: InterfaceState,
    /// The port's Ethernet address. Nothing if the interface is gone, and so is the MTU.
    pub mac: Mac,
    /// The largest IP packet in bytes that the interface takes.
    pub mtu: u16,
    /// Whether other stations may be on its link than before: it was exchanged, or lost its carrier
    /// for a moment. Going down says so too.
    pub is_other_link: bool,
}

impl Control {
    /// Takes note of what the interface of a port is like. The port sends and receives only while
    /// its interface can. It has the interface's MTU unless it was given another one, and never
    /// more.
    ///
    /// # Errors
    /// If the port cannot have the new MTU or Ethernet address. It keeps the old ones; the rest is
    /// done.
    pub fn interface(&mut self, port: PortId, seen: &SeenInterface) -> Result<(), Refusal> {
        let name = self.desired.port_name(port).to_owned();
        let Some(found) = self.desired.ports.get(&name).map(|port| port.found) else {
            return Err(no_port(&name, self.desired.ports.keys().map(String::as_str)));
        };
        let refused = match self.change_interface(&name, seen) {
            Ok(()) => return Ok(()),
            Err(refused) => refused,
        };
        let smaller = SeenInterface { mtu: found.mtu, ..*seen };
        let as_found = SeenInterface { mac: found.mac, ..smaller };
        self.change_interface(&name, &smaller)
            .or_else(|_| self.change_interface(&name, &as_found))?;
        Err(refused)
    }

    fn change_interface(&mut self, name: &str, seen: &SeenInterface) -> Result<(), Refusal> {
        let before = self.desired.ports.clone();
        let (tables, origin) = (self.tables(), api::Origin::Gateway);
        let (desired, randomness) = (&mut self.desired, &mut self.randomness);
        let mut draft = Draft::new(tables, desired, randomness, &mut self.sequences, origin);
        let done = draft.change_interface(name, seen);
        let tables = draft.tables;
        match done {
            Ok(()) => self.publisher.publish(tables),
            Err(_) => self.desired.ports = before,
        }
        done
    }

    /// Takes note of the addresses that the system's own stack has.
    pub fn system_addresses(&mut self, addresses: SystemAddresses) {
        let mut tables = self.tables();
        if tables.set_system_addresses(addresses) {
            self.publisher.publish(tables);
        }
    }

    /// Why a port does not send and receive, if it does not.
    pub fn why_down(&self, port: PortId) -> Option<String> {
        why_down(&self.publisher.current(), &self.desired, port)
    }

    /// By which routes the recursive next hop of the route of a prefix is reached, if that is one:
    /// each next hop with the prefix of the route that leads to it, which may be recursive itself.
    pub fn reached_by(&self, table: TableRef, prefix: IpPrefix) -> Vec<(IpAddr, IpPrefix)> {
        let tables = self.publisher.current();
        let table = match table {
            TableRef::Number(number) => tables.vrf_of_table(number).map_or(table, TableRef::Vrf),
            TableRef::Vrf(_) => table,
        };
        recursive::reached_by(&tables, &self.desired.routes, (table, prefix))
    }

    /// Routes to `address` that are as specific as the one in use, or more, and that are not used
    /// because their ports are down: each in words, with the reason.
    pub fn routes_not_used(&self, vrf: VrfId, address: IpAddr) -> Vec<String> {
        let tables = self.publisher.current();
        let used = tables.vrf(vrf).and_then(|vrf| vrf.route(address));
        let least = used.map_or(0, |route| route.prefix.length());
        let longest = if address.is_ipv6() { 128 } else { 32 };
        let prefixes = (least..=longest)
            .rev()
            .filter_map(|length| Some(IpPrefix::new(address, length).ok()?.network()));
        let table = TableRef::Vrf(vrf);
        prefixes
            .filter_map(|prefix| self.desired.routes.get(&(table, prefix)))
            .flatten()
            .filter(|route| usable(&tables, &self.desired.routes, table, &route.spec).is_none())
            .filter_map(|route| why_not_used(&tables, &self.desired, vrf, &route.spec))
            .collect()
    }
}

impl Draft<'_> {
    fn change_interface(&mut self, name: &str, seen: &SeenInterface) -> Result<(), Refusal> {
        self.desired.touch_port(name);
        let mut port = self.desired.port(name)?.clone();
        let vlans = self.desired.vlans_of(name);
        let before = port.found;
        port.interface = seen.state;
        // What is gone is known as it last was.
        if seen.state != InterfaceState::Gone {
            (port.found.mac, port.found.mtu) = (seen.mac, seen.mtu);
            if port.settings.mtu.is_none() && port.mtu == before.mtu {
                port.mtu = seen.mtu;
            }
        }
        let mtu = port.mtu.min(port.found.mtu);
        if mtu > before.mtu {
            let large_buffers = self.desired.large_buffers.unwrap_or(0);
            let tags = self.desired.most_tags(name);
            check_buffers(name, port.found.link, tags, mtu, large_buffers)?;
        }
        // Parents come before theirs.
        for vlan in &vlans {
            let is = self.desired.port(vlan)?;
            let Some((parent, tag)) = is.settings.kind.vlan() else { continue };
            let found = match parent == name {
                true => port.found_of_vlan(tag),
                false => self.desired.port(parent)?.found_of_vlan(tag),
            };
            self.desired.ports.set_found(vlan, found);
        }
        let id = port.id;
        self.change_port(name, port)?;
        if seen.is_other_link {
            let vlans = vlans.iter().filter_map(|vlan| Some(self.desired.ports.get(vlan)?.id));
            for port in vlans.chain([id]).collect::<Vec<_>>() {
                self.desired.neighbours.forget_learned(&mut self.tables, port);
            }
        }
        Ok(())
    }
}

fn why_down(tables: &Tables, desired: &Desired, port: PortId) -> Option<String> {
    let spec = &tables.port(port)?.spec;
    if spec.up {
        return None;
    }
    let name = desired.port_name(port);
    let is = desired.ports.get(name)?;
    if !is.up {
        return Some(format!("port {name} is set down"));
    }
    if let Some(parent) = desired.parent(is) {
        return why_down(tables, desired, parent.id).map(|why| format!("{why}, with VLAN {name}"));
    }
    let interface = is.settings.kind.interface().unwrap_or(name);
    let why = match is.interface {
        InterfaceState::Up => return None,
        InterfaceState::Down => "is down",
        InterfaceState::NoCarrier => "has no carrier",
        InterfaceState::Gone => "is gone",
    };
    Some(format!("interface {interface} of port {name} {why}"))
}

/// Why a route is not used, if that is for the state of its ports.
fn why_not_used(
    tables: &Tables,
    desired: &Desired,
    vrf: VrfId,
    spec: &RouteSpec,
) -> Option<String> {
    if let Some(via) = spec.via.filter(|_| spec.recursive) {
        let place = (TableRef::Vrf(vrf), spec.destination);
        let why = recursive::resolve(tables, &desired.routes, place, via).err()?;
        return Some(format!("{} is not used: {why}", describe::route(spec)));
    }
    let on_link = |port: &&DesiredPort, address: IpAddr| {
        let reaches = |port: &tables::Port| port.spec.vrf == vrf && port.reaches(address);
        tables.port(port.id).is_some_and(reaches)
    };
    let ways = spec.nexthops.iter().map(|one| (one.dev.as_ref(), one.gateway));
    let ways = ways.chain((spec.nexthops.is_empty()).then_some((spec.port.as_ref(), spec.via)));
    let mut text = String::new();
    for (name, gateway) in ways {
        let port = match (name, gateway) {
            (Some(name), _) => desired.ports.get(name)?,
            (None, gateway) => desired
                .ports
                .values()
                .find(|port| on_link(port, gateway.unwrap_or(spec.destination.address())))?,
        };
        let why = why_down(tables, desired, port.id)?;
        let _ = write!(text, "{}{why}", if text.is_empty() { "" } else { ", " });
    }
    Some(format!("{} is not used: {text}", describe::route(spec)))
}
