//! A buffer for a frame that waits to be received.

use packet::{Batch, MAX_FRAME, Packet, Pool};

/// What there is for a frame.
#[derive(Debug)]
pub(crate) enum Room {
    /// An empty buffer that is long enough.
    Buffer(Packet),
    /// No buffer now. The frame waits where it is.
    Later,
    /// No large buffer, and none that comes back soon. The frame counts as missed, or it would hold
    /// up all frames behind it for as long as others keep the large buffers.
    Missed,
    /// The frame is longer than any buffer of the pool.
    TooLong,
}

impl Room {
    /// Looks for a buffer for a frame of `length` bytes that is to be added to `batch`.
    ///
    /// The packets of a batch usually give their buffers back before the next batch is received, so
    /// a frame waits for a large buffer if the batch is not empty.
    #[inline]
    pub(crate) fn of(pool: &mut Pool, batch: &Batch, length: usize) -> Self {
        match pool.take_for(length) {
            Some(packet) => Self::Buffer(packet),
            None if length > pool.longest_frame() => Self::TooLong,
            None if length > MAX_FRAME && batch.is_empty() => Self::Missed,
            None => Self::Later,
        }
    }
}

#[cfg(test)]
mod tests {
    use packet::MAX_LARGE_FRAME;

    use super::*;

    #[test]
    fn without_large_buffers_a_large_frame_is_too_long() {
        let (mut pool, batch) = (Pool::new(1), Batch::new());
        assert!(matches!(Room::of(&mut pool, &batch, MAX_FRAME + 1), Room::TooLong));
        assert!(matches!(Room::of(&mut pool, &batch, MAX_FRAME), Room::Buffer(_)));
    }

    #[test]
    fn a_frame_waits_for_a_large_buffer_only_behind_others() {
        let (mut pool, mut batch) = (Pool::with_large(1, 1), Batch::new());
        assert!(matches!(Room::of(&mut pool, &batch, MAX_LARGE_FRAME + 1), Room::TooLong));
        let Room::Buffer(large) = Room::of(&mut pool, &batch, MAX_LARGE_FRAME) else { panic!() };
        assert!(matches!(Room::of(&mut pool, &batch, MAX_FRAME + 1), Room::Missed));
        batch.push(large);
        assert!(matches!(Room::of(&mut pool, &batch, MAX_FRAME + 1), Room::Later));
        let Room::Buffer(small) = Room::of(&mut pool, &batch, MAX_FRAME) else { panic!() };
        assert!(!small.is_large());
        assert!(matches!(Room::of(&mut pool, &Batch::new(), MAX_FRAME), Room::Later));
    }
}
