//! The inbound SA: judges the sequence number, authenticates, decrypts and unframes.

use core::fmt;
use std::sync::Arc;

use types::{Protocol, Spi};

use crate::algorithm::{Algorithm, HEADER_LENGTH, TRAILER_LENGTH};
use crate::engine::{BATCH, Engine};
use crate::job::{OpenError, OpenJob};
use crate::keys::KeyMaterial;
use crate::outbound::PADDING;
use crate::replay::{ReplayWindow, WindowSize};

/// An SA that checks and opens what is received. Any number of workers may open with it at once;
/// nothing is locked, and of a sequence number that comes to several of them at once exactly one is
/// accepted.
pub struct InboundSa {
    spi: Spi,
    algorithm: Algorithm,
    engine: Engine,
    window: Arc<ReplayWindow>,
}

impl InboundSa {
    /// An SA that takes the numbers up to `sequence` as seen: 0 for a new SA, or where an earlier
    /// one left off (Linux `replay-seq`). Without integrity there is no window, whatever is asked
    /// for: anybody could move it (RFC 4303 section 3.4.3).
    pub fn new(spi: Spi, keys: &KeyMaterial, window: WindowSize, sequence: u32) -> Self {
        let window = match keys.algorithm().icv_length() {
            0 => WindowSize::OFF,
            _ => window,
        };
        Self::with_window(spi, keys, Arc::new(ReplayWindow::new(window, sequence)))
    }

    /// An SA that goes on with the window of an earlier one. It has integrity.
    pub fn with_window(spi: Spi, keys: &KeyMaterial, window: Arc<ReplayWindow>) -> Self {
        Self { spi, algorithm: keys.algorithm(), engine: Engine::new(keys), window }
    }

    /// The SPI by which its packets are found. Whoever finds them has compared it; opening does not
    /// look at it again.
    pub fn spi(&self) -> Spi {
        self.spi
    }

    /// How it protects.
    pub fn algorithm(&self) -> Algorithm {
        self.algorithm
    }

    /// Its replay window.
    pub fn replay_window(&self) -> &Arc<ReplayWindow> {
        &self.window
    }

    /// Size of its replay window.
    pub fn window(&self) -> WindowSize {
        self.window.size()
    }

    /// The highest sequence number accepted; with no replay window, the one that it was made with.
    pub fn sequence(&self) -> u32 {
        self.window.top()
    }

    /// Turns each job's ESP packet into its payload, in place and in order.
    ///
    /// A packet is refused, in this order, for its length, its sequence number, its ICV, its
    /// sequence number again (an equal one may have been accepted since, in this batch or by
    /// another worker; or it is above the [edge](ReplayWindow::edge)) and its padding. A job that
    /// fails says why in its result and disturbs no other; its buffer is not to be used. One that is
    /// [above the edge](OpenError::Unstored) is opened nevertheless, and may be
    /// [accepted](ReplayWindow::accept) later. Returns whether it is time to
    /// [move the edge](ReplayWindow::move_edge); that is said once.
    pub fn open(&self, jobs: &mut [OpenJob<'_>]) -> bool {
        // The edge may be moved meanwhile: what comes behind one that waits does not overtake it.
        let mut is_behind = false;
        self.open_if(jobs, |sequence| {
            let outcome = match is_behind {
                false => self.window.mark(sequence),
                true => Err(self.window.defer(sequence)),
            };
            is_behind |= outcome == Err(OpenError::Unstored);
            outcome
        })
    }

    /// The same, but accepts none: earlier ones wait, and these are to wait behind them.
    pub fn open_behind(&self, jobs: &mut [OpenJob<'_>]) -> bool {
        self.open_if(jobs, |sequence| Err(self.window.defer(sequence)))
    }

    #[inline]
    fn open_if(
        &self,
        jobs: &mut [OpenJob<'_>],
        mut mark: impl FnMut(u32) -> Result<(), OpenError>,
    ) -> bool {
        let mut accepted = 0;
        for batch in jobs.chunks_mut(BATCH) {
            for job in &mut *batch {
                job.result = self.admit(job);
            }
            self.engine.open_batch(batch);
            for job in batch.iter_mut().filter(|job| job.result.is_ok()) {
                job.result = match mark(job.sequence) {
                    Ok(()) => self.unframe(job),
                    Err(OpenError::Unstored) => self.unframe(job).and(Err(OpenError::Unstored)),
                    Err(why) => Err(why),
                };
                accepted += u64::from(job.result.is_ok());
            }
        }
        self.window.count(accepted)
    }

    /// What costs no cryptography: length and sequence number.
    #[inline]
    fn admit(&self, job: &mut OpenJob<'_>) -> Result<(), OpenError> {
        job.sequence = 0;
        job.next_header = Protocol::NONE;
        let packet = job
            .buffer
            .get(job.start..)
            .and_then(|rest| rest.get(..job.length))
            .ok_or(OpenError::Truncated)?;
        let hidden = packet
            .len()
            .checked_sub(self.algorithm.overhead_front() + self.algorithm.icv_length())
            .ok_or(OpenError::Truncated)?;
        // One block at least, since the trailer is there even where the payload is not.
        if hidden == 0 || hidden % self.algorithm.alignment() != 0 {
            return Err(OpenError::Truncated);
        }
        job.sequence =
            packet[4..HEADER_LENGTH].iter().fold(0, |number, byte| number << 8 | u32::from(*byte));
        self.window.check(job.sequence)
    }

    /// Checks the padding and makes the job's range the payload.
    #[inline]
    fn unframe(&self, job: &mut OpenJob<'_>) -> Result<(), OpenError> {
        let start = job.start + self.algorithm.overhead_front();
        let trailer_end = job.start + job.length - self.algorithm.icv_length();
        let (content, trailer) =
            job.buffer[start..trailer_end].split_at(trailer_end - start - TRAILER_LENGTH);
        let pad_length = usize::from(trailer[0]);
        let length = content.len().checked_sub(pad_length).ok_or(OpenError::BadPadding)?;
        // RFC 4303 section 2.4: the receiver inspects the padding. It is authenticated by now, so
        // timing tells a stranger nothing.
        if content[length..] != PADDING[..pad_length] {
            return Err(OpenError::BadPadding);
        }
        job.next_header = Protocol(trailer[1]);
        job.start = start;
        job.length = length;
        Ok(())
    }
}

impl fmt::Debug for InboundSa {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("InboundSa")
            .field("spi", &format_args!("{}", self.spi))
            .field("algorithm", &format_args!("{}", self.algorithm))
            .field("window", &self.window)
            .finish_non_exhaustive()
    }
}
