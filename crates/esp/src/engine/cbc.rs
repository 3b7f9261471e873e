//! AES-CBC (RFC 3602) by RustCrypto's aes, with a separate HMAC (RFC 4303 section 3.3.2.1: encrypt, then authenticate).

use aes::cipher::array::Array;
use aes::cipher::{BlockModeDecrypt, BlockModeEncrypt, InnerIvInit, KeyInit};
use aes::{Aes128, Aes192, Aes256};

use super::hmac::Hmac;
use super::{BatchEngine, to_seal};
use crate::algorithm::{Cipher, HEADER_LENGTH, Integrity};
use crate::job::{OpenJob, SealJob};
use crate::keys::KeyMaterial;

const IV_LENGTH: usize = 16;

pub(crate) struct CbcHmac {
    pub(crate) cipher: Cbc,
    pub(crate) hmac: Hmac,
}

/// AES with the key expanded for both directions.
pub(crate) enum Cbc {
    Aes128(Box<Aes128>),
    Aes192(Box<Aes192>),
    Aes256(Box<Aes256>),
}

impl CbcHmac {
    pub(crate) fn new(cipher: Cipher, integrity: Integrity, keys: &KeyMaterial) -> Self {
        Self { cipher: Cbc::new(cipher, keys.encryption()), hmac: Hmac::new(integrity, keys.integrity()) }
    }
}

impl Cbc {
    pub(crate) fn new(cipher: Cipher, key: &[u8]) -> Self {
        const CHECKED: &str = "KeyMaterial has checked the length";
        match cipher {
            Cipher::AesCbc128 => Self::Aes128(Box::new(Aes128::new_from_slice(key).expect(CHECKED))),
            Cipher::AesCbc192 => Self::Aes192(Box::new(Aes192::new_from_slice(key).expect(CHECKED))),
            Cipher::AesCbc256 => Self::Aes256(Box::new(Aes256::new_from_slice(key).expect(CHECKED))),
            Cipher::Null => unreachable!("the null cipher has an engine of its own"),
        }
    }

    /// Encrypts `text`, whole blocks.
    pub(crate) fn encrypt(&self, iv: &[u8; IV_LENGTH], text: &mut [u8]) {
        let (blocks, _) = Array::slice_as_chunks_mut(text);
        match self {
            Self::Aes128(key) => cbc::Encryptor::inner_iv_init(&**key, iv.into()).encrypt_blocks(blocks),
            Self::Aes192(key) => cbc::Encryptor::inner_iv_init(&**key, iv.into()).encrypt_blocks(blocks),
            Self::Aes256(key) => cbc::Encryptor::inner_iv_init(&**key, iv.into()).encrypt_blocks(blocks),
        }
    }

    /// Decrypts `text`, whole blocks.
    pub(crate) fn decrypt(&self, iv: &[u8; IV_LENGTH], text: &mut [u8]) {
        let (blocks, _) = Array::slice_as_chunks_mut(text);
        match self {
            Self::Aes128(key) => cbc::Decryptor::inner_iv_init(&**key, iv.into()).decrypt_blocks(blocks),
            Self::Aes192(key) => cbc::Decryptor::inner_iv_init(&**key, iv.into()).decrypt_blocks(blocks),
            Self::Aes256(key) => cbc::Decryptor::inner_iv_init(&**key, iv.into()).decrypt_blocks(blocks),
        }
    }
}

impl BatchEngine for CbcHmac {
    fn seal_batch(&self, jobs: &mut [SealJob<'_>]) {
        for packet in to_seal(jobs) {
            let (iv, text) = split(packet, self.hmac.icv_length());
            self.cipher.encrypt(iv, text);
            self.hmac.sign(packet);
        }
    }

    fn open_batch(&self, jobs: &mut [OpenJob<'_>]) {
        self.hmac.verify_batch(jobs);
        for job in jobs.iter_mut().filter(|job| job.result.is_ok()) {
            let (iv, text) = split(&mut job.buffer[job.start..job.start + job.length], self.hmac.icv_length());
            self.cipher.decrypt(iv, text);
        }
    }
}

/// The IV, and the text between it and the ICV.
#[inline]
fn split(packet: &mut [u8], icv_length: usize) -> (&[u8; IV_LENGTH], &mut [u8]) {
    let end = packet.len() - icv_length;
    let (iv, text) = packet[HEADER_LENGTH..end].split_first_chunk_mut().expect("the packet's length is checked");
    (iv, text)
}
