//! Packets of connections: they go where their connection leads, as its label says, or nowhere.

use std::collections::BTreeSet;

use super::{
    BORROWED, Cookie, EXPECTED, GATEWAY, KNOWN, MADE, MOVED, NO_PORT, TUNNEL, Vrf, Writer, Wrong,
    name,
};

impl Writer<'_> {
    /// Table 246. In `reg2` is the port by which the packet is to leave.
    pub(super) fn known(&mut self, vrf: &Vrf) -> Result<(), Wrong> {
        let other = Cookie::Other;
        for (_, port) in &vrf.ports {
            let matches = format!("reg2={:#x},oif={}", port.id, name(&port.name));
            self.add((vrf, KNOWN), 10, other, &matches, "NORMAL")?;
        }
        self.add((vrf, KNOWN), 10, other, &format!("reg2={NO_PORT:#x},oif=LOCAL"), "NORMAL")?;
        if has_tunnels(vrf) {
            // Behind tunnels of policies is where its addresses are.
            let answer = format!("ct_state=+rpl+trk,reg2={NO_PORT:#x}");
            self.add((vrf, KNOWN), 9, other, &answer, "NORMAL")?;
            self.add((vrf, KNOWN), 8, other, &format!("reg2={TUNNEL:#x}"), "NORMAL")?;
        }
        let moved = |zone: u16| format!("set_field:{zone:#x}->reg1,goto_table:{MOVED}");
        for (zone, port) in &vrf.ports {
            self.add((vrf, KNOWN), 8, other, &format!("reg2={:#x}", port.id), &moved(*zone))?;
        }
        self.add((vrf, KNOWN), 0, other, "", &moved(GATEWAY))
    }

    /// Table 247. In `reg1` is the zone to which the packet is to go.
    pub(super) fn moved(&mut self, vrf: &Vrf) -> Result<(), Wrong> {
        let other = Cookie::Other;
        // Nor past it by a policy of IPsec.
        self.add((vrf, MOVED), 50, other, "oif=NONE", "unrouted")?;
        let zone = |number: u16| &self.firewall.spec.zones[usize::from(number) - 1];
        let masquerades = vrf.ports.iter().any(|(of, _)| zone(*of).masquerade.is_some());
        if masquerades || !self.firewall.spec.forwards.is_empty() {
            // Nobody else ends it.
            let own = vrf.ports.iter().map(|(_, port)| (port.id, name(&port.name)));
            let decrypted = has_tunnels(vrf).then(|| (NO_PORT, "NONE,sa=any".to_owned()));
            for (id, in_port) in own.chain(decrypted) {
                let (first, bits) = (BORROWED | u128::from(id), BORROWED | u128::from(u16::MAX));
                let came_by = format!("ct_label={first:#x}/{bits:#x},in_port={in_port}");
                let matches = format!("ct_state=+est-rpl+snat+trk,{came_by}");
                self.astray((vrf, MOVED), 41, &matches, "rerouted(end)")?;
            }
            // ICMP errors about it may leave by any port of its zone: their flow has a hash of its own.
            let of_one = format!("ct_label={BORROWED:#x}/{BORROWED:#x}");
            let matches = format!("ct_state=+est-rpl+snat+trk,{of_one}");
            self.astray((vrf, MOVED), 40, &matches, "rerouted")?;
        }
        for (zone, port) in &vrf.ports {
            let matches = format!("reg1={zone:#x},oif={}", name(&port.name));
            self.add((vrf, MOVED), 30, other, &matches, "NORMAL")?;
        }
        self.astray((vrf, MOVED), 0, "", "rerouted")
    }

    /// Table 248. In `reg1` is the zone to which the packet goes, in `reg5` and `reg6` are the ports of the
    /// connection that has announced it: it may go to the zone of either.
    pub(super) fn expected(&mut self, vrf: &Vrf) -> Result<(), Wrong> {
        let mut ends: Vec<_> = vrf.ports.iter().map(|(zone, port)| (*zone, port.id)).collect();
        ends.push((GATEWAY, NO_PORT));
        let networks = vrf.networks.iter().map(|(_, zone)| *zone);
        let behind: BTreeSet<_> = networks.chain(vrf.rest).collect();
        ends.extend(behind.iter().flat_map(|zone| [(*zone, NO_PORT), (*zone, TUNNEL)]));
        for (zone, port) in ends {
            for register in ["reg5", "reg6"] {
                let matches = format!("reg1={zone:#x},{register}={port:#x}");
                let actions = format!("goto_table:{MADE}");
                self.add((vrf, EXPECTED), 1, Cookie::Other, &matches, &actions)?;
            }
        }
        self.astray((vrf, EXPECTED), 0, "", "rerouted")
    }

    /// What becomes of packets whose route leads elsewhere than their connection.
    fn astray(
        &mut self,
        to: (&Vrf, u8),
        priority: u32,
        matches: &str,
        action: &str,
    ) -> Result<(), Wrong> {
        let logged = self.firewall.spec.log_rerouted.as_ref();
        let logged = logged.map_or_else(String::new, |prefix| format!("log:{prefix},"));
        self.add(to, priority, Cookie::Rerouted, matches, &format!("{logged}{action}"))
    }
}

/// Whether policies of IPsec may bring packets of connections, and protect them.
fn has_tunnels(vrf: &Vrf) -> bool {
    !vrf.networks.is_empty() || vrf.rest.is_some()
}
