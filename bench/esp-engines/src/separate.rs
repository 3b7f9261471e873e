//! HMACs of each library over whole packets, and AES-CBC of each over what lies between IV and ICV.

use aes::cipher::array::Array;
use aes::cipher::{
    BlockCipherDecrypt, BlockCipherEncrypt, BlockModeDecrypt, BlockModeEncrypt, InnerIvInit,
};
use aes::{Aes128, Aes256};
use esp::{Cipher, Integrity};
use hmac::{Hmac, KeyInit, Mac};

use crate::{Contender, ENCRYPTION_KEY, INTEGRITY_KEY, Packet};

/// Signs the first slice into the second, which is cut.
type Sign = Box<dyn Fn(&[u8], &mut [u8])>;

pub(crate) fn hmacs(integrity: Integrity) -> Vec<Contender> {
    let sha1 = integrity == Integrity::HmacSha1_96;
    let contender = |name, sign: fn(bool) -> Sign| {
        let (sealing, opening) = (sign(sha1), sign(sha1));
        let cut = integrity.icv_length();
        Contender {
            name,
            seal: Box::new(move |packets| {
                for packet in packets {
                    let packet = packet.bytes();
                    let (signed, icv) = packet.split_at_mut(packet.len() - cut);
                    sealing(signed, icv);
                }
                true
            }),
            open: Box::new(move |packets| {
                packets.iter_mut().all(|packet| {
                    let packet = packet.bytes();
                    let (signed, icv) = packet.split_at(packet.len() - cut);
                    let mut made = [0; 16];
                    opening(signed, &mut made[..cut]);
                    made[..cut] == *icv
                })
            }),
        }
    };
    let mut all = vec![
        contender("ring 0.17", |sha1| {
            use ring::hmac;
            let algorithm =
                if sha1 { hmac::HMAC_SHA1_FOR_LEGACY_USE_ONLY } else { hmac::HMAC_SHA256 };
            let key = hmac::Key::new(algorithm, &INTEGRITY_KEY);
            Box::new(move |signed, icv| {
                icv.copy_from_slice(&hmac::sign(&key, signed).as_ref()[..icv.len()])
            })
        }),
        contender("aws-lc-rs 1.19", |sha1| {
            use aws_lc_rs::hmac;
            let algorithm =
                if sha1 { hmac::HMAC_SHA1_FOR_LEGACY_USE_ONLY } else { hmac::HMAC_SHA256 };
            let key = hmac::Key::new(algorithm, &INTEGRITY_KEY);
            Box::new(move |signed, icv| {
                icv.copy_from_slice(&hmac::sign(&key, signed).as_ref()[..icv.len()])
            })
        }),
        contender("RustCrypto hmac 0.13", |sha1| {
            fn sign<M: Mac + KeyInit + Clone + 'static>() -> Sign {
                let key = <M as KeyInit>::new_from_slice(&INTEGRITY_KEY).expect("any length");
                Box::new(move |signed, icv| {
                    icv.copy_from_slice(
                        &key.clone().chain_update(signed).finalize().into_bytes()[..icv.len()],
                    );
                })
            }
            if sha1 { sign::<Hmac<sha1::Sha1>>() } else { sign::<Hmac<sha2::Sha256>>() }
        }),
    ];
    if !sha1 {
        all.push(contender("graviola 0.4", |_| {
            let key =
                graviola::hashing::hmac::Hmac::<graviola::hashing::Sha256>::new(INTEGRITY_KEY);
            Box::new(move |signed, icv| {
                let mut hmac = key.clone();
                hmac.update(signed);
                icv.copy_from_slice(&hmac.finish().as_ref()[..icv.len()]);
            })
        }));
    }
    all
}

pub(crate) fn cbcs(cipher: Cipher) -> Vec<Contender> {
    let key = &ENCRYPTION_KEY[..cipher.key_length()];
    let mut all = vec![
        aws_lc(key),
        if key.len() == 16 { rustcrypto::<Aes128>(key) } else { rustcrypto::<Aes256>(key) },
    ];
    #[cfg(feature = "openssl")]
    all.push(openssl(key));
    all.shrink_to_fit();
    all
}

/// The IV and the text of a packet with a 12-byte ICV.
fn parts(packet: &mut Packet) -> ([u8; 16], &mut [u8]) {
    let packet = packet.bytes();
    let end = packet.len() - 12;
    let (iv, text) = packet[8..end].split_at_mut(16);
    ((&*iv).try_into().expect("16 bytes"), text)
}

fn rustcrypto<C>(key: &[u8]) -> Contender
where
    C: aes::cipher::KeyInit
        + BlockCipherEncrypt
        + BlockCipherDecrypt
        + aes::cipher::BlockSizeUser<BlockSize = aes::cipher::consts::U16>
        + Clone
        + 'static,
{
    let sealing = <C as aes::cipher::KeyInit>::new_from_slice(key).expect("right length");
    let opening = sealing.clone();
    Contender {
        name: "RustCrypto cbc 0.2, cipher only",
        seal: Box::new(move |packets| {
            for (iv, text) in packets.iter_mut().map(parts) {
                let (blocks, _) = Array::slice_as_chunks_mut(text);
                cbc::Encryptor::inner_iv_init(&sealing, (&iv).into()).encrypt_blocks(blocks);
            }
            true
        }),
        open: Box::new(move |packets| {
            for (iv, text) in packets.iter_mut().map(parts) {
                let (blocks, _) = Array::slice_as_chunks_mut(text);
                cbc::Decryptor::inner_iv_init(&opening, (&iv).into()).decrypt_blocks(blocks);
            }
            true
        }),
    }
}

/// Offers CBC with PKCS#7 padding only. Encrypting, the block too many is thrown away; decrypting,
/// the padding is wrong and the library says so after the work is done, so that its time can be
/// taken here but its result not be used.
fn aws_lc(key: &[u8]) -> Contender {
    use aws_lc_rs::cipher::{
        AES_128, AES_256, DecryptionContext, EncryptionContext, PaddedBlockDecryptingKey,
        PaddedBlockEncryptingKey, UnboundCipherKey,
    };
    let unbound = || {
        UnboundCipherKey::new(if key.len() == 16 { &AES_128 } else { &AES_256 }, key)
            .expect("right length")
    };
    let sealing = PaddedBlockEncryptingKey::cbc_pkcs7(unbound()).expect("right length");
    let opening = PaddedBlockDecryptingKey::cbc_pkcs7(unbound()).expect("right length");
    Contender {
        name: "aws-lc-rs 1.19 (PKCS#7), cipher only",
        seal: Box::new(move |packets| {
            packets.iter_mut().map(parts).all(|(iv, text)| {
                let mut text = OneBlockMore { text, more: [0; 16], padded: false };
                sealing.less_safe_encrypt(&mut text, EncryptionContext::Iv128(iv.into())).is_ok()
            })
        }),
        open: Box::new(move |packets| {
            for (iv, text) in packets.iter_mut().map(parts) {
                let _ = std::hint::black_box(
                    opening.decrypt(text, DecryptionContext::Iv128(iv.into())).is_ok(),
                );
            }
            true
        }),
    }
}

/// A text that takes the library's padding. The library must see text and padding in one piece, so
/// the padding overwrites the last block: one block is encrypted that should not be and none too
/// many, which is the same work.
struct OneBlockMore<'a> {
    text: &'a mut [u8],
    more: [u8; 16],
    padded: bool,
}

impl AsMut<[u8]> for OneBlockMore<'_> {
    fn as_mut(&mut self) -> &mut [u8] {
        let length = if self.padded { self.text.len() } else { self.text.len() - 16 };
        &mut self.text[..length]
    }
}

impl<'b> Extend<&'b u8> for OneBlockMore<'_> {
    fn extend<T: IntoIterator<Item = &'b u8>>(&mut self, padding: T) {
        self.more.iter_mut().zip(padding).for_each(|(byte, pad)| *byte = *pad);
        let end = self.text.len();
        self.text[end - 16..].copy_from_slice(&self.more);
        self.padded = true;
    }
}

#[cfg(feature = "openssl")]
fn openssl(key: &[u8]) -> Contender {
    use openssl::cipher::Cipher;
    use openssl::cipher_ctx::CipherCtx;
    let cipher = if key.len() == 16 { Cipher::aes_128_cbc() } else { Cipher::aes_256_cbc() };
    let mut sealing = CipherCtx::new().expect("memory");
    sealing.encrypt_init(Some(cipher), Some(key), None).expect("right length");
    let mut opening = CipherCtx::new().expect("memory");
    opening.decrypt_init(Some(cipher), Some(key), None).expect("right length");
    let run = |context: &mut CipherCtx, text: &mut [u8]| {
        // The binding wants room for a block more than there is, so the work is done beside the
        // packet.
        let mut beside = [0; 2048];
        context.set_padding(false);
        let done = context.cipher_update(text, Some(&mut beside)).is_ok();
        text.copy_from_slice(&beside[..text.len()]);
        done
    };
    Contender {
        name: "OpenSSL 3.0 (EVP, one context), cipher only",
        seal: Box::new(move |packets| {
            packets.iter_mut().map(parts).all(|(iv, text)| {
                sealing.encrypt_init(None, None, Some(&iv)).is_ok() && run(&mut sealing, text)
            })
        }),
        open: Box::new(move |packets| {
            packets.iter_mut().map(parts).all(|(iv, text)| {
                opening.decrypt_init(None, None, Some(&iv)).is_ok() && run(&mut opening, text)
            })
        }),
    }
}
