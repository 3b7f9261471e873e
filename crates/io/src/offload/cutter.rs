//! Frames that are too long for one buffer wait here while they are cut.

use packet::{Batch, MAX_LARGE_FRAME, Pool, PortStatistics};
use wire::PortId;

use super::{Refused, Segmenter, VLAN_TAG, VnetHeader, insert_vlan};
use crate::room::Room;

/// The longest frame there is: 64 KiB of IP packet, an Ethernet header and two VLAN tags.
pub(crate) const LONGEST: usize = (1 << 16) + 14 + 8;

/// Room for one frame, and how far it has been cut.
#[derive(Debug)]
pub(crate) struct Cutter {
    buffer: Box<[u8]>,
    length: usize,
    segmenter: Option<Segmenter>,
    vlan: Option<(u16, u16)>,
}

impl Cutter {
    pub(crate) fn new() -> Self {
        let buffer = vec![0; VnetHeader::LENGTH + LONGEST].into_boxed_slice();
        Self { buffer, length: 0, segmenter: None, vlan: None }
    }

    /// Whether a frame is being cut.
    #[inline]
    pub(crate) fn is_busy(&self) -> bool {
        self.segmenter.is_some()
    }

    /// Room for a virtio-net header and the longest frame.
    pub(crate) fn buffer_mut(&mut self) -> &mut [u8] {
        &mut self.buffer
    }

    /// The first `length` bytes behind the virtio-net header's place.
    pub(crate) fn frame(&self, length: usize) -> Result<&[u8], Refused> {
        self.buffer.get(VnetHeader::LENGTH..VnetHeader::LENGTH + length).ok_or(Refused::Length)
    }

    /// Copies a frame in, or the beginning of one.
    pub(crate) fn load(&mut self, frame: &[u8]) -> Result<(), Refused> {
        let room = self
            .buffer
            .get_mut(VnetHeader::LENGTH..VnetHeader::LENGTH + frame.len())
            .ok_or(Refused::Length)?;
        room.copy_from_slice(frame);
        Ok(())
    }

    /// Begins to cut the first `length` bytes behind the virtio-net header's place. `vlan` goes
    /// into each segment.
    pub(crate) fn start(
        &mut self,
        length: usize,
        header: &VnetHeader,
        vlan: Option<(u16, u16)>,
    ) -> Result<(), Refused> {
        let segmenter = Segmenter::new(self.frame(length)?, header)?;
        if vlan.is_some() && segmenter.longest() + VLAN_TAG > MAX_LARGE_FRAME {
            return Err(Refused::Length);
        }
        self.segmenter = Some(segmenter);
        (self.length, self.vlan) = (length, vlan);
        Ok(())
    }

    /// Cuts segments into `batch` until it is full, the frame is cut up, or there is no buffer.
    /// Returns their bytes. Segments for which there is no large buffer are counted as missed.
    pub(crate) fn cut(
        &mut self,
        port: PortId,
        pool: &mut Pool,
        batch: &mut Batch,
        statistics: &PortStatistics,
    ) -> u64 {
        let Some(segmenter) = &mut self.segmenter else { return 0 };
        let frame = &self.buffer[VnetHeader::LENGTH..VnetHeader::LENGTH + self.length];
        let tag = if self.vlan.is_some() { VLAN_TAG } else { 0 };
        let mut bytes = 0;
        while !batch.is_full() && !segmenter.is_finished() {
            let mut packet = match Room::of(pool, batch, segmenter.next_length() + tag) {
                Room::Buffer(packet) => packet,
                Room::Later => break,
                Room::Missed => {
                    statistics.rx_missed.add(1);
                    segmenter.skip_segment();
                    continue;
                }
                Room::TooLong => {
                    statistics.rx_errors.add(1);
                    segmenter.skip_segment();
                    continue;
                }
            };
            let fits = segmenter.next_segment(frame, &mut packet)
                && self.vlan.is_none_or(|(tpid, tci)| insert_vlan(&mut packet, tpid, tci));
            if !fits {
                statistics.rx_errors.add(1);
                pool.give(packet);
                continue;
            }
            packet.set_port(port);
            bytes += packet.len() as u64;
            batch.push(packet);
        }
        if segmenter.is_finished() {
            self.segmenter = None;
        }
        bytes
    }
}
