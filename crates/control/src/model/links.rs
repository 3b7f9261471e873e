//! Ports and VRFs as links.

use std::collections::{BTreeSet, HashMap, HashSet};

use api::{
    LinkCounts, LinkData, LinkFilter, LinkInfo, LinkStatistics, LinkView, MAIN_VRF, MssClamp,
    PortStatistics, PortView, Refusal, ReversePath, Side, VrfView,
};
use types::{LinkKind, Mac};

use super::refuse::{no_link, no_vrf};

/// VRFs' numbers as links begin here, above those of ports.
const FIRST_VRF: u32 = 1 << 16;
/// That of a VRF's device with Linux: as long as any packet.
const MTU_OF_VRF: u32 = 65_575;

/// All `ports` and `vrfs` as links, as far as `filter` asks for them. `counts` says what VRFs have
/// received and sent.
///
/// # Errors
/// There is no such port or VRF.
pub fn links(
    ports: &[PortView],
    vrfs: &[VrfView],
    filter: &LinkFilter,
    counts: &VrfCounts,
) -> Result<Vec<LinkView>, Refusal> {
    let is_vrf = |name: &str| name != MAIN_VRF && vrfs.iter().any(|vrf| vrf.name == *name);
    if let Some(name) = &filter.port
        && !ports.iter().any(|port| port.name == *name)
        && !is_vrf(name)
    {
        let vrfs = vrfs.iter().map(|vrf| vrf.name.as_str()).filter(|name| *name != MAIN_VRF);
        let known = ports.iter().map(|port| port.name.as_str()).chain(vrfs);
        return Err(no_link(name, known));
    }
    if let Some(name) = &filter.vrf
        && !vrfs.iter().any(|vrf| vrf.name == *name)
    {
        return Err(no_vrf(name, vrfs.iter().map(|vrf| vrf.name.as_str())));
    }
    let tables: HashMap<_, _> = vrfs.iter().map(|vrf| (vrf.name.as_str(), vrf.table)).collect();
    let counted = counts.by_vrf(ports);
    let of_vrf =
        |vrf: &VrfView| vrf_link(vrf, counted.get(vrf.name.as_str()).copied().unwrap_or_default());
    let of_ports = ports.iter().map(|port| (port.vrf.as_str(), port_link(port, &tables)));
    let of_vrfs = vrfs.iter().filter(|vrf| vrf.name != MAIN_VRF);
    let all = of_ports.chain(of_vrfs.map(|vrf| ("", of_vrf(vrf))));
    let is_wanted = |(vrf, link): &(&str, LinkView)| {
        filter.port.as_ref().is_none_or(|name| *name == link.ifname)
            && filter.vrf.as_ref().is_none_or(|name| name == vrf)
            && filter.kind.as_ref().is_none_or(|kind| *kind == link.linkinfo.info_kind)
            && (!filter.up || link.operstate == "UP")
    };
    Ok(all.filter(is_wanted).map(|(_, link)| link).collect())
}

fn port_link(port: &PortView, tables: &HashMap<&str, u32>) -> LinkView {
    let is_ethernet = port.link == LinkKind::Ethernet;
    let is_cut = port.interface_state.is_some_and(|state| state != api::InterfaceState::Up);
    let flags: &[&str] = match (is_ethernet, port.up) {
        (true, true) => &["BROADCAST", "MULTICAST", "UP"],
        (true, false) if is_cut => &["NO-CARRIER", "BROADCAST", "MULTICAST"],
        (true, false) => &["BROADCAST", "MULTICAST"],
        (false, true) => &["POINTOPOINT", "UP"],
        (false, false) => &["POINTOPOINT"],
    };
    let is_slave = port.vrf != MAIN_VRF;
    let vlan = port.vlan.map(|id| LinkData {
        protocol: Some(port.protocol.unwrap_or_default().to_string()),
        id: Some(id),
        ..LinkData::default()
    });
    let xfrm = port
        .if_id
        .map(|if_id| LinkData { if_id: Some(format!("{if_id:#x}")), ..LinkData::default() });
    LinkView {
        ifindex: port.id.into(),
        ifname: port.name.clone(),
        link: port.parent.clone(),
        flags: flags.iter().map(|&flag| flag.to_owned()).collect(),
        mtu: port.mtu.into(),
        master: is_slave.then(|| port.vrf.clone()),
        operstate: if port.up { "UP" } else { "DOWN" }.to_owned(),
        link_type: if is_ethernet { "ether" } else { "none" }.to_owned(),
        address: is_ethernet.then_some(port.mac),
        broadcast: is_ethernet.then_some(Mac([0xff; 6])),
        linkinfo: LinkInfo {
            info_kind: port.kind.clone(),
            info_data: vlan.or(xfrm),
            info_slave_kind: is_slave.then(|| "vrf".to_owned()),
            info_slave_data: is_slave.then(|| LinkData {
                table: tables.get(port.vrf.as_str()).copied(),
                ..LinkData::default()
            }),
        },
        stats64: statistics(&port.statistics.unwrap_or_default()),
        interface: port.interface.clone(),
        side: port.side,
        tunnel_end: port.tunnel_end,
        rpf: port.rpf,
        mss: port.mss,
        features: port.features.clone(),
    }
}

fn vrf_link(vrf: &VrfView, stats64: LinkStatistics) -> LinkView {
    let table = Some(vrf.table);
    LinkView {
        ifindex: FIRST_VRF + u32::from(vrf.id),
        ifname: vrf.name.clone(),
        link: None,
        flags: ["NOARP", "MASTER", "UP"].map(str::to_owned).into(),
        mtu: MTU_OF_VRF,
        master: None,
        operstate: "UP".to_owned(),
        link_type: "none".to_owned(),
        address: None,
        broadcast: None,
        linkinfo: LinkInfo {
            info_kind: "vrf".to_owned(),
            info_data: Some(LinkData { table, ..LinkData::default() }),
            ..LinkInfo::default()
        },
        stats64,
        interface: None,
        side: Side::Unset,
        tunnel_end: None,
        rpf: ReversePath::Off,
        mss: MssClamp::Off,
        features: vrf.features.clone(),
    }
}

/// What VRFs have received and sent: what each port has counted while it was in the VRF. Nothing is
/// counted for it on a packet's way.
///
/// A port counts the frames of its VLANs too; they are counted for the VRFs of the VLANs alone. An
/// xfrm link has a port too, but counts the packets inside, which no port counts.
#[derive(Clone, Debug, Default)]
pub struct VrfCounts {
    /// By port.
    seen: HashMap<String, Seen>,
    /// By port: what VLANs that are gone have counted.
    gone_vlans: HashMap<String, LinkStatistics>,
    /// By VRF: what ports that have left it had counted in it.
    left: HashMap<String, LinkStatistics>,
}

/// A port as it was seen last.
#[derive(Clone, Debug)]
struct Seen {
    vrf: String,
    /// Of a VLAN: the port that counts its frames too.
    parent: Option<String>,
    /// What it had counted when it came into the VRF.
    since: LinkStatistics,
    /// What it had counted when it was seen.
    until: LinkStatistics,
}

impl VrfCounts {
    /// Takes note of all ports. To be called before and after ports may leave their VRF or go.
    pub fn see(&mut self, ports: &[PortView], vrfs: &[VrfView]) {
        let mut names: BTreeSet<String> = self.seen.keys().cloned().collect();
        names.extend(ports.iter().map(|port| port.name.clone()));
        self.see_some(&names, ports);
        let there: HashSet<&str> = vrfs.iter().map(|vrf| vrf.name.as_str()).collect();
        self.left.retain(|name, _| there.contains(name.as_str()));
    }

    /// Takes note of the ports of these names, if no others may leave their VRF or go. `ports` has
    /// those that are there, and their VLANs.
    pub fn see_some(&mut self, names: &BTreeSet<String>, ports: &[PortView]) {
        let now: HashSet<&str> = ports.iter().map(|port| port.name.as_str()).collect();
        for name in names.iter().filter(|name| !now.contains(name.as_str())) {
            let Some(gone) = self.seen.remove(name) else { continue };
            add(self.left.entry(gone.vrf).or_default(), minus(gone.until, gone.since));
            match gone.parent {
                Some(parent) => add(self.gone_vlans.entry(parent).or_default(), gone.until),
                None => _ = self.gone_vlans.remove(name),
            }
        }
        let own = self.own(ports);
        let meant = ports.iter().zip(own).filter(|(port, _)| names.contains(&port.name));
        for (port, until) in meant {
            let known = self.seen.remove(&port.name);
            let since = match known {
                Some(known) if known.vrf == port.vrf => known.since,
                Some(known) => {
                    let counted = minus(until, known.since);
                    add(self.left.entry(known.vrf).or_default(), counted);
                    until
                }
                None => LinkStatistics::default(),
            };
            let parent = counted_by(port).cloned();
            let seen = Seen { vrf: port.vrf.clone(), parent, since, until };
            self.seen.insert(port.name.clone(), seen);
        }
    }

    /// A VRF is gone.
    pub fn forget_vrf(&mut self, name: &str) {
        self.left.remove(name);
    }

    /// By VRF.
    fn by_vrf<'p>(&'p self, ports: &'p [PortView]) -> HashMap<&'p str, LinkStatistics> {
        let mut sums: HashMap<&str, LinkStatistics> =
            self.left.iter().map(|(vrf, left)| (vrf.as_str(), *left)).collect();
        for (port, until) in ports.iter().zip(self.own(ports)) {
            let seen = self.seen.get(&port.name).filter(|seen| seen.vrf == port.vrf);
            let since = seen.map(|seen| seen.since).unwrap_or_default();
            add(sums.entry(&port.vrf).or_default(), minus(until, since));
        }
        sums
    }

    /// What each port has counted without the frames of its VLANs.
    fn own(&self, ports: &[PortView]) -> Vec<LinkStatistics> {
        let of = |port: &PortView| statistics(&port.statistics.unwrap_or_default());
        let mut of_vlans: HashMap<&str, LinkStatistics> = HashMap::new();
        for port in ports {
            if let Some(parent) = counted_by(port) {
                add(of_vlans.entry(parent).or_default(), of(port));
            }
        }
        let own = |port: &PortView| {
            let gone = self.gone_vlans.get(&port.name).copied().unwrap_or_default();
            let of_vlans = of_vlans.get(port.name.as_str()).copied().unwrap_or_default();
            minus(minus(of(port), of_vlans), gone)
        };
        ports.iter().map(own).collect()
    }
}

/// The port that counts what a VLAN counts.
fn counted_by(port: &PortView) -> Option<&String> {
    port.parent.as_ref().filter(|_| port.vlan.is_some())
}

/// What a port has counted, with iproute2's names.
fn statistics(counted: &PortStatistics) -> LinkStatistics {
    LinkStatistics {
        rx: LinkCounts {
            bytes: counted.rx_bytes,
            packets: counted.rx_packets,
            errors: counted.rx_errors,
            dropped: counted.rx_ring_full + counted.rx_missed,
        },
        tx: LinkCounts {
            bytes: counted.tx_bytes,
            packets: counted.tx_packets,
            errors: counted.tx_errors,
            dropped: counted.tx_dropped + counted.tx_too_long + counted.tx_down,
        },
    }
}

fn add(sum: &mut LinkStatistics, more: LinkStatistics) {
    *sum = LinkStatistics {
        rx: each(sum.rx, more.rx, |a, b| a + b),
        tx: each(sum.tx, more.tx, |a, b| a + b),
    };
}

/// A port that was opened anew counts from zero, so that there may be less than before.
fn minus(all: LinkStatistics, part: LinkStatistics) -> LinkStatistics {
    LinkStatistics {
        rx: each(all.rx, part.rx, u64::saturating_sub),
        tx: each(all.tx, part.tx, u64::saturating_sub),
    }
}

fn each(a: LinkCounts, b: LinkCounts, of: impl Fn(u64, u64) -> u64) -> LinkCounts {
    LinkCounts {
        bytes: of(a.bytes, b.bytes),
        packets: of(a.packets, b.packets),
        errors: of(a.errors, b.errors),
        dropped: of(a.dropped, b.dropped),
    }
}
