//! What is in force, as a configuration.

use api::{DefaultAction, Direction, NeighbourSpec, Origin, Refusal, RefusalCode};
use pipeline::Owner;
use tables::Tables;
use types::{Ike, Ipsec, Share};

use super::Control;
use super::desired::{Desired, DesiredPort, defaults_in_force};
use super::flows;
use super::routes::as_of_file;
use crate::config::{Config, VrfSettings, Written, qdisc_spec, write};
use crate::settings::PortSettings;

impl Control {
    /// What is in force as a configuration file, which makes the same gateway. SAs are in it if
    /// `keys_file` names the file for their keys.
    ///
    /// # Errors
    /// If no file can say it.
    pub fn save(&self, keys_file: Option<&str>) -> Result<Written, Refusal> {
        let config = config(&self.publisher.current(), &self.desired);
        write(config, keys_file).map_err(|wrong| {
            let message = format!("no configuration file can say what is in force:\n{wrong}");
            Refusal::new(RefusalCode::Unsupported, message)
        })
    }
}

fn config(tables: &Tables, desired: &Desired) -> Config {
    let mut config = Config {
        gateway: desired.gateway.clone().unwrap_or_default(),
        conntrack: desired.conntrack.clone(),
        vrfs: vrfs(tables, desired),
        ..Config::default()
    };
    let mut ports: Vec<_> = desired.ports.iter().collect();
    // A VLAN behind its parent, whatever number it got.
    ports.sort_by_cached_key(|(_, port)| (desired.family(port).count(), port.id));
    config.ports = ports.into_iter().map(|(_, port)| settings(desired, port)).collect();
    for (device, tree) in &desired.qdiscs {
        let specs = tree
            .nodes()
            .map(|(parent, node)| qdisc_spec(device.name(), parent, node.handle, &node.qdisc));
        config.qdiscs.extend(specs);
    }
    config.routes = desired.routes.values().flatten().map(as_of_file).collect();
    config.routes.sort_by_key(|spec| (spec.table, spec.vrf != api::MAIN_VRF));
    config.rules = desired.rules.iter().map(|(_, rule)| rule.spec.clone()).collect();
    for (port, address, neighbour) in desired.neighbours.iter() {
        if neighbour.origin() != Origin::Gateway {
            let port = desired.port_name(port).to_owned();
            config.neighbours.push(NeighbourSpec { port, address, mac: neighbour.mac });
        }
    }
    // Ports have other numbers where the file is read.
    config
        .neighbours
        .sort_by(|one, other| (&one.port, one.address).cmp(&(&other.port, other.address)));
    config.filters = desired.filters.values().map(|entry| entry.spec.clone()).collect();
    let flows = tables.pipeline().sorted().into_iter().filter(|it| it.owner == Owner::User);
    config.flows = flows.map(|entry| flows::shown(&entry.flow, desired)).collect();
    config.firewall = desired.firewall.as_ref().map(|is| is.spec().clone());
    // Of the SAs of a tunnel, the one that was added last sends.
    let mut states: Vec<_> = desired.states.iter().collect();
    states.sort_by_cached_key(|((vrf, destination, spi), _)| {
        tables.sad().inbound(*vrf, *destination, *spi).map_or(0, |sa| sa.serial)
    });
    config.states = states.into_iter().map(|(_, entry)| entry.spec.clone()).collect();
    // In the order in which they are tried.
    for (_, spd) in tables.spds() {
        for direction in Direction::ALL {
            let all = spd.policies(direction);
            let entries = all.filter_map(|policy| desired.policies.get(&policy.index));
            config.policies.extend(entries.map(|entry| entry.spec.clone()));
        }
    }
    config
}

fn vrfs(tables: &Tables, desired: &Desired) -> Vec<VrfSettings> {
    let mut vrfs: Vec<_> = desired.vrfs.iter().collect();
    vrfs.sort_by_key(|(_, vrf)| vrf.id);
    let settings = |(name, vrf): (&String, &super::desired::DesiredVrf)| {
        let is = defaults_in_force(tables, name, vrf.id);
        let all = [
            (Direction::In, is.inbound),
            (Direction::Out, is.outbound),
            (Direction::Fwd, is.forward),
        ];
        let is_said = |(direction, action): &(Direction, DefaultAction)| {
            *action != DefaultAction::Block
                || vrf.defaults[*direction as usize] == Origin::Configuration
        };
        let defaults: Vec<_> = all.into_iter().filter(is_said).collect();
        let ipsec = tables.vrf(vrf.id).map_or(Ipsec::Auto, |vrf| vrf.ipsec);
        let ipsec = Some(ipsec).filter(|ipsec| *ipsec != Ipsec::Auto);
        let ike = tables.vrf(vrf.id).map(|vrf| vrf.ike);
        let ike = ike.filter(|ike| *ike != Ike::Bypass || vrf.ike == Origin::Configuration);
        let share = Some(tables.highest_share(vrf.id));
        let highest_share =
            share.filter(|it| *it != Share::WHOLE || vrf.highest_share == Origin::Configuration);
        let is_needed = name != api::MAIN_VRF
            || !defaults.is_empty()
            || ipsec.is_some()
            || ike.is_some()
            || highest_share.is_some();
        let table = vrf.table.map(|table| table.0);
        is_needed.then(|| VrfSettings {
            name: name.clone(),
            table,
            defaults,
            ipsec,
            ike,
            highest_share,
        })
    };
    vrfs.into_iter().filter_map(settings).collect()
}

fn settings(desired: &Desired, port: &DesiredPort) -> PortSettings {
    // The MTU of a VLAN may have been set when its parent's was larger.
    let mtu = port.mtu.min(desired.most_mtu(port));
    let is_own = mtu == port.found.mtu && port.settings.mtu.is_none();
    PortSettings {
        vrf: port.vrf.clone(),
        mtu: (!is_own).then_some(mtu),
        addresses: port.addresses.iter().map(|(own, _)| *own).collect(),
        side: port.side,
        reverse_path: port.reverse_path,
        mss: port.mss,
        up: port.up,
        ..port.settings.clone()
    }
}
