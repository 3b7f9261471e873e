//! A second ESP, written from RFC 4303 without looking at the first, slow and obvious, over other
//! libraries: RustCrypto where the crate uses aws-lc-rs, and the other way round.

use aes_gcm::aead::AeadInPlace;
use aes_gcm::{Aes128Gcm, Aes256Gcm};
use aws_lc_rs::cipher::{
    AES_128, AES_192, AES_256, DecryptingKey, DecryptionContext, EncryptingKey, UnboundCipherKey,
};
use esp::{Algorithm, Cipher, Integrity, KeyMaterial};
use hmac::{Hmac, KeyInit, Mac};
use sha1::Sha1;
use sha2::Sha256;

/// An algorithm with its keys in the clear.
#[derive(Clone, Debug)]
pub(crate) struct Sa {
    pub(crate) algorithm: Algorithm,
    pub(crate) spi: u32,
    pub(crate) encryption: Vec<u8>,
    pub(crate) integrity: Vec<u8>,
}

/// What is inside an ESP packet.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct Content {
    pub(crate) sequence: u32,
    pub(crate) payload: Vec<u8>,
    pub(crate) padding: Vec<u8>,
    pub(crate) next_header: u8,
}

impl Sa {
    pub(crate) fn keys(&self) -> KeyMaterial {
        KeyMaterial::new(self.algorithm, &self.encryption, &self.integrity).unwrap()
    }

    /// The shortest right padding for a payload.
    pub(crate) fn padding_for(&self, payload: usize) -> Vec<u8> {
        let block = if self.cbc() { 16 } else { 4 };
        (1..)
            .take((0..block).find(|pad| (payload + pad + 2).is_multiple_of(block)).unwrap())
            .collect()
    }

    pub(crate) fn seal(&self, content: &Content, iv: &[u8]) -> Vec<u8> {
        self.seal_saying(content.padding.len() as u8, content, iv)
    }

    /// Seals with a pad length that need not be the padding's, as a sender that lies does.
    pub(crate) fn seal_saying(&self, pad_length: u8, content: &Content, iv: &[u8]) -> Vec<u8> {
        let header = [self.spi.to_be_bytes(), content.sequence.to_be_bytes()].concat();
        let trailer = [pad_length, content.next_header];
        let plain = [&content.payload[..], &content.padding, &trailer].concat();
        match self.algorithm {
            Algorithm::AesGcm128 | Algorithm::AesGcm256 => {
                let mut text = plain;
                let tag =
                    self.gcm(iv, |gcm, nonce| gcm.encrypt(nonce, &header, &mut text)).unwrap();
                [&header[..], iv, &text, &tag].concat()
            }
            Algorithm::Separate { cipher, integrity } => {
                let text =
                    if cipher == Cipher::Null { plain } else { self.cbc_encrypt(iv, &plain) };
                let signed = [&header[..], iv, &text].concat();
                let icv = self.icv(integrity, &signed);
                [signed, icv].concat()
            }
            Algorithm::NullWithoutIntegrity => [header, plain].concat(),
        }
    }

    pub(crate) fn open(&self, packet: &[u8]) -> Option<Content> {
        let sequence = u32::from_be_bytes(packet[4..8].try_into().unwrap());
        let plain = match self.algorithm {
            Algorithm::AesGcm128 | Algorithm::AesGcm256 => {
                let (text, tag) = packet[16..].split_at(packet.len() - 32);
                let mut text = text.to_vec();
                self.gcm(&packet[8..16], |gcm, nonce| {
                    gcm.decrypt(nonce, &packet[..8], &mut text, tag)
                })?;
                text
            }
            Algorithm::Separate { cipher, integrity } => {
                let icv_length = if integrity == Integrity::HmacSha1_96 { 12 } else { 16 };
                let (signed, icv) = packet.split_at(packet.len() - icv_length);
                if self.icv(integrity, signed) != icv {
                    return None;
                }
                if cipher == Cipher::Null {
                    signed[8..].to_vec()
                } else {
                    self.cbc_decrypt(&signed[8..24], &signed[24..])
                }
            }
            Algorithm::NullWithoutIntegrity => packet[8..].to_vec(),
        };
        let [pad_length, next_header] = plain[plain.len() - 2..] else { unreachable!() };
        let (payload, padding) =
            plain[..plain.len() - 2].split_at(plain.len() - 2 - usize::from(pad_length));
        Some(Content {
            sequence,
            payload: payload.to_vec(),
            padding: padding.to_vec(),
            next_header,
        })
    }

    pub(crate) fn iv_length(&self) -> usize {
        match self.algorithm {
            Algorithm::AesGcm128 | Algorithm::AesGcm256 => 8,
            _ if self.cbc() => 16,
            _ => 0,
        }
    }

    fn cbc(&self) -> bool {
        matches!(
            self.algorithm,
            Algorithm::Separate {
                cipher: Cipher::AesCbc128 | Cipher::AesCbc192 | Cipher::AesCbc256,
                ..
            }
        )
    }

    fn gcm<T>(&self, iv: &[u8], work: impl FnOnce(&dyn Gcm, &[u8]) -> T) -> T {
        let (key, salt) = self.encryption.split_at(self.encryption.len() - 4);
        let nonce = [salt, iv].concat();
        match key.len() {
            16 => work(&<Aes128Gcm as aes_gcm::KeyInit>::new_from_slice(key).unwrap(), &nonce),
            _ => work(&<Aes256Gcm as aes_gcm::KeyInit>::new_from_slice(key).unwrap(), &nonce),
        }
    }

    fn icv(&self, integrity: Integrity, signed: &[u8]) -> Vec<u8> {
        match integrity {
            Integrity::HmacSha1_96 => Hmac::<Sha1>::new_from_slice(&self.integrity)
                .unwrap()
                .chain_update(signed)
                .finalize()
                .into_bytes()[..12]
                .to_vec(),
            Integrity::HmacSha256_128 => Hmac::<Sha256>::new_from_slice(&self.integrity)
                .unwrap()
                .chain_update(signed)
                .finalize()
                .into_bytes()[..16]
                .to_vec(),
        }
    }

    fn aes(&self) -> UnboundCipherKey {
        let algorithm = match self.encryption.len() {
            16 => &AES_128,
            24 => &AES_192,
            _ => &AES_256,
        };
        UnboundCipherKey::new(algorithm, &self.encryption).unwrap()
    }

    fn cbc_encrypt(&self, iv: &[u8], plain: &[u8]) -> Vec<u8> {
        let key = EncryptingKey::ecb(self.aes()).unwrap();
        let mut chain = iv.to_vec();
        let mut text = Vec::new();
        for block in plain.chunks(16) {
            chain.iter_mut().zip(block).for_each(|(chained, byte)| *chained ^= byte);
            key.encrypt(&mut chain).unwrap();
            text.extend_from_slice(&chain);
        }
        text
    }

    fn cbc_decrypt(&self, iv: &[u8], text: &[u8]) -> Vec<u8> {
        let key = DecryptingKey::ecb(self.aes()).unwrap();
        let mut chain = iv;
        let mut plain = Vec::new();
        for block in text.chunks(16) {
            let mut clear = block.to_vec();
            key.decrypt(&mut clear, DecryptionContext::None).unwrap();
            plain.extend(clear.iter().zip(chain).map(|(byte, chained)| byte ^ chained));
            chain = block;
        }
        plain
    }
}

/// AES-GCM of either key length.
trait Gcm {
    fn encrypt(&self, nonce: &[u8], aad: &[u8], text: &mut [u8]) -> Option<Vec<u8>>;
    fn decrypt(&self, nonce: &[u8], aad: &[u8], text: &mut [u8], tag: &[u8]) -> Option<()>;
}

impl<A: AeadInPlace> Gcm for A {
    fn encrypt(&self, nonce: &[u8], aad: &[u8], text: &mut [u8]) -> Option<Vec<u8>> {
        self.encrypt_in_place_detached(nonce.into(), aad, text).ok().map(|tag| tag.to_vec())
    }

    fn decrypt(&self, nonce: &[u8], aad: &[u8], text: &mut [u8], tag: &[u8]) -> Option<()> {
        self.decrypt_in_place_detached(nonce.into(), aad, text, tag.into()).ok()
    }
}
