//! What stations send, and what is expected of it.

use std::net::IpAddr;

use esp::OutboundSa;
use io::memory::MemoryOptions;
use rand::SeedableRng;
use rand::rngs::StdRng;
use tables::VlanProtocol;
use wire::Mac;

use crate::fixture::*;
use crate::model::*;
use crate::packets::{SITES, Sending, To, What, ends, host, question, remote, tagged};
use crate::world::{ME, PEER, SPIS, Sent, THEIRS, World, link_spi, mac};

impl World {
    /// What is to go where a leak leads is sent from where it leads, if there is one.
    fn aimed(&self, sending: &Sending) -> Sending {
        let (leaks, nowhere) = (&self.config.leaks, Sending { to: To::Nowhere, ..*sending });
        let To::Leaked(which) = sending.to else { return *sending };
        let which = usize::from(which);
        if leaks.is_empty() {
            return nowhere;
        }
        let leak = &leaks[which % leaks.len()];
        let is_from = |place: &usize| match leak.from {
            From::Tenant(tenant) => self.config.tenant_of(*place) == Some(tenant),
            From::Port((by, _)) => by == *place,
            From::Own | From::All | From::Loose => true,
        };
        let places: Vec<_> = (0..COUNT).filter(is_from).collect();
        let is_v6 = leak.prefix.address().is_ipv6();
        let to: Vec<_> = (1..=SITES)
            .map(To::Station)
            .chain([To::Remote])
            .filter(|to| leak.prefix.contains(to.address(is_v6)))
            .collect();
        match (places.is_empty(), to.is_empty()) {
            (false, false) => {
                let (place, to) = (places[which % places.len()], to[which % to.len()]);
                Sending { place, is_v6, to, ..*sending }
            }
            _ => nowhere,
        }
    }

    /// A station sends something. What becomes of it is noted by its stamp.
    pub(crate) fn push(&mut self, sending: &Sending) {
        let stamp = u16::try_from(self.sent.len()).unwrap();
        let sending = &self.aimed(sending);
        let Sending { place, is_v6, .. } = *sending;
        let port = self.config.ports[place];
        let site = port.map_or(0, |port| port.site);
        let source = match (place, sending.to) {
            (LAN_PLACE, _) => ip(if is_v6 { "fd13::5" } else { "192.168.13.5" }),
            (WAN_PLACE, _) => ip(if is_v6 { "fd11::1" } else { "192.168.11.1" }),
            (_, To::OnLink(_) | To::Group) if is_v6 => ip("fe80::5"),
            _ => host(is_v6, site, 5),
        };
        let (source, what) = match sending.what {
            What::Sealed => (remote(is_v6), What::Udp),
            what => (source, what),
        };
        let destination = match what {
            What::Question => host(is_v6, site, 1),
            // So that halves of several VRFs have the same addresses.
            What::Half(_) if matches!(sending.to, To::Gateway(_)) => host(is_v6, site, 1),
            _ => sending.to.address(is_v6),
        };
        let mut bytes = Sending { what, ..*sending }.packet(stamp, source, destination);
        let mut sent = Sent {
            epoch: self.epochs.len() - 1,
            came: self.config.way(place),
            outer: None,
            inner: None,
            source,
            destination,
            is_question: what == What::Question && !is_link(place),
        };
        // The last that it has used.
        let number = THEIRS + u32::from(stamp) - 1;
        let sealed = |spi, (from, to): (IpAddr, IpAddr), bytes: &[u8]| {
            let seed = &mut StdRng::from_seed([9; 32]);
            let peer = OutboundSa::new(spi, &keys(false), number, seed);
            let mut packet = seal(&peer, &from.to_string(), &to.to_string(), bytes);
            if from.is_ipv4() {
                // Pieces of it could not be told from others.
                packet[6] = 0x40;
                wire::ipv4::fill_checksum(&mut packet);
            }
            packet
        };
        let (mut by, mut kind) = (place, if is_v6 { 0x86dd } else { 0x0800 });
        if let Place::Link(link) = PLACES[place] {
            by = WAN_PLACE;
            sent.inner = sent.came.map(|(ident, tenant)| (Some(ident), tenant));
            sent.came = self.config.way(by);
            sent.outer = Some((ip(PEER), ip(ME)));
            bytes = sealed(link_spi(link, false), (ip(PEER), ip(ME)), &bytes);
            kind = 0x0800;
        } else if sending.what == What::Sealed {
            // In the other family.
            let (me, peer) = ends(!is_v6);
            sent.inner = sent.came.map(|(_, tenant)| (None, tenant));
            sent.outer = Some((peer, me));
            bytes = sealed(SPIS[1], (peer, me), &bytes);
            kind = if is_v6 { 0x0800 } else { 0x86dd };
        }
        let (cable, mut tags) = cable(by);
        if let What::Tagged(others) = what
            && !is_link(place)
        {
            tags = others.to_vec();
            let owner = self.config.owner(cable, &tags);
            sent.came = owner.and_then(|owner| self.config.way(owner));
        }
        let (mut to, from) = (own_mac(cable), mac(by, 5));
        if sent.is_question {
            (kind, to, bytes) = question(from, source, destination);
        } else if bytes[0] >> 4 == 6 && bytes[24] == 0xff {
            to = Mac([0x33, 0x33, 0, 0, 0, 1]);
        }
        let frame = tagged(to, from, &tags, kind, &bytes);
        self.count_received(cable, &tags, frame.len());
        if let Some((Some((link, _)), _)) = sent.inner
            && self.config.admits(Some(WAN_PLACE), self.config.tenant(0), false)
        {
            let length = Sending { what, ..*sending }.packet(stamp, source, destination).len();
            self.count_one(link, 0, length);
        }
        self.sent.push(sent);
        let handle = if cable == LAN_PLACE { &mut self.gateway.lan } else { &mut self.gateway.wan };
        assert!(handle.push(&frame));
    }

    /// A frame has come: it counts for the VLAN of each tag, as far as they have ports.
    fn count_received(&mut self, cable: usize, tags: &[(VlanProtocol, u16)], length: usize) {
        for (at, (_, number)) in tags.iter().enumerate() {
            match self.config.owner(cable, &tags[..=at]) {
                Some(owner) if *number > 0 => self.count_one(owner, 0, length),
                Some(_) => {}
                None => break,
            }
        }
    }

    /// A frame has left by a port, and by those whose VLAN it is.
    pub(crate) fn count_sent(&mut self, place: usize, length: usize) {
        with_parents(place).into_iter().for_each(|place| self.count_one(place, 1, length));
    }

    /// Which: came (0) or left (1).
    fn count_one(&mut self, place: usize, which: usize, length: usize) {
        let Some(port) = self.config.ports[place] else { return };
        let count = &mut self.counts.entry((place, port.life)).or_default()[which];
        *count = (count.0 + 1, count.1 + length as u64);
    }
}

fn own_mac(cable: usize) -> Mac {
    let (name, id) = if cable == LAN_PLACE { ("lan", LAN) } else { ("wan", WAN) };
    MemoryOptions::ethernet(name, id).mac
}
