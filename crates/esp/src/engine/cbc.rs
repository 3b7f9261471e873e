//! AES-CBC (RFC 3602) by RustCrypto's aes, with a separate HMAC (RFC 4303 section 3.3.2.1: encrypt,
//! then authenticate).
//!
//! CBC encryption waits for each block before it can begin the next, which leaves most of an AES
//! unit idle. A batch has many packets that do not wait for one another, so encryption goes through
//! all of them side by side, one block of each at a time. Decryption has no such chain, and a
//! packet's blocks are decrypted side by side.

use core::{array, mem};

use aes::cipher::array::Array;
use aes::cipher::consts::U16;
use aes::cipher::{BlockCipherEncrypt, BlockModeDecrypt, BlockModeEncrypt, InnerIvInit, KeyInit};
use aes::{Aes128, Aes192, Aes256};

use super::hmac::Hmac;
use super::{BATCH, BatchEngine, to_seal};
use crate::algorithm::{AES_CBC, Cipher, HEADER_LENGTH, Integrity};
use crate::job::{OpenJob, SealJob};
use crate::keys::{KeyError, KeyMaterial};

/// Length of an IV and of a block.
const BLOCK: usize = 16;

impl KeyMaterial {
    /// AES-CBC, of the strength that the key's length says: 16, 24 or 32 bytes.
    ///
    /// # Errors
    /// A key has another length.
    pub fn cbc(key: &[u8], integrity: Integrity, integrity_key: &[u8]) -> Result<Self, KeyError> {
        Self::separate(&AES_CBC, key, Some((integrity, integrity_key)))
    }
}

pub(crate) struct CbcHmac {
    cipher: Cbc,
    hmac: Hmac,
}

/// AES with the key expanded for both directions. Wiped on drop by the library.
pub(crate) enum Cbc {
    Aes128(Box<Aes128>),
    Aes192(Box<Aes192>),
    Aes256(Box<Aes256>),
}

/// Calls a function that is generic over the AES key with the one that is there.
macro_rules! with_key {
    ($cbc:expr, $key:ident => $call:expr) => {
        match $cbc {
            Cbc::Aes128($key) => $call,
            Cbc::Aes192($key) => $call,
            Cbc::Aes256($key) => $call,
        }
    };
}

impl CbcHmac {
    pub(crate) fn new(cipher: Cipher, integrity: Integrity, keys: &KeyMaterial) -> Self {
        Self {
            cipher: Cbc::new(cipher, keys.encryption()),
            hmac: Hmac::new(integrity, keys.integrity()),
        }
    }

    /// What the libraries do for one packet.
    pub(crate) fn seal_alone(&self, packet: &mut [u8]) {
        let (iv, text) = split(packet, self.hmac.icv_length());
        self.cipher.encrypt(iv, text);
        self.hmac.sign(packet);
    }

    /// What the libraries do for one packet. Returns whether it is authentic.
    pub(crate) fn open_alone(&self, packet: &mut [u8]) -> bool {
        let authentic = self.hmac.verify(packet);
        if authentic {
            let (iv, text) = split(packet, self.hmac.icv_length());
            self.cipher.decrypt(iv, text);
        }
        authentic
    }
}

impl BatchEngine for CbcHmac {
    fn seal_batch(&self, jobs: &mut [SealJob<'_>]) {
        self.cipher
            .encrypt_batch(to_seal(jobs).map(|packet| split(packet, self.hmac.icv_length())));
        to_seal(jobs).for_each(|packet| self.hmac.sign(packet));
    }

    fn open_batch(&self, jobs: &mut [OpenJob<'_>]) {
        self.hmac.verify_batch(jobs);
        for job in jobs.iter_mut().filter(|job| job.result.is_ok()) {
            let (iv, text) =
                split(&mut job.buffer[job.start..job.start + job.length], self.hmac.icv_length());
            self.cipher.decrypt(iv, text);
        }
    }
}

impl Cbc {
    pub(crate) fn new(cipher: Cipher, key: &[u8]) -> Self {
        const CHECKED: &str = "KeyMaterial has checked the length";
        match cipher {
            Cipher::AesCbc128 => {
                Self::Aes128(Box::new(Aes128::new_from_slice(key).expect(CHECKED)))
            }
            Cipher::AesCbc192 => {
                Self::Aes192(Box::new(Aes192::new_from_slice(key).expect(CHECKED)))
            }
            Cipher::AesCbc256 => {
                Self::Aes256(Box::new(Aes256::new_from_slice(key).expect(CHECKED)))
            }
            Cipher::Null => unreachable!("the null cipher has an engine of its own"),
        }
    }

    /// Encrypts `text`, whole blocks.
    pub(crate) fn encrypt(&self, iv: &[u8; BLOCK], text: &mut [u8]) {
        with_key!(self, key => encrypt_alone(&**key, iv, text));
    }

    /// Encrypts [`BATCH`] texts at the most, each whole blocks with an IV of its own.
    pub(crate) fn encrypt_batch<'t>(
        &self,
        texts: impl Iterator<Item = (&'t [u8; BLOCK], &'t mut [u8])>,
    ) {
        with_key!(self, key => encrypt_side_by_side(&**key, texts));
    }

    /// Decrypts `text`, whole blocks.
    pub(crate) fn decrypt(&self, iv: &[u8; BLOCK], text: &mut [u8]) {
        let (blocks, _) = Array::slice_as_chunks_mut(text);
        with_key!(self, key => cbc::Decryptor::inner_iv_init(&**key, iv.into()).decrypt_blocks(blocks));
    }
}

fn encrypt_alone<C: BlockCipherEncrypt<BlockSize = U16>>(
    key: &C,
    iv: &[u8; BLOCK],
    text: &mut [u8],
) {
    let (blocks, _) = Array::slice_as_chunks_mut(text);
    cbc::Encryptor::inner_iv_init(key, iv.into()).encrypt_blocks(blocks);
}

/// Each text is a lane. What is left of it stands in `left`, and in `chain` its last encrypted
/// block, at first the IV.
fn encrypt_side_by_side<'t, C: BlockCipherEncrypt<BlockSize = U16>>(
    key: &C,
    texts: impl Iterator<Item = (&'t [u8; BLOCK], &'t mut [u8])>,
) {
    let mut left: [&mut [u8]; BATCH] = array::from_fn(|_| Default::default());
    let mut chain = [Array([0; BLOCK]); BATCH];
    let mut lanes = 0;
    for (iv, text) in texts.filter(|(_, text)| !text.is_empty()) {
        chain[lanes] = Array(*iv);
        left[lanes] = text;
        lanes += 1;
    }
    while lanes > 1 {
        for (chained, text) in chain[..lanes].iter_mut().zip(&left) {
            chained.0 = xor(&chained.0, first_block(text));
        }
        key.encrypt_blocks(&mut chain[..lanes]);
        let mut lane = 0;
        while lane < lanes {
            let (block, rest) =
                mem::take(&mut left[lane]).split_first_chunk_mut().expect("whole blocks");
            *block = chain[lane].0;
            left[lane] = rest;
            if left[lane].is_empty() {
                // The last lane, which still has to write this block, takes the place of the one
                // that is done.
                lanes -= 1;
                left.swap(lane, lanes);
                chain.swap(lane, lanes);
            } else {
                lane += 1;
            }
        }
    }
    if lanes == 1 {
        encrypt_alone(key, &chain[0].0, mem::take(&mut left[0]));
    }
}

#[inline]
fn first_block(text: &[u8]) -> &[u8; BLOCK] {
    text.first_chunk().expect("a lane with nothing left is no longer a lane")
}

#[inline]
fn xor(a: &[u8; BLOCK], b: &[u8; BLOCK]) -> [u8; BLOCK] {
    (u128::from_ne_bytes(*a) ^ u128::from_ne_bytes(*b)).to_ne_bytes()
}

/// The IV, and the text between it and the ICV.
#[inline]
fn split(packet: &mut [u8], icv_length: usize) -> (&[u8; BLOCK], &mut [u8]) {
    let end = packet.len() - icv_length;
    let (iv, text) =
        packet[HEADER_LENGTH..end].split_first_chunk_mut().expect("the packet's length is checked");
    (iv, text)
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    proptest! {
        /// Side by side is the same as one by one, whatever lengths stand beside each other.
        #[test]
        fn lanes_do_not_disturb_each_other(
            lengths in prop::collection::vec(0usize..40, 0..=BATCH),
            key: [u8; 32],
            fill: u8,
        ) {
            let cbc = Cbc::new(Cipher::AesCbc256, &key);
            let mut texts: Vec<_> =
                lengths.iter().enumerate().map(|(i, blocks)| ([i as u8; BLOCK], vec![fill ^ i as u8; blocks * BLOCK])).collect();
            let mut expected = texts.clone();
            expected.iter_mut().for_each(|(iv, text)| cbc.encrypt(iv, text));
            cbc.encrypt_batch(texts.iter_mut().map(|(iv, text)| (&*iv, text.as_mut_slice())));
            prop_assert_eq!(texts, expected);
        }
    }
}
