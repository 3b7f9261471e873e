//! What every port can do.

use std::os::fd::RawFd;
use std::sync::Arc;

use thiserror::Error;
pub use types::LinkKind;
use wire::Mac;

use crate::batch::Batch;
use crate::buffer::Pool;
use crate::counter::Counter;
use crate::time::Time;

/// A port has failed for good, and why.
#[derive(Debug, Error)]
#[error("port {port}: {what}: {source}")]
pub struct PortError {
    /// The port's name.
    pub port: String,
    /// What was being done.
    pub what: &'static str,
    /// What the system said.
    #[source]
    pub source: std::io::Error,
}

/// What one queue of a port has done. Written by the worker that owns the queue.
#[derive(Debug, Default)]
#[repr(align(64))]
pub struct PortStatistics {
    /// Packets handed to the gateway.
    pub rx_packets: Counter,
    /// Their bytes, link header included.
    pub rx_bytes: Counter,
    /// Packets for which the kernel had no room in the ring that it shares with the port, or in the
    /// socket's queue: its own count.
    pub rx_ring_full: Counter,
    /// Packets lost before the gateway saw them, because it had no buffer, or closed the port.
    pub rx_missed: Counter,
    /// Frames refused: longer than a buffer, or with an offload that cannot be undone.
    pub rx_errors: Counter,
    /// Packets sent.
    pub tx_packets: Counter,
    /// Their bytes, link header included.
    pub tx_bytes: Counter,
    /// Packets not sent because the queue was full.
    pub tx_dropped: Counter,
    /// Packets not sent because they were longer than the link takes.
    pub tx_too_long: Counter,
    /// Packets not sent because the interface was down.
    pub tx_down: Counter,
    /// Packets the system refused to send for another reason.
    pub tx_errors: Counter,
    /// Frames larger than the MTU (segmentation offload) that were cut into segments on receipt.
    pub rx_segmented: Counter,
    /// Checksums that the sender had left to offload and that were completed on receipt.
    pub rx_checksummed: Counter,
}

impl PortStatistics {
    /// Packets that were to leave and were not sent, for whatever reason.
    pub fn unsent(&self) -> u64 {
        [&self.tx_dropped, &self.tx_too_long, &self.tx_down, &self.tx_errors]
            .map(Counter::read)
            .iter()
            .sum()
    }
}

/// Where received frames wait for a worker.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct ReceiveRing {
    /// How many frames it holds at least.
    pub frames: usize,
    /// Its memory.
    pub bytes: usize,
}

/// One worker's queue of a port.
pub trait Port: Send {
    /// The name users know it by.
    fn name(&self) -> &str;

    /// What frames begin with.
    fn link(&self) -> LinkKind;

    /// The port's own Ethernet address.
    fn mac(&self) -> Mac;

    /// The largest IP packet in bytes that may be sent.
    fn mtu(&self) -> u16;

    /// Receives packets into `batch` until it is full or none wait, taking buffers from `pool`.
    /// Returns how many came. A capture's packets come once `now` has reached their time.
    ///
    /// A frame for which all large buffers are in use is counted as missed.
    ///
    /// # Errors
    /// Only if the port is lost for good. What is wrong with one frame is counted in the
    /// statistics.
    fn receive(
        &mut self,
        now: Time,
        pool: &mut Pool,
        batch: &mut Batch,
    ) -> Result<usize, PortError>;

    /// Sends all of `batch` and gives the buffers back to `pool`. What cannot be sent is counted,
    /// not kept. On return `batch` is empty.
    ///
    /// # Errors
    /// Only if the port is lost for good.
    fn transmit(&mut self, now: Time, pool: &mut Pool, batch: &mut Batch) -> Result<(), PortError>;

    /// Where frames wait, if the port can say so.
    fn ring(&self) -> Option<ReceiveRing> {
        None
    }

    /// Forgets the frames that wait, if the port can: they came before it was one of the gateway's, and
    /// another port may have received them as well.
    fn forget_waiting(&mut self) {}

    /// Whether it holds packets that it has received and had no buffer for. Its descriptor need not
    /// be readable then.
    fn waits_for_buffers(&self) -> bool {
        false
    }

    /// Takes note that the interface's MTU has changed.
    fn set_mtu(&mut self, _mtu: u16) {}

    /// What this queue has done.
    fn statistics(&self) -> &Arc<PortStatistics>;

    /// A descriptor that becomes readable when packets wait, if the port has one.
    fn descriptor(&self) -> Option<RawFd> {
        None
    }
}
