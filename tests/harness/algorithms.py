"""The ESP algorithms under test, in the words of each program that takes part."""

import dataclasses
import hashlib

from scapy.layers.inet import IP
from scapy.layers.inet6 import IPv6
from scapy.layers.ipsec import ESP, SecurityAssociation


@dataclasses.dataclass(frozen=True)
class Algorithm:
    """An ESP algorithm, or a pair of cipher and authenticator."""

    name: str
    kernel_cipher: str
    cipher_key_bytes: int
    scapy_cipher: str
    tshark_cipher: str
    kernel_authenticator: str = ""
    authenticator_key_bytes: int = 0
    icv_bits: int = 128
    scapy_authenticator: str = "NULL"
    tshark_authenticator: str = "NULL"
    block: int = 4

    def __str__(self):
        return self.name

    @property
    def is_aead(self):
        """Whether one algorithm both hides and authenticates."""
        return not self.kernel_authenticator

    @property
    def icv_bytes(self):
        """Length of the integrity check value on the wire."""
        return self.icv_bits // 8


ALGORITHMS = [
    Algorithm("aes-128-gcm", "rfc4106(gcm(aes))", 20, "AES-GCM", "AES-GCM with 16 octet ICV [RFC4106]"),
    Algorithm("aes-256-gcm", "rfc4106(gcm(aes))", 36, "AES-GCM", "AES-GCM with 16 octet ICV [RFC4106]"),
    Algorithm(
        "aes-128-cbc-sha1-96",
        "cbc(aes)",
        16,
        "AES-CBC",
        "AES-CBC [RFC3602]",
        "hmac(sha1)",
        20,
        96,
        "HMAC-SHA1-96",
        "HMAC-SHA-1-96 [RFC2404]",
        block=16,
    ),
    Algorithm(
        "aes-256-cbc-sha1-96",
        "cbc(aes)",
        32,
        "AES-CBC",
        "AES-CBC [RFC3602]",
        "hmac(sha1)",
        20,
        96,
        "HMAC-SHA1-96",
        "HMAC-SHA-1-96 [RFC2404]",
        block=16,
    ),
    Algorithm(
        "aes-128-cbc-sha256-128",
        "cbc(aes)",
        16,
        "AES-CBC",
        "AES-CBC [RFC3602]",
        "hmac(sha256)",
        32,
        128,
        "SHA2-256-128",
        "HMAC-SHA-256-128 [RFC4868]",
        block=16,
    ),
    Algorithm(
        "aes-256-cbc-sha256-128",
        "cbc(aes)",
        32,
        "AES-CBC",
        "AES-CBC [RFC3602]",
        "hmac(sha256)",
        32,
        128,
        "SHA2-256-128",
        "HMAC-SHA-256-128 [RFC4868]",
        block=16,
    ),
    Algorithm(
        "null-sha1-96",
        "ecb(cipher_null)",
        0,
        "NULL",
        "NULL",
        "hmac(sha1)",
        20,
        96,
        "HMAC-SHA1-96",
        "HMAC-SHA-1-96 [RFC2404]",
    ),
    Algorithm(
        "null-sha256-128",
        "ecb(cipher_null)",
        0,
        "NULL",
        "NULL",
        "hmac(sha256)",
        32,
        128,
        "SHA2-256-128",
        "HMAC-SHA-256-128 [RFC4868]",
    ),
]
GCM, CBC_SHA1, CBC_SHA256, NULL_SHA256 = ALGORITHMS[0], ALGORITHMS[2], ALGORITHMS[5], ALGORITHMS[7]


@dataclasses.dataclass(frozen=True)
class Sa:
    """One direction of a tunnel. Keys follow from the SPI, so that every program agrees without being told."""

    algorithm: Algorithm
    source: str
    destination: str
    spi: int
    reqid: int = 1
    replay_window: int = 64
    vrf: str = ""

    @property
    def cipher_key(self):
        """Key of the cipher, with the salt at its end where the algorithm has one."""
        return self._bytes("cipher", self.algorithm.cipher_key_bytes)

    @property
    def authenticator_key(self):
        """Key of the authenticator."""
        return self._bytes("authenticator", self.algorithm.authenticator_key_bytes)

    def kernel_words(self):
        """What follows `ip xfrm state add`; the same words are hitpath's."""
        algorithm = self.algorithm
        words = [
            "src",
            self.source,
            "dst",
            self.destination,
            "proto",
            "esp",
            "spi",
            hex(self.spi),
            "reqid",
            str(self.reqid),
            "mode",
            "tunnel",
            "replay-window",
            str(min(self.replay_window, 32)),
            "flag",
            "af-unspec",
        ]
        if algorithm.is_aead:
            return [*words, "aead", algorithm.kernel_cipher, hexadecimal(self.cipher_key), str(algorithm.icv_bits)]
        return [
            *words,
            "enc",
            algorithm.kernel_cipher,
            hexadecimal(self.cipher_key) if self.cipher_key else "",
            "auth-trunc",
            algorithm.kernel_authenticator,
            hexadecimal(self.authenticator_key),
            str(algorithm.icv_bits),
        ]

    def scapy(self, first_sequence=1):
        """An SA of scapy's, for both encrypting and decrypting."""
        header = (IPv6 if ":" in self.source else IP)(src=self.source, dst=self.destination)
        return SecurityAssociation(
            ESP,
            spi=self.spi,
            seq_num=first_sequence,
            tunnel_header=header,
            crypt_algo=self.algorithm.scapy_cipher,
            crypt_key=self.cipher_key or None,
            auth_algo=self.algorithm.scapy_authenticator,
            auth_key=self.authenticator_key or None,
        )

    def tshark_row(self):
        """A row of tshark's table of ESP SAs."""
        fields = [
            "IPv6" if ":" in self.source else "IPv4",
            self.source,
            self.destination,
            f"0x{self.spi:08x}",
            self.algorithm.tshark_cipher,
            hexadecimal(self.cipher_key) if self.cipher_key else "",
            self.algorithm.tshark_authenticator,
            hexadecimal(self.authenticator_key) if self.authenticator_key else "",
        ]
        return ",".join(f'"{field}"' for field in fields)

    def _bytes(self, purpose, count):
        return hashlib.shake_256(f"{self.algorithm} {self.spi} {purpose}".encode()).digest(count)


def hexadecimal(data):
    """`0x` and the digits, as every tool here takes keys."""
    return "0x" + data.hex()
