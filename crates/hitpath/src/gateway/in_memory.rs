//! A gateway on memory ports, for tests that look at what leaves it.

use api::{Refusal, Reply};
use control::Config;
use io::memory::MemoryHandle;
use packet::{LinkKind, Time};
use wire::Mac;
use wire::ethernet::{self, EtherType};

use super::{Gateway, twin};

/// The gateway, and the other ends of its ports in the order of the configuration.
pub(crate) struct InMemory {
    pub(crate) gateway: Gateway,
    pub(crate) ports: Vec<MemoryHandle>,
}

impl InMemory {
    /// A station behind its first port.
    pub(crate) const STATION: Mac = Mac([2, 0xbb, 0, 0, 0, 1]);

    pub(crate) fn new(config: Config) -> Self {
        let mut ports = Vec::new();
        let gateway = Gateway::new(config, [7; 32], Time(0), |settings, id| {
            assert_eq!(settings.kind.link(), LinkKind::Ethernet);
            let (port, handle) = io::memory::port(twin::options(settings, id), 64);
            ports.push(handle);
            Ok(Box::new(port))
        });
        Self { gateway: gateway.unwrap(), ports }
    }

    /// Carries out a command.
    pub(crate) fn run(&mut self, line: &str, now: Time) -> Result<Reply, Refusal> {
        let words: Vec<_> = line.split_whitespace().collect();
        self.gateway.handler_mut().handle(control::grammar::parse(&words)?, now)
    }

    /// The frame of a packet from the station to the gateway.
    pub(crate) fn frame(&self, packet: &[u8]) -> Vec<u8> {
        let tables = self.gateway.handler().tables();
        let header = ethernet::Header {
            destination: tables.ports().next().unwrap().spec.mac,
            source: Self::STATION,
            ether_type: EtherType::of_ip(packet).unwrap(),
        };
        [&header.to_bytes()[..], packet].concat()
    }

    /// What leaves, by the position of its port, when these frames come by the first one.
    pub(crate) fn pass(&mut self, frames: &[Vec<u8>], now: Time) -> Vec<(usize, Vec<u8>)> {
        frames.iter().for_each(|frame| assert!(self.ports[0].push(frame)));
        while self.gateway.step(now).unwrap() > 0 {}
        let mut all = Vec::new();
        for (at, port) in self.ports.iter_mut().enumerate() {
            all.extend(core::iter::from_fn(|| port.pop()).map(|frame| (at, frame)));
        }
        all
    }
}
