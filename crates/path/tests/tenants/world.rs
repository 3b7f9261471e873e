//! A gateway with tenants, and what is done to it. Whatever the gateway takes is noted in the
//! [`Config`] that the law asks.

use std::collections::BTreeMap;
use std::net::IpAddr;
use std::time::Duration;

use flow::{Associativity, CacheMode, CacheSettings};
use path::{TapReader, tap_ring};
use tables::{DefaultAction, Direction, Event, FilterHook};
use wire::{Mac, PortId, Spi, VrfId};

use crate::fixture::*;
use crate::model::*;
use crate::packets::Sending;

/// The ends of the links' tunnels.
pub(crate) const ME: &str = "192.168.11.2";
pub(crate) const PEER: &str = "192.168.11.1";
/// SPIs of every VRF's tunnel: out, and in.
pub(crate) const SPIS: [Spi; 2] = [Spi(0x100), Spi(0x200)];
/// Numbers of ESP packets from this on are those of the far ends, with the stamp behind.
pub(crate) const THEIRS: u32 = 1 << 31;

/// One thing that happens.
#[derive(Clone, Debug)]
pub(crate) enum Step {
    /// Stations send, all at once.
    Batch(Vec<Sending>),
    /// They send the same again.
    Again,
    /// A port moves to a VRF, or has the addresses of another site or another MTU.
    Move(usize, u16, u8, u16),
    /// A port goes.
    Delete(usize),
    /// It comes, perhaps with the number of one that went.
    Create(usize, u16, u8),
    /// A VRF goes, and another one gets its number. Its ports are in `main` then.
    Remake(u16),
    /// The stations behind a port answer.
    Resolve(usize),
    Leak(NewLeak),
    /// One of the leaks goes.
    Unleak(proptest::sample::Index),
    /// What a filter drops, or that it lets pass; or it goes.
    Filter(Target, FilterHook, bool, Option<Verdict>),
    /// A queue comes, or goes.
    Queue(Target, bool),
    /// Somebody looks.
    Tap(Target, [bool; 3]),
    /// A VRF gets its tunnel, another one in its place, or loses it.
    Tunnel(u16, bool),
    /// Milliseconds pass.
    Wait(u64),
}

#[derive(Clone, Copy, Debug, PartialEq)]
pub(crate) enum Verdict {
    Pass,
    Drop,
    Reject,
}

/// A leak that is to be: a rule with this priority, or a route.
#[derive(Clone, Copy, Debug)]
pub(crate) struct NewLeak {
    pub(crate) rule: Option<u32>,
    pub(crate) from: NewFrom,
    pub(crate) into: NewInto,
    pub(crate) prefix: (bool, u8),
}

#[derive(Clone, Copy, Debug, PartialEq)]
pub(crate) enum NewFrom {
    Vrf(u16),
    Port(usize),
    Own,
    All,
    Loose,
}

#[derive(Clone, Copy, Debug, PartialEq)]
pub(crate) enum NewInto {
    Vrf(u16),
    Port(usize),
    Loose,
}

/// A packet that a station has sent.
#[derive(Clone, Debug)]
pub(crate) struct Sent {
    /// The configuration of then.
    pub(crate) epoch: usize,
    /// The port that it came by, if there was one, and its VRF.
    pub(crate) came: Option<Way>,
    /// What an ESP packet is for.
    pub(crate) outer: Option<(IpAddr, IpAddr)>,
    /// The link that it was to be decrypted by, and the VRF into which.
    pub(crate) inner: Option<(Option<Ident>, Tenant)>,
    pub(crate) source: IpAddr,
    pub(crate) destination: IpAddr,
    /// Whether it asks for the gateway's Ethernet address.
    pub(crate) is_question: bool,
}

/// Whose an SA of the gateway is.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Seals {
    /// The link whose it is; or the VRF.
    pub(crate) link: Option<usize>,
    pub(crate) outer: Tenant,
    pub(crate) is_v6: bool,
}

/// What the law has seen of what it is about.
#[derive(Clone, Copy, Debug, Default)]
pub(crate) struct Tally {
    pub(crate) forwarded: usize,
    pub(crate) leaked: usize,
    pub(crate) answers: usize,
    pub(crate) leaked_answers: usize,
    pub(crate) fragments: usize,
    pub(crate) sealed: usize,
    pub(crate) opened: usize,
    pub(crate) by_two_tags: usize,
    /// What left later than it came.
    pub(crate) late: usize,
    pub(crate) copies: usize,
    pub(crate) questions: usize,
    /// Packets whose decision was in the cache.
    pub(crate) hits: usize,
}

/// The gateway, and what is expected of it.
pub(crate) struct World {
    pub(crate) gateway: Gateway,
    pub(crate) taps: TapReader,
    pub(crate) config: Config,
    /// Every configuration that was, in order.
    pub(crate) epochs: Vec<Config>,
    /// By stamp.
    pub(crate) sent: Vec<Sent>,
    /// By the upper half of the number of an ESP packet, from 1 on.
    pub(crate) seals: Vec<Seals>,
    /// Whose packets each tap is for.
    pub(crate) tapped: BTreeMap<u64, (Target, Option<Way>, Tenant)>,
    pub(crate) ids: [Option<PortId>; COUNT],
    /// By port, packets and bytes that came and that left, with link headers.
    pub(crate) counts: BTreeMap<Ident, [(u64, u64); 2]>,
    /// Packets of the step that is taken.
    pub(crate) batch: core::ops::Range<usize>,
    pub(crate) tally: Tally,
    /// What filters and queues have counted.
    pub(crate) meters: BTreeMap<(Target, Option<FilterHook>), u64>,
    /// What stations have sent last.
    last: Vec<Sending>,
    /// How many rules and ports there were.
    pub(crate) rules: u64,
    pub(crate) lives: u32,
}

pub(crate) fn mac(place: usize, number: u8) -> Mac {
    match place {
        LAN_PLACE => HOST_MAC,
        WAN_PLACE => PEER_MAC,
        _ => Mac([2, 0xcc, 0, 0, place as u8, number]),
    }
}

/// The SPI of what leaves by a link, or of what comes by it.
pub(crate) fn link_spi(link: u32, out: bool) -> Spi {
    Spi(0x1000 * link + u32::from(!out))
}

impl World {
    pub(crate) fn new() -> Self {
        let mut tables = plain_tables();
        for vrf in 1..=VRFS {
            assert_eq!(tables.add_vrf(&format!("tenant{vrf}")), Ok(VrfId(vrf)));
        }
        for vrf in 0..=VRFS {
            for direction in Direction::ALL {
                let accept = DefaultAction::Accept;
                tables.set_default_action(VrfId(vrf), direction, accept).unwrap();
            }
        }
        let table = |vrf| tables.vrf(VrfId(vrf)).unwrap().table;
        let port = |site| Port { life: 0, vrf: 0, site, mtu: 1500 };
        let mut ports = [None; COUNT];
        ports[..2].fill(Some(port(0)));
        let config = Config {
            ports,
            lives: [0; VRFS as usize + 1],
            tables: [0, 1, 2, 3].map(table),
            leaks: Vec::new(),
            filters: Vec::new(),
            queues: Default::default(),
        };
        let mut ids = [None; COUNT];
        (ids[LAN_PLACE], ids[WAN_PLACE]) = (Some(LAN), Some(WAN));
        // Large enough for all flows, and small for the many gateways of a run.
        let (mode, associativity) = (CacheMode::On, Associativity::Four);
        let cache = CacheSettings { mode, buckets: 1024, associativity };
        let mut gateway = Gateway::with_caches(tables, [cache; 4], 7);
        let (writer, taps) = tap_ring(1 << 20);
        gateway.worker.set_taps(writer);
        let mut world = Self {
            gateway,
            taps,
            epochs: vec![config.clone()],
            config,
            sent: Vec::new(),
            seals: Vec::new(),
            tapped: BTreeMap::new(),
            ids,
            counts: BTreeMap::new(),
            batch: 0..0,
            tally: Tally::default(),
            meters: BTreeMap::new(),
            last: Vec::new(),
            rules: 0,
            lives: 0,
        };
        for (place, (vrf, site)) in BEGINNING.into_iter().enumerate().skip(2) {
            world.take(&Step::Create(place, vrf, site));
            assert!(world.config.ports[place].is_some(), "{place}");
        }
        for place in (0..COUNT).filter(|place| is_link(*place)) {
            world.add_tunnel_of_link(place);
        }
        for vrf in 1..=VRFS {
            world.take(&Step::Tunnel(vrf, true));
        }
        world
    }

    /// The configuration when something was sent.
    pub(crate) fn epoch(&self, sent: &Sent) -> &Config {
        &self.epochs[sent.epoch]
    }

    pub(crate) fn take(&mut self, step: &Step) {
        self.batch = self.sent.len()..self.sent.len();
        match step {
            Step::Batch(sendings) => self.send(sendings),
            Step::Again => self.send(&self.last.clone()),
            Step::Wait(milliseconds) => self.gateway.wait(Duration::from_millis(*milliseconds)),
            _ => {
                self.change(step);
                self.epochs.push(self.config.clone());
            }
        }
        self.gateway.poll();
        self.hear();
    }

    fn send(&mut self, sendings: &[Sending]) {
        sendings.iter().for_each(|sending| self.push(sending));
        self.batch.end = self.sent.len();
        self.last = sendings.to_vec();
    }

    /// What the workers have learned becomes known.
    fn hear(&mut self) {
        while let Ok(event) = self.gateway.events.pop() {
            if let Event::NeighbourSeen { port, address, mac, .. } = event {
                // A station is behind the port of its cable and tags alone.
                let place = self.ids.iter().position(|id| *id == Some(port));
                assert_eq!(Some(usize::from(mac.0[4])), place, "{address} is at {mac:?}");
                self.try_change(|tables| tables.set_neighbour(port, address, mac));
            }
        }
        self.gateway.poll();
    }
}
