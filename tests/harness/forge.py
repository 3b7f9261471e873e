"""ESP packets made by hand over the `cryptography` package: also those that no honest peer would send."""

import hashlib
import hmac
import struct

from cryptography.hazmat.primitives.ciphers import Cipher, algorithms, modes
from cryptography.hazmat.primitives.ciphers.aead import AESGCM
from scapy.layers.inet import IP
from scapy.layers.inet6 import IPv6
from scapy.packet import Raw

DIGESTS = {"hmac(sha1)": hashlib.sha1, "hmac(sha256)": hashlib.sha256}


def trailer(payload, next_header, block, pad=None, pad_length=None):
    """`payload` with its ESP trailer; `pad` and `pad_length` override what RFC 4303 section 2.4 asks for."""
    if pad is None:
        pad = bytes(range(1, 1 + -(len(payload) + 2) % block))
    return payload + pad + bytes([len(pad) if pad_length is None else pad_length, next_header])


def seal(sa, sequence, plaintext):
    """An IP packet with ESP of `sa` around `plaintext`, which brings its trailer; the ICV is right."""
    head = struct.pack("!II", sa.spi, sequence)
    iv = hashlib.sha256(struct.pack("!QI", sequence, sa.spi)).digest()
    if sa.algorithm.is_aead:
        key, salt = sa.cipher_key[:-4], sa.cipher_key[-4:]
        body = iv[:8] + AESGCM(key).encrypt(salt + iv[:8], plaintext, head)
    else:
        body = plaintext
        if sa.cipher_key:
            cipher = Cipher(algorithms.AES(sa.cipher_key), modes.CBC(iv[:16])).encryptor()
            body = iv[:16] + cipher.update(plaintext) + cipher.finalize()
        digest = hmac.new(sa.authenticator_key, head + body, DIGESTS[sa.algorithm.kernel_authenticator]).digest()
        body += digest[: sa.algorithm.icv_bytes]
    return wrap(sa, head + body)


def wrap(sa, body):
    """An IP packet between the ends of `sa` whose payload, said to be ESP, is `body`."""
    if ":" in sa.source:
        return IPv6(src=sa.source, dst=sa.destination, nh=50, hlim=64) / Raw(body)
    return IP(src=sa.source, dst=sa.destination, proto=50, ttl=64) / Raw(body)
