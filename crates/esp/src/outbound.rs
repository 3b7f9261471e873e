//! The outbound SA: numbers, frames and seals.

use core::fmt;
use std::sync::Arc;

use rand::CryptoRng;
use types::Spi;

use crate::algorithm::{Algorithm, HEADER_LENGTH, Iv, TRAILER_LENGTH};
use crate::engine::{BATCH, Engine};
use crate::job::{SealError, SealJob};
use crate::keys::KeyMaterial;
use crate::numbers::{LAST, Numbers};

/// What padding is cut from: 1, 2, 3, ... (RFC 4303 section 2.4).
pub(crate) const PADDING: [u8; 255] = {
    let mut padding = [0; 255];
    let mut i = 0;
    while i < padding.len() {
        padding[i] = i as u8 + 1;
        i += 1;
    }
    padding
};

/// An SA that protects what is sent. Any number of workers may seal with it at once; nothing is
/// locked.
pub struct OutboundSa {
    spi: Spi,
    algorithm: Algorithm,
    engine: Engine,
    numbers: Arc<Numbers>,
}

impl OutboundSa {
    /// An SA with numbers of its own, whose first packet has the number after `sequence`: 0 for a
    /// new SA, or where an earlier one left off (Linux `replay-oseq`).
    ///
    /// `randomness` gives the mask of its IVs. So the IVs of two SAs that share a key, or of one
    /// before and after a restart, do not meet unless two masks agree in all of their upper 32
    /// bits. [`OutboundSa::with_numbers`] makes sure of it.
    pub fn new<R: CryptoRng + ?Sized>(
        spi: Spi,
        keys: &KeyMaterial,
        sequence: u32,
        randomness: &mut R,
    ) -> Self {
        let numbers = Numbers::unlimited(sequence, randomness.next_u64());
        Self::with_numbers(spi, keys, Arc::new(numbers))
    }

    /// An SA that takes the numbers of its key from `numbers`, as others with that key do.
    pub fn with_numbers(spi: Spi, keys: &KeyMaterial, numbers: Arc<Numbers>) -> Self {
        Self { spi, algorithm: keys.algorithm(), engine: Engine::new(keys), numbers }
    }

    /// The SPI that its packets carry.
    pub fn spi(&self) -> Spi {
        self.spi
    }

    /// How it protects.
    pub fn algorithm(&self) -> Algorithm {
        self.algorithm
    }

    /// Where its numbers come from.
    pub fn numbers(&self) -> &Arc<Numbers> {
        &self.numbers
    }

    /// The number given to the last packet under its key; 0 where there was none yet.
    pub fn sequence(&self) -> u32 {
        self.numbers.last()
    }

    /// Turns each job's payload into an ESP packet, in place and in order:
    /// [`Algorithm::overhead_front`] bytes grow in front, padding, trailer and ICV behind.
    ///
    /// A job that fails says why in its result, uses no sequence number where it had no room, and
    /// disturbs no other. `randomness` is drawn on for IVs that must be unpredictable (RFC 3602
    /// section 3). Returns whether more numbers are to be [allowed](Numbers::allow); that is said
    /// once.
    pub fn seal<R: CryptoRng + ?Sized>(
        &self,
        jobs: &mut [SealJob<'_>],
        randomness: &mut R,
    ) -> bool {
        let mut asks = false;
        for batch in jobs.chunks_mut(BATCH) {
            let mut fitting = 0;
            for job in &mut *batch {
                job.result = self.check_room(job);
                fitting += u64::from(job.result.is_ok());
            }
            let taken = self.numbers.take(fitting);
            asks |= taken.asks;
            let (mut sequence, limit) = (taken.before, taken.limit.min(LAST));
            let mut ivs = [0; 16 * BATCH];
            if self.algorithm.iv() == Iv::Random {
                randomness.fill_bytes(&mut ivs[..16 * batch.len()]);
            }
            for (job, iv) in
                batch.iter_mut().zip(ivs.as_chunks::<16>().0).filter(|(job, _)| job.result.is_ok())
            {
                sequence += 1;
                if sequence <= limit {
                    self.frame(job, sequence as u32, iv);
                } else if sequence > LAST {
                    job.result = Err(SealError::SequenceExhausted);
                } else {
                    job.result = Err(SealError::SequenceUnreserved);
                }
            }
            self.engine.seal_batch(batch);
        }
        asks
    }

    fn check_room(&self, job: &SealJob<'_>) -> Result<(), SealError> {
        let Some(before) = job.start.checked_sub(self.algorithm.overhead_front()) else {
            return Err(SealError::NoRoom);
        };
        // A length that big is outside every buffer; it is refused before it can overflow the sum.
        if job.length > job.buffer.len()
            || self.algorithm.sealed_length(job.length) > job.buffer.len().saturating_sub(before)
        {
            return Err(SealError::NoRoom);
        }
        Ok(())
    }

    /// Writes header, IV, padding and trailer around the payload, and makes the job's range the ESP
    /// packet.
    #[inline]
    fn frame(&self, job: &mut SealJob<'_>, sequence: u32, iv: &[u8; 16]) {
        let front = self.algorithm.overhead_front();
        let length = self.algorithm.sealed_length(job.length);
        let start = job.start - front;
        let packet = &mut job.buffer[start..start + length];

        let (header, rest) = packet.split_at_mut(HEADER_LENGTH);
        header[..4].copy_from_slice(&self.spi.0.to_be_bytes());
        header[4..].copy_from_slice(&sequence.to_be_bytes());
        match self.algorithm.iv() {
            Iv::None => {}
            Iv::Counter => {
                rest[..8].copy_from_slice(&self.numbers.iv(sequence));
            }
            Iv::Random => rest[..16].copy_from_slice(iv),
        }

        let trailer_end = length - self.algorithm.icv_length();
        let behind = &mut packet[front + job.length..trailer_end];
        let pad_length = behind.len() - TRAILER_LENGTH;
        // Never more than 15: the padding only fills a block.
        for (byte, value) in behind.iter_mut().zip(PADDING).take(pad_length) {
            *byte = value;
        }
        behind[pad_length] = pad_length as u8;
        behind[pad_length + 1] = job.next_header.0;

        job.start = start;
        job.length = length;
    }
}

impl fmt::Debug for OutboundSa {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("OutboundSa")
            .field("spi", &format_args!("{}", self.spi))
            .field("algorithm", &format_args!("{}", self.algorithm))
            .field("sequence", &self.sequence())
            .finish_non_exhaustive()
    }
}
