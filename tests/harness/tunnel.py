"""The tunnel of the guest tests: its addresses, and the guest's side of it."""

import dataclasses

from harness.algorithms import Algorithm, Sa

OUTER = {4: ("192.168.11.1", "192.168.11.2"), 6: ("fd11::1", "fd11::2")}
"""Outer family -> the guest's and the gateway's tunnel end."""

GUEST_INNER = {
    (4, 4): ("192.168.12.0/24", "192.168.12.1"),
    (4, 6): ("fd12::/64", "fd12::1"),
    (6, 4): ("192.168.14.0/24", "192.168.14.1"),
    (6, 6): ("fd14::/64", "fd14::1"),
}
"""(outer family, inner family) -> the network behind the guest, and the guest's address in it."""

LAN = {4: ("192.168.13.0/24", "192.168.13.1", "192.168.13.5"), 6: ("fd13::/64", "fd13::1", "fd13::5")}
"""Inner family -> the network behind the gateway, the gateway's address in it, and the host's."""

COMBINATIONS = list(GUEST_INNER)


@dataclasses.dataclass(frozen=True)
class Tunnel:
    """Both directions of a tunnel between the guest and the gateway."""

    algorithm: Algorithm
    outer: int

    @property
    def to_gateway(self):
        """The SA from the guest to the gateway."""
        return Sa(self.algorithm, OUTER[self.outer][0], OUTER[self.outer][1], 0x1000 + self.outer, reqid=self.outer)

    @property
    def to_guest(self):
        """The SA from the gateway to the guest."""
        return Sa(self.algorithm, OUTER[self.outer][1], OUTER[self.outer][0], 0x2000 + self.outer, reqid=self.outer)

    def set_up(self, guest):
        """Configures the guest's side, for both inner families."""
        lines = [["xfrm", "state", "add", *sa.kernel_words()] for sa in (self.to_gateway, self.to_guest)]
        guest_end, gateway_end = OUTER[self.outer]
        for inner in (4, 6):
            network, address = GUEST_INNER[self.outer, inner]
            lan = LAN[inner][0]
            lines.append(["addr", "add", address, "dev", "lo"])
            for here, there, direction, ends in (
                (network, lan, "out", (guest_end, gateway_end)),
                (lan, network, "in", (gateway_end, guest_end)),
            ):
                lines.append(
                    [
                        "xfrm",
                        "policy",
                        "add",
                        "src",
                        here,
                        "dst",
                        there,
                        "dir",
                        direction,
                        "tmpl",
                        "src",
                        ends[0],
                        "dst",
                        ends[1],
                        "proto",
                        "esp",
                        "reqid",
                        self.outer,
                        "mode",
                        "tunnel",
                    ]
                )
        guest.batch(lines)


def connect(guest):
    """Gives the guest its outer addresses and the routes to the network behind the gateway."""
    guest.clear()
    lines = []
    for family in (4, 6):
        lines.append(
            [
                "addr",
                "add",
                OUTER[family][0] + ("/24" if family == 4 else "/64"),
                "dev",
                guest.interface,
                *(["nodad"] if family == 6 else []),
            ]
        )
        lines.append(["route", "replace", LAN[family][0], "via", OUTER[family][1], "dev", guest.interface])
    guest.batch(lines)
