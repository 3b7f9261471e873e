"""Packets as `hitpath explain` is told of them and as scapy builds them, from one description."""

import dataclasses

from scapy.layers.inet import ICMP, IP, TCP, UDP
from scapy.layers.inet6 import ICMPv6EchoRequest, ICMPv6Unknown, IPv6, IPv6ExtHdrFragment
from scapy.layers.ipsec import ESP
from scapy.packet import Raw

NUMBERS = {"icmp": 1, "tcp": 6, "udp": 17, "esp": 50}
LATER = 16
"""Where a later fragment begins in its datagram, in bytes."""


@dataclasses.dataclass(frozen=True)
class Packet:
    """A packet. `protocol` is a word of `NUMBERS`, or a number; `about` is what an ICMP error quotes."""

    protocol: str
    source: str
    destination: str
    ports: tuple = ()
    kind: int | None = None
    code: int = 0
    id: int = 0
    spi: int = 0
    flags: str = ""
    dscp: int = 0
    ttl: int = 64
    fragment: str = ""
    size: int = 0
    df: bool = False
    about: "Packet | None" = None

    @property
    def is_v6(self):
        """Whether it is of IPv6."""
        return ":" in self.source

    @property
    def number(self):
        """The protocol's number."""
        return 58 if self.is_v6 and self.protocol == "icmp" else int(NUMBERS.get(self.protocol, self.protocol))

    def words(self):
        """What `explain` is told, but for where the packet comes from."""
        words = [self._flow(), f"dscp {self.dscp} ttl {self.ttl}"]
        words += [f"tcp-flags {self.flags}"] if self.flags else []
        words += [f"fragment {self.fragment}"] if self.fragment else []
        words += [f"size {self.size}"] if self.size else []
        words += ["df"] if self.df else []
        words += [f"about {self.about._flow()}"] if self.about else []
        return " ".join(words)

    def packet(self):
        """The packet itself, zeros behind its headers."""
        number = 44 if self.is_v6 and self.fragment else self.number
        if self.is_v6:
            below = IPv6(src=self.source, dst=self.destination, nh=number, hlim=self.ttl, tc=self.dscp << 2)
        else:
            below = IP(
                src=self.source, dst=self.destination, proto=number, ttl=self.ttl, tos=self.dscp << 2, id=1,
                flags="MF" if self.fragment == "first" else "DF" if self.df else "",
                frag=LATER // 8 if self.fragment == "later" else 0,
            )
        if self.is_v6 and self.fragment:
            offset = LATER // 8 if self.fragment == "later" else 0
            below /= IPv6ExtHdrFragment(nh=self.number, offset=offset, m=int(self.fragment == "first"), id=1)
        upper = Raw(bytes(8)) if self.fragment == "later" else self._upper()
        least = len(below / upper)
        more = max(self.size - least, 0) if self.size else (len(below) - least) % 8 if self.fragment == "first" else 0
        return type(below)(bytes(below / upper / Raw(bytes(more))))

    def _flow(self):
        """Protocol, addresses, and what else a quoted packet may be told by."""
        ends = [self.source, self.destination]
        if self.ports and self.fragment != "later":
            form = "[{}]:{}" if self.is_v6 else "{}:{}"
            ends = [form.format(*end) for end in zip(ends, self.ports)]
        words = [self.protocol, ends[0], ">", ends[1]]
        if self.fragment != "later":
            words += [f"type {self.kind} code {self.code}"] if self.kind is not None else []
            words += [f"id {self.id}"] if self.id else []
            words += [f"spi {self.spi}"] if self.spi else []
        return " ".join(words)

    def _upper(self):
        if self.protocol == "tcp":
            flags = "".join(flag[0].upper() for flag in self.flags.split(","))
            return TCP(sport=self.ports[0], dport=self.ports[1], seq=1, flags=flags, window=0xFFFF)
        if self.protocol == "udp":
            return UDP(sport=self.ports[0], dport=self.ports[1])
        if self.protocol == "esp":
            return ESP(spi=self.spi, seq=1)
        if self.protocol != "icmp":
            return Raw(bytes(8))
        if self.about:
            quoted = bytes(self.about.packet())
            if self.is_v6:
                return ICMPv6Unknown(type=self.kind, code=self.code, msgbody=bytes(4) + quoted)
            return ICMP(type=self.kind, code=self.code) / Raw(quoted)
        if self.is_v6:
            return ICMPv6EchoRequest(type=self.kind, code=self.code, id=self.id, seq=1)
        return ICMP(type=self.kind, code=self.code, id=self.id, seq=1)
