"""The boundary beside Linux's: every combination of policies and defaults, decided by both; docs/linux-boundary.md
lists where they differ, and why."""

import itertools
import json
import pathlib
import re
import time

import pytest
from scapy.layers.inet import IP, UDP
from scapy.layers.l2 import ARP, Ether

from harness.algorithms import NULL_SHA256, Sa
from harness.config import Config, Neighbour, Policy, Port, Route
from harness.gateway import binary
from harness.netns import run

pytestmark = [pytest.mark.guest, pytest.mark.namespaces]

DOCUMENT = pathlib.Path(__file__).resolve().parent.parent / "docs" / "linux-boundary.md"

PEER, US = "192.0.2.1", "192.0.2.2"
NEAR, OWN, FAR = "10.9.1.5", "10.9.1.1", "10.9.2.5"
INSIDE = "10.9.0.0/16"
STATION = "02:00:00:00:00:05"
INBOUND = Sa(NULL_SHA256, PEER, US, 0x1001, reqid=7, replay_window=0)
OUTBOUND = Sa(NULL_SHA256, US, PEER, 0x2001, reqid=7)
SAID = [None, "bypass", "discard", "protect"]
DIRECTIONS = ["in", "fwd", "out"]

PACKETS = {
    "forwarded-clear": (NEAR, FAR, "in lan"),
    "forwarded-decrypted": (FAR, NEAR, "in sa 7"),
    "received-clear": (NEAR, OWN, "in lan"),
    "received-decrypted": (FAR, OWN, "in sa 7"),
    "sent": (OWN, FAR, "in host"),
}
"""What is sent: source, destination, and for `explain` where it comes from."""


def fwd_by_in(packet, inbound, fwd, out, default):
    """No `fwd` policy, so that `in` is asked about what is forwarded."""
    if fwd or not inbound:
        return False
    if packet == "forwarded-decrypted":
        return inbound == "protect" and out != "discard"
    if packet == "forwarded-clear" and inbound == "bypass":
        return default == "block" and out in ("bypass", "protect")
    return packet == "forwarded-clear" and default == "accept" and out != "discard"


DIFFERENCES = {
    "closed": lambda packet, *said, default: (
        not any(said)
        and (packet, default) in [("forwarded-clear", "accept"), ("received-clear", "block"), ("sent", "block")]
    ),
    "fwd-by-in": lambda packet, *said, default: fwd_by_in(packet, *said, default),
    "out-protects": lambda packet, *said, default: (
        (packet, *said, default) == ("forwarded-clear", None, None, "protect", "block")
    ),
    "admitted-leaves": lambda packet, inbound, fwd, out, default: (
        (packet, fwd, out, default) == ("forwarded-decrypted", "protect", None, "block")
    ),
}
"""Where the two differ: a name, as in the document, and of which packets, policies and defaults that is so."""


def combinations():
    """What the policies of `in`, `fwd` and `out` say, and the defaults of all three."""
    return itertools.product(SAID, SAID, SAID, ["accept", "block"])


def of_hitpath(folder, said, default):
    """What becomes of each packet in a gateway with these policies."""
    config = Config(
        ports=[Port("lan", [f"{OWN}/24"]), Port("wan", [f"{US}/24"])],
        routes=[Route(FAR.rsplit(".", 1)[0] + ".0/24", via=PEER)],
        neighbours=[Neighbour("lan", NEAR, STATION), Neighbour("wan", PEER, STATION)],
        sas=[INBOUND, OUTBOUND],
    )
    for direction, action in zip(DIRECTIONS, said):
        if action:
            sa = (OUTBOUND if direction == "out" else INBOUND) if action == "protect" else None
            config.policies.append(Policy(direction, INSIDE, INSIDE, action, sa))
    path = folder / "gw.toml"
    defaults = "".join(f'default-{direction} = "{default}"\n' for direction in DIRECTIONS)
    path.write_text(config.render(folder / "sock") + f'\n[[vrf]]\nname = "main"\n{defaults}')
    path.chmod(0o600)
    fates = {}
    for name, (source, destination, where) in PACKETS.items():
        packet = f"udp {source}:7000 > {destination}:7000 {where}"
        done = run([binary(), "explain", "-j", "--config", path, packet], check=False)
        outcome = json.loads(done.stdout)[-1]
        # Nobody listens there but where the kernel's test does.
        is_taken = outcome.get("reason") == "local_no_listener"
        fates[name] = "delivered" if is_taken else outcome["fate"]
    return fates


class Linux:
    """The guest as a gateway between `wan`, where its tunnel ends, and `red-wan`, its inside."""

    LISTENER = (
        "import socket; s = socket.socket(2, 2); s.bind(('%s', 7000))\n"
        "while True: open('/run/got', 'ab').write(s.recv(99) + b'\\n')" % OWN
    )

    def __init__(self, guest, gw):
        self.guest = guest
        guest.clear()
        for interface in ("vec0", "vec1"):
            self.write(f"ipv4/conf/{interface}/rp_filter", 0)
        self.write("ipv4/conf/all/rp_filter", 0)
        self.write("ipv4/ip_forward", 1)
        guest.batch(
            [
                ["addr", "add", f"{US}/24", "dev", "vec0"],
                ["addr", "add", f"{OWN}/24", "dev", "vec1"],
                ["link", "set", "vec0", "up"],
                ["link", "set", "vec1", "up"],
                ["neigh", "replace", PEER, "lladdr", STATION, "dev", "vec0"],
                ["neigh", "replace", NEAR, "lladdr", STATION, "dev", "vec1"],
                ["route", "replace", FAR + "/32", "via", PEER, "dev", "vec0", "src", OWN],
                *(["xfrm", "state", "add", *sa.kernel_words()] for sa in (INBOUND, OUTBOUND)),
            ]
        )
        self.guest.run("sh", "-c", ": > /run/got")
        self.listener = guest.start("/usr/bin/python3", "-ISc", self.LISTENER)
        self.wait_for_listener()
        self.sockets = {"vec0": gw.packet_socket("wan"), "vec1": gw.packet_socket("red-wan")}
        self.macs = {
            interface: guest.run("cat", f"/sys/class/net/{interface}/address").stdout.strip()
            for interface in self.sockets
        }
        self.sealing = INBOUND.scapy()

    def wait_for_listener(self):
        """Else the guest would answer that nobody is there."""
        end = time.monotonic() + 30
        while ":1B58 " not in self.guest.run("cat", "/proc/net/udp").stdout:
            assert time.monotonic() < end, "nobody listens"
            time.sleep(0.1)

    def write(self, setting, value):
        self.guest.run("sh", "-c", f"echo {value} > /proc/sys/net/{setting}")

    def stop(self):
        """Leaves the guest as other tests expect it."""
        for socket in self.sockets.values():
            socket.close()
        self.listener.kill()
        self.guest.run("ip", "xfrm", "policy", "setdefault", "in", "accept", "fwd", "accept", "out", "accept")
        self.write("ipv4/ip_forward", 0)
        self.guest.clear()
        self.guest.batch([["addr", "flush", "dev", "vec1"], ["link", "set", "vec1", "down"]])

    def fates(self, said, default):
        """What becomes of each packet with these policies.

        A guest on a busy machine may lose a frame: if a question was lost, packets may have been too, and all is asked
        again.
        """
        for _ in range(3):
            fates = self.fates_once(said, default)
            if fates:
                return fates
            self.guest.run("sh", "-c", ": > /run/got")
        raise AssertionError(f"the guest does not answer with {said}, {default}")

    def fates_once(self, said, default):
        """Those fates; returns None if the guest did not answer a question."""
        lines = [["xfrm", "policy", "flush"]]
        for direction, action in zip(DIRECTIONS, said):
            if not action:
                continue
            words = ["xfrm", "policy", "add", "src", INSIDE, "dst", INSIDE, "dir", direction]
            if action == "discard":
                words += ["action", "block"]
            if action == "protect":
                ends = (US, PEER) if direction == "out" else (PEER, US)
                words += ["tmpl", "src", ends[0], "dst", ends[1], "proto", "esp", "reqid", "7", "mode", "tunnel"]
            lines.append(words)
        lines.append(["xfrm", "policy", "setdefault", *(word for at in DIRECTIONS for word in (at, default))])
        self.guest.batch(lines)
        for name in PACKETS:
            if name != "sent":
                self.inject(name)
        seen = self.frames_until_answered()
        if seen is None:
            return None
        # The shell says so if it may not send.
        sent = f"cat /run/got; : > /run/got; printf sent > /dev/udp/{FAR}/7000"
        got = self.guest.run("bash", "-c", sent, check=False).stdout.split()
        more = self.frames_until_answered()
        if more is None:
            return None
        seen += more
        fates = {}
        for name in PACKETS:
            leaving = [frame for frame in seen if frame.find(name.encode(), 34) > 0]
            if name in got:
                fates[name] = "delivered"
            elif leaving:
                assert len(leaving) == 1, (name, leaving)
                fates[name] = "sent-encrypted" if leaving[0][23] == 50 else "sent-in-clear"
            else:
                fates[name] = "dropped"
        return fates

    def inject(self, name):
        source, destination, _ = PACKETS[name]
        packet = IP(src=source, dst=destination) / UDP(sport=7000, dport=7000) / name.encode()
        interface = "vec1"
        if name.endswith("decrypted"):
            packet, interface = self.sealing.encrypt(IP(bytes(packet))), "vec0"
        frame = Ether(src=STATION, dst=self.macs[interface]) / packet
        self.sockets[interface].send(bytes(frame))

    def frames_until_answered(self):
        """IPv4 frames that the guest sends until it has answered a question on each interface.

        Returns None if it does not answer within 5 s.
        """
        for interface, (mine, its) in {"vec0": (PEER, US), "vec1": (NEAR, OWN)}.items():
            question = ARP(op=1, hwsrc=STATION, psrc=mine, pdst=its)
            self.sockets[interface].send(bytes(Ether(src=STATION, dst="ff:ff:ff:ff:ff:ff") / question))
        frames, waiting, end = [], set(self.sockets), time.monotonic() + 5
        while waiting and time.monotonic() < end:
            for interface, socket in self.sockets.items():
                frames += self.drain(interface, socket, waiting)
            time.sleep(0.005)
        if waiting:
            return None
        # What it was about to send then.
        time.sleep(0.03)
        for interface, socket in self.sockets.items():
            frames += self.drain(interface, socket, waiting)
        return frames

    def drain(self, interface, socket, waiting):
        socket.setblocking(False)
        frames = []
        while True:
            try:
                frame = socket.recv(2000)
            except BlockingIOError:
                return frames
            is_its = frame[6:12] == bytes.fromhex(self.macs[interface].replace(":", ""))
            if is_its and frame[12:14] == b"\x08\x06" and frame[21] == 2:
                waiting.discard(interface)
            if is_its and frame[12:14] == b"\x08\x00":
                frames.append(frame)


def test_the_boundary_is_linuxs_but_for_what_is_listed(guest_world, tmp_path):
    guest, gw, _ = guest_world
    linux = Linux(guest, gw)
    found, gone, count = [], [], {name: 0 for name in DIFFERENCES}
    try:
        for *said, default in combinations():
            theirs, ours = linux.fates(said, default), of_hitpath(tmp_path, said, default)
            for packet in PACKETS:
                case = (packet, *said, default)
                names = [name for name, holds in DIFFERENCES.items() if holds(packet, *said, default=default)]
                line = f"{case}: Linux {theirs[packet]}, hitpath {ours[packet]}, listed as {names}"
                if theirs[packet] != ours[packet] and len(names) != 1:
                    found.append(line)
                elif theirs[packet] == ours[packet] and names:
                    gone.append(line)
                for name in names:
                    count[name] += 1
    finally:
        linux.stop()
    assert not found, "differences that are not listed:\n" + "\n".join(found)
    assert not gone, "differences that are listed and are none:\n" + "\n".join(gone)
    # The document says the same.
    rows = re.findall(r"^\| ([a-z0-9-]+) \| (\d+) \|", DOCUMENT.read_text(), re.MULTILINE)
    assert {name: int(cases) for name, cases in rows} == count
