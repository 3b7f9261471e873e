//! Packets that come in by an ESP tunnel: sealed by the peer, outside the measured time.

use anyhow::ensure;
use esp::{OutboundSa, SealJob};
use io::memory::MemoryHandle;
use packet::BATCH;
use rand::SeedableRng;
use rand::rngs::StdRng;
use wire::ethernet::{self, EtherType};
use wire::{Protocol, Spi, ipv4};

use crate::dut::Feed;
use crate::frame::Frame;
use crate::topology::{self, IN, STATION, Tunnel};
use crate::traffic::Traffic;

/// Where an inner packet stands in its buffer: behind room for the outer headers, ESP's and an IV.
const FRONT: usize = 96;
/// The size of the buffers.
const ROOM: usize = 2048;

/// Feeds the gateway with what the peer behind [`IN`] seals.
pub(crate) struct Sealed {
    frame: Frame,
    traffic: Traffic,
    tunnel: Tunnel,
    sa: OutboundSa,
    randomness: StdRng,
    buffers: Vec<Vec<u8>>,
}

impl Sealed {
    /// Packets like those of `frame`, without its link header, by `tunnel`'s SA `spi`.
    pub(crate) fn new(
        frame: Frame,
        traffic: Traffic,
        tunnel: Tunnel,
        spi: Spi,
    ) -> anyhow::Result<Self> {
        let buffers = vec![vec![0; ROOM]; BATCH];
        Ok(Self {
            frame,
            traffic,
            tunnel,
            sa: tunnel.sealer(spi)?,
            randomness: StdRng::from_seed([5; 32]),
            buffers,
        })
    }

    /// How long a frame is once it is sealed.
    pub(crate) fn length(&self) -> usize {
        let inner = self.frame.length() - ethernet::HEADER_LENGTH;
        ethernet::HEADER_LENGTH + ipv4::HEADER_LENGTH + self.tunnel.algorithm.sealed_length(inner)
    }
}

impl Feed for Sealed {
    fn fill(&mut self, input: &mut MemoryHandle) -> anyhow::Result<()> {
        let mut jobs = Vec::with_capacity(BATCH);
        for buffer in &mut self.buffers {
            let frame = self.frame.of(self.traffic.next_flow());
            let inner = &frame[ethernet::HEADER_LENGTH..];
            buffer[FRONT..FRONT + inner.len()].copy_from_slice(inner);
            let protocol = if inner[0] >> 4 == 6 { Protocol::IPV6 } else { Protocol::IPV4 };
            jobs.push(SealJob::new(buffer, FRONT, inner.len(), protocol));
        }
        self.sa.seal(&mut jobs, &mut self.randomness);
        for job in jobs {
            job.result?;
            let outer = ipv4::Header {
                total_length: (ipv4::HEADER_LENGTH + job.length) as u16,
                protocol: Protocol::ESP,
                source: self.tunnel.source,
                destination: self.tunnel.destination,
                ..ipv4::Header::default()
            };
            let link = ethernet::Header {
                destination: topology::mac(IN),
                source: STATION,
                ether_type: EtherType::IPV4,
            };
            let start = job.start - ipv4::HEADER_LENGTH - ethernet::HEADER_LENGTH;
            let frame = &mut job.buffer[start..job.start + job.length];
            frame[..ethernet::HEADER_LENGTH].copy_from_slice(&link.to_bytes());
            frame[ethernet::HEADER_LENGTH..][..ipv4::HEADER_LENGTH]
                .copy_from_slice(&outer.to_bytes());
            ensure!(input.push(frame), "the port is full: it was not emptied");
        }
        Ok(())
    }

    fn once_through(&self) -> u64 {
        self.traffic.once_through()
    }
}
