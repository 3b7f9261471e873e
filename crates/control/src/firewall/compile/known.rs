//! Packets of connections: they go where their connection leads, as its label says, or nowhere.

use super::{BORROWED, Cookie, GATEWAY, KNOWN, MOVED, NO_PORT, TUNNEL, Vrf, Writer, Wrong, name};

impl Writer<'_> {
    /// Table 246. In `reg2` is the port by which the packet is to leave.
    pub(super) fn known(&mut self, vrf: &Vrf) -> Result<(), Wrong> {
        let other = Cookie::Other;
        for (_, port) in &vrf.ports {
            let matches = format!("reg2={:#x},oif={}", port.id, name(&port.name));
            self.add((vrf, KNOWN), 10, other, &matches, "NORMAL")?;
        }
        self.add((vrf, KNOWN), 10, other, &format!("reg2={NO_PORT:#x},oif=LOCAL"), "NORMAL")?;
        if !vrf.networks.is_empty() || vrf.rest.is_some() {
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
        let (other, rerouted) = (Cookie::Other, Cookie::Rerouted);
        // Nor past it by a policy of IPsec.
        self.add((vrf, MOVED), 50, other, "oif=NONE", "unrouted")?;
        let zone = |number: u16| &self.firewall.spec.zones[usize::from(number) - 1];
        let masquerades = vrf.ports.iter().any(|(of, _)| zone(*of).masquerade.is_some());
        if masquerades || !self.firewall.spec.forwards.is_empty() {
            for (_, port) in &vrf.ports {
                // Nobody else ends it.
                let first = BORROWED | u128::from(port.id);
                let bits = BORROWED | u128::from(u16::MAX);
                let came_by = format!("ct_label={first:#x}/{bits:#x},in_port={}", name(&port.name));
                let matches = format!("ct_state=+est-rpl+snat+trk,{came_by}");
                self.add((vrf, MOVED), 41, rerouted, &matches, "rerouted(end)")?;
            }
            let matches =
                format!("ct_state=-new-rpl+snat+trk,ct_label={BORROWED:#x}/{BORROWED:#x}");
            self.add((vrf, MOVED), 40, rerouted, &matches, "rerouted")?;
        }
        for (zone, port) in &vrf.ports {
            let matches = format!("reg1={zone:#x},oif={}", name(&port.name));
            self.add((vrf, MOVED), 30, other, &matches, "NORMAL")?;
        }
        self.add((vrf, MOVED), 0, rerouted, "", "rerouted")
    }
}
