//! Two gateways and two hosts in this process, with a tunnel between the gateways: everything is
//! the live code, but the cables are memory and no privilege is needed.

mod host;
mod report;
mod wire_tap;

use std::collections::BTreeMap;
use std::net::Ipv4Addr;
use std::path::PathBuf;
use std::time::Duration;

use anyhow::Context;
use io::memory::{self, MemoryHandle};
use packet::Time;
use wire::Mac;

use crate::gateway::{Gateway, twin};
use host::Host;
pub(crate) use report::Report;
use runtime::clock::Clock;
use wire_tap::WireTap;

/// Frames that a cable holds.
const DEPTH: usize = 1024;

/// Echo requests on their way at once.
const WINDOW: u64 = 256;

/// How long nothing may happen before the demonstration gives up.
const PATIENCE: Duration = Duration::from_secs(3);

const HOST_A: Ipv4Addr = Ipv4Addr::new(192, 168, 13, 5);
const GATEWAY_A: Ipv4Addr = Ipv4Addr::new(192, 168, 13, 1);
const HOST_B: Ipv4Addr = Ipv4Addr::new(192, 168, 12, 5);

/// What is to be shown.
#[derive(Debug)]
pub(crate) struct Demo {
    /// Echo requests to send.
    pub(crate) packets: u64,
    /// Payload of each, in bytes.
    pub(crate) size: usize,
    /// Where to write what passes between the gateways.
    pub(crate) capture: Option<PathBuf>,
}

impl Demo {
    /// Builds the topology, pings through it, and takes it down again.
    ///
    /// # Errors
    /// If a capture cannot be written.
    pub(crate) fn run(&self) -> anyhow::Result<Report> {
        let clock = Clock::start();
        let mut topology = Topology::new(clock.now(), WireTap::new(self.capture.as_deref())?)?;
        topology.until(clock, |topology| {
            if !topology.host_a.is_ready() && topology.now.0.is_multiple_of(2) {
                topology.host_a.ask_for_gateway();
            }
            topology.host_a.is_ready()
        })?;
        // The first one alone: it makes the gateways look for each other and for host-b.
        topology.ping(clock, 1, self.size)?;
        let started = clock.now();
        topology.ping(clock, self.packets, self.size)?;
        let took = clock.now().since(started);
        topology.tap.finish()?;
        Report::of(topology, took)
    }
}

/// Everything there is.
struct Topology {
    host_a: Host,
    gateway_a: Gateway,
    gateway_b: Gateway,
    host_b: Gateway,
    /// The cable between the gateways: both of its ends lead through the tap.
    wan: (MemoryHandle, MemoryHandle),
    tap: WireTap,
    /// The cable between gw-b and host-b.
    lan_b: (MemoryHandle, MemoryHandle),
    now: Time,
}

impl Topology {
    fn new(now: Time, tap: WireTap) -> anyhow::Result<Self> {
        let (gateway_a, mut ends_a) = machine("gw-a.toml", include_str!("gw-a.toml"), now)?;
        let (gateway_b, mut ends_b) = machine("gw-b.toml", include_str!("gw-b.toml"), now)?;
        let (host_b, mut ends_host) = machine("host-b.toml", include_str!("host-b.toml"), now)?;
        let end = |ends: &mut BTreeMap<String, MemoryHandle>, port: &str| {
            ends.remove(port).context("a cable is missing")
        };
        let wan = (end(&mut ends_a, "wan")?, end(&mut ends_b, "wan")?);
        let lan_b = (end(&mut ends_b, "lan")?, end(&mut ends_host, "eth0")?);
        let host_a =
            Host::new(Mac([2, 0, 0, 0, 0, 0x0a]), HOST_A, GATEWAY_A, end(&mut ends_a, "lan")?);
        Ok(Self { host_a, gateway_a, gateway_b, host_b, wan, tap, lan_b, now })
    }

    /// Sends `count` more echo requests and waits for the answers, or until nothing comes any more.
    fn ping(&mut self, clock: Clock, count: u64, size: usize) -> anyhow::Result<()> {
        let (last, answered) = (self.host_a.sent + count, self.host_a.answered + count);
        self.until(clock, |topology| {
            while topology.host_a.sent < last
                && topology.host_a.sent - topology.host_a.answered < WINDOW
                && topology.host_a.ping(HOST_B, size)
            {}
            topology.host_a.answered >= answered
        })
    }

    /// Lets time pass until `done`, or until nothing has moved for a while.
    fn until(
        &mut self,
        clock: Clock,
        mut done: impl FnMut(&mut Self) -> bool,
    ) -> anyhow::Result<()> {
        let mut moved_at = clock.now();
        while !done(self) {
            self.now = clock.now();
            if self.round()? {
                moved_at = self.now;
            } else if self.now.since(moved_at) > PATIENCE {
                break;
            }
        }
        Ok(())
    }

    /// Everybody once. Returns whether a frame moved.
    fn round(&mut self) -> anyhow::Result<bool> {
        let now = self.now;
        let mut moved = 0;
        for machine in [&mut self.gateway_a, &mut self.gateway_b, &mut self.host_b] {
            moved += machine.step(now)?;
        }
        let (tap, (a, b)) = (&mut self.tap, &mut self.wan);
        moved +=
            MemoryHandle::transfer(a, b, DEPTH, |packet| tap.look("gw-a", now, packet.bytes()));
        moved +=
            MemoryHandle::transfer(b, a, DEPTH, |packet| tap.look("gw-b", now, packet.bytes()));
        let (a, b) = &mut self.lan_b;
        moved += MemoryHandle::transfer(a, b, DEPTH, |_| {});
        moved += MemoryHandle::transfer(b, a, DEPTH, |_| {});
        self.host_a.listen();
        Ok(moved > 0)
    }
}

/// A gateway whose cables' other ends are answered, by port name.
fn machine(
    name: &str,
    config: &str,
    now: Time,
) -> anyhow::Result<(Gateway, BTreeMap<String, MemoryHandle>)> {
    let config = control::load(name, config)?;
    let mut ends = BTreeMap::new();
    let gateway = Gateway::new(config, rand::random(), now, |settings, id| {
        let (port, end) = memory::port(twin::options(settings, id), DEPTH);
        ends.insert(settings.name.clone(), end);
        Ok(Box::new(port))
    })?;
    Ok((gateway, ends))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn every_ping_is_answered_and_none_is_seen_in_the_clear() {
        let folder = tempfile::tempdir().unwrap();
        let capture = folder.path().join("wan.pcap");
        let report =
            Demo { packets: 600, size: 100, capture: Some(capture.clone()) }.run().unwrap();
        assert!(report.is_good(), "{}", report.text());
        let seen = serde_json::to_value(&report).unwrap();
        assert_eq!((&seen["sent"], &seen["answered"]), (&601.into(), &601.into()));
        assert_eq!((&seen["between"]["esp"], &seen["between"]["clear"]), (&1202.into(), &0.into()));
        assert_eq!(seen["between"]["secret"], 0);

        let mut reader = io::pcap::PcapReader::open(&capture).unwrap();
        let mut frames = 0;
        while reader.next_record().unwrap().is_some() {
            frames += 1;
        }
        assert_eq!(frames, 1202 + seen["between"]["arp"].as_u64().unwrap());
    }
}
