//! The law itself: whatever leaves, is copied or is counted, the configuration lets it.

use std::collections::BTreeSet;
use std::net::IpAddr;

use esp::{InboundSa, WindowSize};
use path::TapDirection;
use proptest::prelude::*;
use proptest::test_runner::TestCaseResult;
use tables::{FilterTarget, QdiscDevice};
use wire::ndp::Message;
use wire::{FragmentClass, Protocol, Spi, arp, headers, ndp};

use crate::fixture::*;
use crate::model::*;
use crate::packets::{Frame, ends, esp_numbers, stamps};
use crate::world::{Seals, Sent, THEIRS, World, mac};

/// A packet as it was sent, or as it was decrypted.
#[derive(Clone, Copy, Debug)]
struct Seen {
    tenant: Tenant,
    origin: Origin,
    source: IpAddr,
    destination: IpAddr,
}

impl Sent {
    /// As it came by its port.
    fn outside(&self) -> Option<Seen> {
        let (ident, tenant) = self.came?;
        let (source, destination) = self.outer.unwrap_or((self.source, self.destination));
        Some(Seen { tenant, origin: Origin::Port(ident), source, destination })
    }

    /// As it was decrypted, or as it came if it was not encrypted.
    fn inside(&self) -> Option<Seen> {
        if self.outer.is_none() {
            return self.outside();
        }
        let (link, tenant) = self.inner?;
        let origin = link.map_or(Origin::Decrypted, Origin::Port);
        let (source, destination) = (self.source, self.destination);
        Some(Seen { tenant, origin, source, destination })
    }
}

/// What an IP packet has to do with what was sent: stamps, and whether what they are of is encrypted.
fn stamps_of(packet: &[u8]) -> (BTreeSet<u16>, bool) {
    let found = stamps(packet);
    match esp_numbers(packet) {
        Some((_, number)) if found.is_empty() && number >= THEIRS => {
            (BTreeSet::from([(number - THEIRS) as u16]), true)
        }
        _ => (found, false),
    }
}

impl World {
    /// Looks at everything that has left, was copied and was counted since it was last called.
    pub(crate) fn judge(&mut self) -> TestCaseResult {
        for cable in [LAN_PLACE, WAN_PLACE] {
            let handle =
                if cable == LAN_PLACE { &mut self.gateway.lan } else { &mut self.gateway.wan };
            let frames: Vec<_> = std::iter::from_fn(|| handle.pop()).collect();
            for bytes in frames {
                self.judge_frame(cable, &Frame::parse(&bytes))?;
            }
        }
        self.judge_copies()?;
        self.judge_counters()?;
        self.judge_meters()
    }

    fn judge_frame(&mut self, cable: usize, frame: &Frame) -> TestCaseResult {
        let place = self.config.owner(cable, &frame.tags);
        prop_assert!(place.is_some(), "no port's: {cable} {:?}", frame.tags);
        let place = place.unwrap_or_default();
        let is_its_stations = [5, 9].map(|number| mac(place, number)).contains(&frame.to);
        prop_assert!(frame.to.is_group() || is_its_stations, "to {:?} by {place}", frame.to);
        self.count_sent(place, frame.length);
        self.tally.by_two_tags += usize::from(frame.tags.len() == 2);
        if frame.kind == 0x0806 {
            let packet = arp::Packet::parse(&frame.payload).unwrap();
            return match packet.operation {
                arp::Operation::Reply => self.judge_reply(place),
                arp::Operation::Request => self.judge_question(place, packet.target_ip.into()),
            };
        }
        let headers = headers::parse(&frame.payload).unwrap();
        match ndp::parse(&headers, headers.upper_bytes(&frame.payload)) {
            Ok(Message::NeighbourSolicitation { target, .. }) => {
                self.judge_question(place, target.into())
            }
            Ok(Message::NeighbourAdvertisement { .. }) => self.judge_reply(place),
            _ => self.judge_packet(place, &frame.payload),
        }
    }

    /// Somebody behind this very port has asked for the gateway's address.
    fn judge_reply(&self, place: usize) -> TestCaseResult {
        let ident = self.config.way(place).map(|(ident, _)| ident);
        let asked = |(stamp, sent): (usize, &Sent)| {
            let is_now = self.batch.contains(&stamp) || self.may_have_queued(sent.epoch, place);
            sent.is_question && is_now && sent.came.map(|(ident, _)| ident) == ident
        };
        prop_assert!(self.sent.iter().enumerate().any(asked), "answer by {place}");
        Ok(())
    }

    /// The gateway asks for a station to whom something of its VRF may go: an answer, or what it was
    /// sent, or a tunnel's packets.
    fn judge_question(&mut self, place: usize, target: IpAddr) -> TestCaseResult {
        self.tally.questions += 1;
        let is_wanted = |sent: &Sent| {
            [sent.outside(), sent.inside()].into_iter().flatten().any(|seen| {
                let origin = match target {
                    _ if target == seen.destination => seen.origin,
                    _ if target == seen.source => Origin::Own,
                    _ => return false,
                };
                self.any_epoch(sent.epoch, place, |config| {
                    [origin, Origin::Own]
                        .map(|origin| config.ways(seen.tenant, target, origin))
                        .concat()
                })
            })
        };
        let is_end = |seals: &Seals| {
            let is_peer = ends(seals.is_v6).1 == target || place == WAN_PLACE;
            is_peer
                && self.any_epoch(0, place, |config| config.ways(seals.outer, target, Origin::Own))
        };
        let is_right = self.sent.iter().rev().any(is_wanted) || self.seals.iter().any(is_end);
        prop_assert!(is_right, "question for {target} by {place}");
        Ok(())
    }

    fn any_epoch(&self, from: usize, place: usize, ways: impl Fn(&Config) -> Vec<Way>) -> bool {
        let epochs = from..self.epochs.len();
        epochs.rev().any(|epoch| self.is_way(place, &ways(&self.epochs[epoch])))
    }

    /// Whether what left by a port now was let by one of these ways, of some time.
    fn is_way(&self, place: usize, ways: &[Way]) -> bool {
        let Some((ident, tenant)) = self.config.way(place) else { return false };
        ways.contains(&(ident, tenant))
    }

    /// The same of a link, whose packets may wait in the queue of another port while it changes.
    fn was_way(&self, epoch: usize, (place, by): (usize, usize), ways: &[Way]) -> bool {
        let is_late = place != by && self.may_have_queued(epoch, by);
        is_late && ways.iter().any(|(to, _)| to.0 == place) || self.is_way(place, ways)
    }

    fn may_have_queued(&self, epoch: usize, place: usize) -> bool {
        self.epochs[epoch..].iter().any(|config| {
            let vrf = config.ports[place].map(|port| Target::Vrf(port.vrf));
            let ports = with_parents(place).into_iter().map(Target::Port);
            ports.chain(vrf).any(|target| config.queues.contains(&target))
        })
    }

    /// Whether an IP packet may leave by a port, or be on its way there.
    fn judge_packet(&mut self, place: usize, packet: &[u8]) -> TestCaseResult {
        let headers = headers::parse(packet).unwrap();
        if headers.protocol == Protocol::ESP
            && let Some((spi, number)) = esp_numbers(packet)
            && number < THEIRS
        {
            return self.judge_sealed(place, packet, spi, number);
        }
        self.judge_clear((place, place), packet)
    }

    fn judge_sealed(
        &mut self,
        place: usize,
        packet: &[u8],
        spi: Spi,
        number: u32,
    ) -> TestCaseResult {
        let seals = self.seals[(number >> 16) as usize - 1];
        let peer = InboundSa::new(spi, &keys(false), WindowSize::new(64).unwrap(), 0);
        let inner = open(&peer, packet);
        self.tally.sealed += 1;
        let (stamps, _) = stamps_of(&inner);
        prop_assert!(!stamps.is_empty(), "{inner:?}");
        match seals.link {
            Some(link) => {
                if stamps.iter().all(|stamp| self.batch.contains(&usize::from(*stamp))) {
                    self.count_sent(link, inner.len());
                }
                self.judge_clear((link, place), &inner)?;
            }
            None => {
                for sent in stamps.iter().map(|stamp| &self.sent[usize::from(*stamp)]) {
                    let tenant = sent.inside().map(|seen| seen.tenant);
                    prop_assert_eq!(tenant, Some(seals.outer), "sealed by another's");
                }
            }
        }
        let first = stamps.first().map_or(0, |stamp| self.sent[usize::from(*stamp)].epoch);
        let to = headers::parse(packet).unwrap().addresses.destination();
        let is_right =
            self.any_epoch(first, place, |config| config.ways(seals.outer, to, Origin::Own));
        prop_assert!(is_right, "ESP of {:?} by {place}", seals.outer);
        Ok(())
    }

    /// By a port or a link, and by the port by which the link's packets leave.
    fn judge_clear(&mut self, (place, by): (usize, usize), packet: &[u8]) -> TestCaseResult {
        let headers = headers::parse(packet).unwrap();
        let (from, to) = (headers.addresses.source(), headers.addresses.destination());
        let (stamps, is_sealed) = stamps_of(packet);
        prop_assert!(!stamps.is_empty(), "unknown: {packet:?}");
        let mut tenants = BTreeSet::new();
        for stamp in stamps {
            let sent = &self.sent[usize::from(stamp)];
            let seen = if is_sealed { sent.outside() } else { sent.inside() };
            prop_assert!(seen.is_some(), "by no port: {sent:?}");
            let Some(Seen { tenant, origin, source, .. }) = seen else { continue };
            tenants.insert(tenant);
            let is_v6 = from.is_ipv6();
            // Such an answer goes straight onto the link, past filters.
            let is_on_link = matches!(to, IpAddr::V6(address) if address.is_unicast_link_local());
            let is_leaked = self.config.tenant_of(place) != Some(tenant);
            if from == source {
                let config = self.epoch(sent);
                let is_right = is_admitted(config, sent, is_sealed)
                    && config.emits(place, is_v6)
                    && self.was_way(sent.epoch, (place, by), &config.ways(tenant, to, origin));
                prop_assert!(is_right, "{stamp} by {place}: {sent:?}");
                let is_late = !self.batch.contains(&usize::from(stamp));
                let is_opened = sent.outer.is_some() && !is_sealed;
                let is_fragment = headers.fragment.class != FragmentClass::Whole;
                let tally = &mut self.tally;
                tally.forwarded += 1;
                tally.leaked += usize::from(is_leaked);
                tally.late += usize::from(is_late);
                tally.opened += usize::from(is_opened);
                tally.fragments += usize::from(is_fragment);
            } else {
                prop_assert_eq!(
                    to,
                    source,
                    "an answer to another one than has sent {}: {:?} {:x?}",
                    stamp,
                    sent,
                    packet
                );
                let is_right = (sent.epoch..self.epochs.len()).any(|epoch| {
                    let config = &self.epochs[epoch];
                    let ways = config.ways(tenant, to, Origin::Own);
                    (is_on_link || config.emits(place, is_v6))
                        && self.was_way(epoch, (place, by), &ways)
                });
                prop_assert!(is_right, "answer to {stamp} by {place}: {sent:?}");
                self.tally.answers += 1;
                self.tally.leaked_answers += usize::from(is_leaked);
            }
        }
        prop_assert!(tenants.len() == 1, "of two tenants: {tenants:?}");
        Ok(())
    }

    /// What a tap has copied is of its port or VRF.
    fn judge_copies(&mut self) -> TestCaseResult {
        let mut copies = Vec::new();
        while let Some(record) = self.taps.read() {
            copies.push((record.tap, record.direction, record.bytes.to_vec()));
        }
        for (tap, direction, bytes) in copies {
            self.tally.copies += 1;
            prop_assert!(self.tapped.contains_key(&tap), "tap {tap} is gone");
            let (target, way, tenant) = self.tapped[&tap];
            if let (Target::Port(place), TapDirection::Outbound) = (target, direction) {
                let (tally, counts) = (self.tally, self.counts.clone());
                self.judge_packet(place, &bytes)?;
                (self.tally, self.counts) = (tally, counts);
                continue;
            }
            let is_its = |seen: Seen| match (target, way) {
                (Target::Vrf(_), _) => seen.tenant == tenant,
                (Target::Port(_), Some((ident, _))) => {
                    matches!(seen.origin, Origin::Port(by) if by == ident)
                }
                _ => false,
            };
            let headers = headers::parse(&bytes).unwrap();
            if ndp::parse(&headers, headers.upper_bytes(&bytes)).is_ok() {
                // A question for nobody.
                let mut questions =
                    self.sent[self.batch.clone()].iter().filter(|sent| sent.is_question);
                let is_right = questions.any(|sent| sent.outside().is_some_and(is_its));
                prop_assert!(is_right, "{target:?} has a copy of another's question");
                continue;
            }
            let (stamps, is_sealed) = stamps_of(&bytes);
            prop_assert!(!stamps.is_empty(), "unknown copy: {bytes:?}");
            let all = stamps.iter().map(|stamp| &self.sent[usize::from(*stamp)]);
            let all = all.map(|sent| if is_sealed { sent.outside() } else { sent.inside() });
            let its = all.clone().filter(|seen| seen.is_some_and(is_its)).count();
            let vrfs: BTreeSet<_> = all.map(|seen| seen.map(|seen| seen.tenant)).collect();
            // Halves of a datagram may come by several ports of a VRF.
            let enough = if matches!(target, Target::Vrf(_)) { stamps.len() } else { 1 };
            prop_assert!(its >= enough && vrfs.len() == 1, "{target:?} has a copy of {stamps:?}");
        }
        Ok(())
    }

    /// Every frame was counted by its own port and by no other.
    fn judge_counters(&self) -> TestCaseResult {
        let tables = self.gateway.publisher.current();
        for place in 0..COUNT {
            let (Some(id), Some(port)) = (self.ids[place], self.config.ports[place]) else {
                continue;
            };
            let Some(counters) = tables.port_counters(id) else { continue };
            let [came, left] = self.counts.get(&(place, port.life)).copied().unwrap_or_default();
            prop_assert_eq!(counters.received(), came, "received by {}", place);
            // What leaves by a link is seen when its ESP packet leaves, if that is not dropped.
            match is_link(place) {
                true => prop_assert!(counters.sent().0 >= left.0, "sent by {place}"),
                false => prop_assert_eq!(counters.sent(), left, "sent by {}", place),
            }
        }
        Ok(())
    }

    /// Filters and queues have met what is of their port or VRF.
    fn judge_meters(&mut self) -> TestCaseResult {
        let tables = self.gateway.publisher.current();
        let target = |target| match target {
            FilterTarget::Port(id) => {
                Target::Port(self.ids.iter().position(|own| *own == Some(id)).unwrap())
            }
            FilterTarget::Vrf(vrf) => Target::Vrf(vrf.0),
        };
        let filters = tables.filters().map(|(place, filter)| {
            let count = filter.rules().map(|rule| rule.counters.read().0).sum();
            ((target(place.target), Some(place.hook)), count)
        });
        let queues = tables.qdiscs().iter().map(|(device, placed)| {
            let of = match device {
                QdiscDevice::Port(id) => FilterTarget::Port(id),
                QdiscDevice::Vrf(vrf) => FilterTarget::Vrf(vrf),
            };
            let root = &placed.root.counters;
            (
                (target(of), None),
                [&root.packets, &root.drops, &root.queued].map(|c| c.read()).iter().sum(),
            )
        });
        let meters = filters.chain(queues).collect();
        let before = core::mem::replace(&mut self.meters, meters);
        if self.batch.is_empty() {
            return Ok(());
        }
        let touched = self.touched();
        for (of, count) in &self.meters {
            let has_met = before.get(of).is_some_and(|before| before < count);
            prop_assert!(!has_met || touched.contains(&of.0), "{of:?} has met something");
        }
        Ok(())
    }

    /// Ports and VRFs that have something to do with what was sent last.
    fn touched(&self) -> BTreeSet<Target> {
        let config = &self.config;
        let mut ways = Vec::new();
        for sent in &self.sent[self.batch.clone()] {
            ways.extend(sent.came);
            for seen in [sent.outside(), sent.inside()].into_iter().flatten() {
                if let Origin::Port((place, _)) = seen.origin {
                    ways.extend(config.way(place));
                }
                for origin in [seen.origin, Origin::Own] {
                    ways.extend(config.ways(seen.tenant, seen.destination, origin));
                    ways.extend(config.ways(seen.tenant, seen.source, origin));
                }
                let ends = [false, true].map(|is_v6| ends(is_v6).1);
                let peers = ends.map(|end| config.ways(seen.tenant, end, Origin::Own));
                ways.extend(peers.concat());
            }
        }
        // What leaves by a link leaves by main as well.
        if ways.iter().any(|((place, _), _)| is_link(*place)) {
            ways.extend(config.ways(config.tenant(0), ip("192.168.11.1"), Origin::Own));
        }
        let ports = ways.iter().flat_map(|((place, _), _)| with_parents(*place));
        let vrfs = ways.iter().map(|(_, (vrf, _))| Target::Vrf(*vrf));
        ports.map(Target::Port).chain(vrfs).collect()
    }
}

/// Whether filters have let a packet in, as it came and as it was decrypted.
fn is_admitted(config: &Config, sent: &Sent, is_sealed: bool) -> bool {
    let admits = |seen: Seen| {
        let place = match seen.origin {
            Origin::Port((place, _)) => Some(place),
            Origin::Decrypted | Origin::Own => None,
        };
        config.admits(place, seen.tenant, seen.source.is_ipv6())
    };
    sent.outside().is_some_and(admits) && (is_sealed || sent.inside().is_some_and(admits))
}
