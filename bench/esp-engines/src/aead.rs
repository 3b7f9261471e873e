//! AES-GCM of each library: salt and IV are the nonce, the ESP header is the additional data.

use aes_gcm::aead::AeadInPlace;
use aes_gcm::{Aes128Gcm, Aes256Gcm, KeyInit};
use esp::Algorithm;

use crate::{Contender, ENCRYPTION_KEY, Packet};

type Nonce = [u8; 12];

pub(crate) fn contenders(algorithm: Algorithm) -> Vec<Contender> {
    let key_length = algorithm.encryption_key_length() - 4;
    let key = &ENCRYPTION_KEY[..key_length];
    let mut all = vec![
        ring(key),
        aws_lc(key),
        graviola(key),
        if key_length == 16 {
            rustcrypto(Aes128Gcm::new_from_slice(key).expect("right length"))
        } else {
            rustcrypto(Aes256Gcm::new_from_slice(key).expect("right length"))
        },
    ];
    #[cfg(feature = "openssl")]
    all.push(openssl(key));
    all.shrink_to_fit();
    all
}

/// The nonce, the header, the text and the tag of a packet.
fn parts(packet: &mut Packet) -> (Nonce, &[u8], &mut [u8], &mut [u8]) {
    let (header, rest) = packet.bytes().split_at_mut(8);
    let (iv, rest) = rest.split_at_mut(8);
    let (text, tag) = rest.split_at_mut(rest.len() - 16);
    let mut nonce = [0; 12];
    nonce[..4].copy_from_slice(&ENCRYPTION_KEY[..4]);
    nonce[4..].copy_from_slice(iv);
    (nonce, header, text, tag)
}

/// The same with text and tag in one.
fn joined(packet: &mut Packet) -> (Nonce, &[u8], &mut [u8]) {
    let nonce = parts(packet).0;
    let (header, rest) = packet.bytes().split_at_mut(8);
    (nonce, header, &mut rest[8..])
}

fn ring(key: &[u8]) -> Contender {
    use ring::aead::{AES_128_GCM, AES_256_GCM, Aad, LessSafeKey, Nonce, UnboundKey};
    let key = || {
        let algorithm = if key.len() == 16 { &AES_128_GCM } else { &AES_256_GCM };
        LessSafeKey::new(UnboundKey::new(algorithm, key).expect("right length"))
    };
    let (sealing, opening) = (key(), key());
    Contender {
        name: "ring 0.17",
        seal: Box::new(move |packets| {
            packets.iter_mut().map(parts).all(|(nonce, header, text, tag)| {
                let nonce = Nonce::assume_unique_for_key(nonce);
                let made = sealing.seal_in_place_separate_tag(nonce, Aad::from(header), text);
                made.map(|made| tag.copy_from_slice(made.as_ref())).is_ok()
            })
        }),
        open: Box::new(move |packets| {
            packets.iter_mut().map(joined).all(|(nonce, header, text)| {
                opening
                    .open_in_place(Nonce::assume_unique_for_key(nonce), Aad::from(header), text)
                    .is_ok()
            })
        }),
    }
}

fn aws_lc(key: &[u8]) -> Contender {
    use aws_lc_rs::aead::{AES_128_GCM, AES_256_GCM, Aad, LessSafeKey, Nonce, UnboundKey};
    let key = || {
        let algorithm = if key.len() == 16 { &AES_128_GCM } else { &AES_256_GCM };
        LessSafeKey::new(UnboundKey::new(algorithm, key).expect("right length"))
    };
    let (sealing, opening) = (key(), key());
    Contender {
        name: "aws-lc-rs 1.19",
        seal: Box::new(move |packets| {
            packets.iter_mut().map(parts).all(|(nonce, header, text, tag)| {
                let nonce = Nonce::assume_unique_for_key(nonce);
                sealing.seal_in_place_scatter(nonce, Aad::from(header), text, &[], tag).is_ok()
            })
        }),
        open: Box::new(move |packets| {
            packets.iter_mut().map(joined).all(|(nonce, header, text)| {
                opening
                    .open_in_place(Nonce::assume_unique_for_key(nonce), Aad::from(header), text)
                    .is_ok()
            })
        }),
    }
}

fn graviola(key: &[u8]) -> Contender {
    use graviola::aead::AesGcm;
    let (sealing, opening) = (AesGcm::new(key), AesGcm::new(key));
    Contender {
        name: "graviola 0.4",
        seal: Box::new(move |packets| {
            packets.iter_mut().map(parts).for_each(|(nonce, header, text, tag)| {
                let mut made = [0; 16];
                sealing.encrypt(&nonce, header, text, &mut made);
                tag.copy_from_slice(&made);
            });
            true
        }),
        open: Box::new(move |packets| {
            packets.iter_mut().map(parts).all(|(nonce, header, text, tag)| {
                opening.decrypt(&nonce, header, text, tag).is_ok()
            })
        }),
    }
}

fn rustcrypto<A: AeadInPlace + Clone + 'static>(sealing: A) -> Contender {
    let opening = sealing.clone();
    Contender {
        name: "RustCrypto aes-gcm 0.10",
        seal: Box::new(move |packets| {
            packets.iter_mut().map(parts).all(|(nonce, header, text, tag)| {
                let made = sealing.encrypt_in_place_detached(nonce[..].into(), header, text);
                made.map(|made| tag.copy_from_slice(&made)).is_ok()
            })
        }),
        open: Box::new(move |packets| {
            packets.iter_mut().map(parts).all(|(nonce, header, text, tag)| {
                opening
                    .decrypt_in_place_detached(nonce[..].into(), header, text, (&*tag).into())
                    .is_ok()
            })
        }),
    }
}

#[cfg(feature = "openssl")]
fn openssl(key: &[u8]) -> Contender {
    use openssl::cipher::Cipher;
    use openssl::cipher_ctx::CipherCtx;
    let cipher = if key.len() == 16 { Cipher::aes_128_gcm() } else { Cipher::aes_256_gcm() };
    let mut sealing = CipherCtx::new().expect("memory");
    sealing.encrypt_init(Some(cipher), Some(key), None).expect("right length");
    let mut opening = CipherCtx::new().expect("memory");
    opening.decrypt_init(Some(cipher), Some(key), None).expect("right length");
    Contender {
        name: "OpenSSL 3.0 (EVP, one context)",
        seal: Box::new(move |packets| {
            packets.iter_mut().map(parts).all(|(nonce, header, text, tag)| {
                let length = text.len();
                sealing.encrypt_init(None, None, Some(&nonce)).is_ok()
                    && sealing.cipher_update(header, None).is_ok()
                    && sealing.cipher_update_inplace(text, length).is_ok()
                    && sealing.cipher_final(&mut []).is_ok()
                    && sealing.tag(tag).is_ok()
            })
        }),
        open: Box::new(move |packets| {
            packets.iter_mut().map(parts).all(|(nonce, header, text, tag)| {
                let length = text.len();
                opening.decrypt_init(None, None, Some(&nonce)).is_ok()
                    && opening.set_tag(tag).is_ok()
                    && opening.cipher_update(header, None).is_ok()
                    && opening.cipher_update_inplace(text, length).is_ok()
                    && opening.cipher_final(&mut []).is_ok()
            })
        }),
    }
}
