//! The outbound SA: numbers, frames and seals.

use core::fmt;
use core::sync::atomic::{AtomicU64, Ordering};

use rand::CryptoRng;
use types::Spi;

use crate::algorithm::{Algorithm, HEADER_LENGTH, Iv, TRAILER_LENGTH};
use crate::engine::{BATCH, Engine};
use crate::job::{SealError, SealJob};
use crate::keys::KeyMaterial;

/// The last sequence number there is. Extended sequence numbers are not used, so no packet follows
/// it (RFC 4303 section 3.3.3).
const LAST: u64 = u32::MAX as u64;

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
    /// The number given to the last packet. May pass [`LAST`], and then stands for it.
    sequence: AtomicU64,
    iv_mask: u64,
}

impl OutboundSa {
    /// An SA whose first packet has the number after `sequence`: 0 for a new SA, or where an
    /// earlier one left off (Linux `replay-oseq`).
    ///
    /// `randomness` gives IVs that must not repeat a starting point: each is the sequence number
    /// exclusive-or a 64-bit secret of this SA, as in Linux's seqiv. So they never repeat within
    /// the SA (RFC 4106 section 3.1), and those of two SAs that share a manually configured key, or of
    /// one before and after a restart, do not meet either unless two secrets agree in all of their
    /// upper 32 bits.
    pub fn new<R: CryptoRng + ?Sized>(
        spi: Spi,
        keys: &KeyMaterial,
        sequence: u32,
        randomness: &mut R,
    ) -> Self {
        Self::with_iv_mask(spi, keys, sequence, randomness.next_u64())
    }

    pub(crate) fn with_iv_mask(spi: Spi, keys: &KeyMaterial, sequence: u32, iv_mask: u64) -> Self {
        Self {
            spi,
            algorithm: keys.algorithm(),
            engine: Engine::new(keys),
            sequence: AtomicU64::new(u64::from(sequence)),
            iv_mask,
        }
    }

    /// The SPI that its packets carry.
    pub fn spi(&self) -> Spi {
        self.spi
    }

    /// How it protects.
    pub fn algorithm(&self) -> Algorithm {
        self.algorithm
    }

    /// The number given to the last packet; 0 where there was none yet.
    pub fn sequence(&self) -> u32 {
        self.sequence.load(Ordering::Relaxed).min(LAST) as u32
    }

    /// Turns each job's payload into an ESP packet, in place and in order:
    /// [`Algorithm::overhead_front`] bytes grow in front, padding, trailer and ICV behind.
    ///
    /// A job that fails says why in its result, uses no sequence number where it had no room, and
    /// disturbs no other. `randomness` is drawn on for IVs that must be unpredictable (RFC 3602
    /// section 3).
    pub fn seal<R: CryptoRng + ?Sized>(&self, jobs: &mut [SealJob<'_>], randomness: &mut R) {
        for batch in jobs.chunks_mut(BATCH) {
            let mut fitting = 0;
            for job in &mut *batch {
                job.result = self.check_room(job);
                fitting += u64::from(job.result.is_ok());
            }
            // Relaxed: the number itself is all that threads agree on. Past the end this goes on
            // counting, and would take longer than hardware lasts to wrap 64 bits.
            let mut sequence = self.sequence.fetch_add(fitting, Ordering::Relaxed);
            let mut ivs = [0; 16 * BATCH];
            if self.algorithm.iv() == Iv::Random {
                randomness.fill_bytes(&mut ivs[..16 * batch.len()]);
            }
            for (job, iv) in
                batch.iter_mut().zip(ivs.as_chunks::<16>().0).filter(|(job, _)| job.result.is_ok())
            {
                sequence += 1;
                match u32::try_from(sequence) {
                    Ok(sequence) => self.frame(job, sequence, iv),
                    Err(_) => job.result = Err(SealError::SequenceExhausted),
                }
            }
            self.engine.seal_batch(batch);
        }
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
                rest[..8].copy_from_slice(&(u64::from(sequence) ^ self.iv_mask).to_be_bytes());
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
