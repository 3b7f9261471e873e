//! Receive: a batch of frames from a port.
//!
//! Exits: `port_down`.

use packet::{Batch, DropReason, Time};

use crate::outputs::{Attached, Buffers};

/// Receives one batch into `frames`, which is empty. Returns how many packets came.
pub(crate) fn receive(
    attached: &mut Attached,
    now: Time,
    buffers: &mut Buffers<'_>,
    frames: &mut Batch,
) -> usize {
    let count = match attached.port.receive(now, buffers.pool, frames) {
        Ok(count) => count,
        Err(error) => {
            attached.fail(error);
            frames.len()
        }
    };
    if count > 0 {
        buffers.statistics.batches.add(1);
        buffers.statistics.received.add(count as u64);
    }
    count
}

/// Drops what came from a port that is down, or that there is no more.
#[cold]
pub(crate) fn drop_of_down(frames: &mut Batch, buffers: &mut Buffers<'_>) {
    frames.drain(..).for_each(|packet| buffers.drop(packet, DropReason::PortDown));
}
