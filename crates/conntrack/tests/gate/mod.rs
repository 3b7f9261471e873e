//! A gateway in small: a table, a clock, and a cache of what was decided for each tuple. Each
//! packet is held to the law: a kept decision that is valid is what would be decided now.
#![allow(dead_code)] // Each test uses a part of it.

use std::collections::HashMap;
use std::net::Ipv4Addr;
use std::time::Duration;

use conntrack::nat::Lease;
use conntrack::{
    Connection, Connections, CtState, Direction, Ended, Handle, Hit, New, Packet, Reference,
    Refused, Segment, Settings, Tuple,
};
use packet::Time;
use types::{Addresses, Protocol, TcpFlags};

pub(crate) const NEW: CtState = CtState(0x21);
pub(crate) const EST: CtState = CtState(0x22);
pub(crate) const REPLY: CtState = CtState(0x2a);
pub(crate) const INV: CtState = CtState(0x30);

pub(crate) struct Gate {
    pub(crate) table: Connections,
    pub(crate) now: Time,
    pub(crate) cache: HashMap<Tuple, Reference>,
    pub(crate) ended: Vec<Ended>,
    /// Whether packets may open connections.
    pub(crate) commits: bool,
}

pub(crate) fn settings(connections: u32) -> Settings {
    Settings { connections, ipv6_connections: connections, ..Settings::default() }
}

impl Gate {
    pub(crate) fn new(settings: &Settings) -> Self {
        let now = Time(1_000_000_000_000);
        Self {
            table: Connections::new(settings, [1, 2], now).unwrap(),
            now,
            cache: HashMap::new(),
            ended: Vec::new(),
            commits: true,
        }
    }

    /// One whose places have had other connections.
    pub(crate) fn used(connections: u32) -> Self {
        let mut gate = Self::new(&settings(connections));
        for round in 0..7 {
            let flows: Vec<_> = (0..connections as u16).map(|port| udp(9, port)).collect();
            flows.iter().for_each(|flow| assert_eq!(gate.packet(*flow, &Packet::Datagram), NEW));
            for flow in &flows {
                let (handle, _) = gate.lookup(flow).unwrap();
                assert!(handle.generation >= round);
                assert!(gate.table.remove(handle, gate.now, &mut |_| ()));
            }
            gate.cache.clear();
        }
        gate.ended.clear();
        gate
    }

    pub(crate) fn wait(&mut self, seconds: u64) {
        self.now = self.now + Duration::from_secs(seconds);
    }

    /// What happens to a packet: as the cache has it if that is valid, otherwise decided.
    pub(crate) fn packet(&mut self, tuple: Tuple, packet: &Packet) -> CtState {
        self.packet_as(&New::plain(0, tuple), packet)
    }

    pub(crate) fn packet_as(&mut self, new: &New, packet: &Packet) -> CtState {
        self.packet_to(new, &Lease::of(new.original), packet)
    }

    /// The same, if a connection that it opens is translated so.
    pub(crate) fn packet_to(&mut self, new: &New, to: &Lease, packet: &Packet) -> CtState {
        let tuple = new.original;
        let tracked = self.table.track(new.zone, &tuple, packet, self.now);
        if let Some(kept) = self.cache.get(&tuple).copied() {
            match self.table.hit(kept, packet, 100, self.now) {
                Hit::Valid { .. } => {
                    assert_eq!(kept.ct_state(), tracked.ct_state, "{tuple:?} {packet:?}");
                    assert!(tracked.keep, "must be decided each time: {tuple:?} {packet:?}");
                    return tracked.ct_state;
                }
                Hit::Stale => {
                    self.cache.remove(&tuple);
                }
            }
        }
        let again = self.table.track(new.zone, &tuple, packet, self.now);
        assert_eq!(tracked, again, "a stale hit has changed something: {tuple:?} {packet:?}");
        let is_new = tracked.ct_state.contains(CtState::NEW) && tracked.connection.is_none();
        if is_new && self.commits {
            let ended = &mut self.ended;
            let (ended, packet) = (&mut |end: &[_]| ended.extend(end), (packet, 100));
            let made = self.table.commit_translated(new, to, packet, self.now, ended);
            assert!(matches!(made, Ok(_) | Err(Refused::Full)), "{made:?}");
            return tracked.ct_state;
        }
        if tracked.keep {
            self.cache.insert(tuple, tracked.reference);
        }
        if tracked.connection.is_some() || tracked.keep {
            // Decided a moment ago.
            let hit = self.table.hit(tracked.reference, packet, 100, self.now);
            assert!(matches!(hit, Hit::Valid { .. }), "{tuple:?} {packet:?}");
        }
        tracked.ct_state
    }

    pub(crate) fn connection(&self, tuple: &Tuple) -> Option<Connection> {
        let (handle, _) = self.table.lookup(0, tuple, self.now)?;
        self.table.connection(handle.index, self.now)
    }

    pub(crate) fn lookup(&self, tuple: &Tuple) -> Option<(Handle, Direction)> {
        self.table.lookup(0, tuple, self.now)
    }

    /// Has the wheel look at all that is due.
    pub(crate) fn expire(&mut self) -> u32 {
        let ended = &mut self.ended;
        let mut done = 0;
        loop {
            let looked = self.table.expire(self.now, 64, &mut |end| ended.extend(end));
            done += looked;
            if looked < 64 {
                return done;
            }
        }
    }
}

pub(crate) fn addresses(source: u32, destination: u32) -> Addresses {
    Addresses::V4 {
        source: Ipv4Addr::from_bits(source),
        destination: Ipv4Addr::from_bits(destination),
    }
}

pub(crate) fn udp(from: u32, port: u16) -> Tuple {
    Tuple::new(addresses(from, 0x0a00_0001), Protocol::UDP, port, 53)
}

pub(crate) fn tcp(from: u32, port: u16) -> Tuple {
    Tuple::new(addresses(from, 0x0a00_0001), Protocol::TCP, port, 80)
}

pub(crate) fn segment(flags: &str, sequence: u32, acknowledgment: u32, length: u32) -> Packet {
    let bit = |letter: char| match letter {
        'F' => TcpFlags::FIN.0,
        'S' => TcpFlags::SYN.0,
        'R' => TcpFlags::RST.0,
        'P' => TcpFlags::PSH.0,
        'A' => TcpFlags::ACK.0,
        'U' => TcpFlags::URG.0,
        _ => unreachable!("{letter}"),
    };
    let flags = TcpFlags(flags.chars().map(bit).fold(0, |all, bit| all | bit));
    let window = 10_000;
    Packet::Tcp(Segment { sequence, acknowledgment, window, flags, length, scale: None, sacked: 0 })
}

pub(crate) fn with(packet: Packet, change: impl FnOnce(&mut Segment)) -> Packet {
    let Packet::Tcp(mut segment) = packet else { panic!("no TCP") };
    change(&mut segment);
    Packet::Tcp(segment)
}
