"""A gateway between two wires whose far ends are packet sockets: what is on a wire, a test or the
gateway has sent."""

import contextlib
import dataclasses
import select
import signal
import time

from scapy.layers.inet import IP, TCP, UDP
from scapy.layers.inet6 import IPv6
from scapy.layers.l2 import Ether
from scapy.packet import Raw

from harness.config import Config, Neighbour, Port
from harness.gateway import Gateway

MARKER = 65001
"""UDP to this port is a marker: it passes, and what was sent before it has come or does not come."""

FAR = {"left": "02:00:00:00:01:02", "right": "02:00:00:00:02:02"}
"""The stations at the far ends. Each has all the addresses of its wire below."""

HOSTS = {
    "left": [f"10.1.0.{n}" for n in range(2, 10)] + [f"fd01::{n}" for n in range(2, 10)],
    "right": [f"10.2.0.{n}" for n in range(2, 10)] + [f"fd02::{n}" for n in range(2, 10)],
}
OWN = {"left": ["10.1.0.1/24", "fd01::1/64"], "right": ["10.2.0.1/24", "10.2.0.100/32", "fd02::1/64"]}

HEAD = f"""
table=0, priority=65000,udp,tp_dst={MARKER} actions=NORMAL
table=0, priority=10,arp actions=NORMAL
table=0, priority=10,ip actions=ct(table=1,nat)
table=0, priority=10,ipv6 actions=ct(table=1,nat)
table=1, priority=100,ip,ct_state=+inv+trk actions=drop
table=1, priority=100,ipv6,ct_state=+inv+trk actions=drop
table=1, priority=30,ip,ct_state=+rel-new+trk actions=NORMAL
table=1, priority=30,ipv6,ct_state=+rel-new+trk actions=NORMAL
table=1, priority=20,ip,ct_state=+est+trk actions=NORMAL
table=1, priority=20,ipv6,ct_state=+est+trk actions=NORMAL
"""
"""What the flows of a firewall begin with; what may open connections comes behind."""

OUT = """
table=1, priority=10,ip,ct_state=+new+trk,in_port=left actions=ct(commit),NORMAL
table=1, priority=10,ipv6,ct_state=+new+trk,in_port=left actions=ct(commit),NORMAL
"""
"""Everything of the left may open connections."""


@dataclasses.dataclass
class Seen:
    """What came out of the gateway by its ports, as IP packets."""

    left: list
    right: list


class Ends:
    """The far ends of two wires. What stands between them must send markers on."""

    def _attach(self, topology, name, label=""):
        """Makes the wires of the namespace `name`, which has their near ends."""
        middle = topology.namespace(name)
        self._sockets, self._near, self._number = {}, {}, 0
        for side in FAR:
            far = topology.namespace(label + side)
            topology.link(middle, side, far, "eth0")
            far.silence("eth0")
            self._sockets[side] = far.packet_socket("eth0")
            self._near[side] = middle.mac(side)
        return middle

    def _close(self):
        for opened in self._sockets.values():
            opened.close()

    def put(self, side, *packets):
        """Sends packets or frames on a wire, without waiting for what becomes of them."""
        for packet in packets:
            self._sockets[side].send(packet if isinstance(packet, bytes) else self.frame(side, packet))

    def frame(self, side, packet):
        """A packet of the far end of a wire, perhaps as octets, as the octets of its frame."""
        version = bytes(packet)[0] >> 4
        kind = {4: 0x0800, 6: 0x86DD}[version]
        return bytes(Ether(src=FAR[side], dst=self._near[side], type=kind)) + bytes(packet)

    def send(self, side, *packets, together=False):
        """Sends packets and returns what came out by both ports, until markers have come."""
        seen = self.frames(side, *packets, together=together)
        return Seen(*([Ether(frame).payload for frame in frames] for frames in (seen.left, seen.right)))

    def frames(self, side, *packets, together=False):
        """As `send`, but the frames as octets."""
        other = "right" if side == "left" else "left"
        came = {"left": [], "right": []}
        with self.one_batch() if together else contextlib.nullcontext():
            self.put(side, *packets)
            first = self._mark(side)
        came[other] += self._until(other, first)
        # What was made whole of fragments goes on in the gateway's next round, and what it sends
        # back may do so.
        came[side] += self._until(side, self._mark(other))
        came[other] += self._until(other, self._mark(side))
        return Seen(**came)

    def passes(self, side, packet, together=False):
        """Whether a packet comes out at the other side, alone, and with right checksums."""
        seen = self.send(side, packet, together=together)
        came = seen.right if side == "left" else seen.left
        assert len(came) <= 1, came
        for one in came:
            demand_checksums(one)
        return bool(came)

    def _mark(self, side):
        self._number += 1
        there = {"left": "10.2.0.9", "right": "10.1.0.9"}[side]
        here = {"left": "10.1.0.9", "right": "10.2.0.9"}[side]
        body = b"marker %08d" % self._number
        self.put(side, IP(src=here, dst=there) / UDP(sport=1, dport=MARKER) / body)
        return body

    def _until(self, side, body, timeout=20):
        came, end = [], time.monotonic() + timeout
        while True:
            left = end - time.monotonic()
            assert left > 0 and select.select([self._sockets[side]], [], [], left)[0], (
                f"no marker on the wire {side}; it had {len(came)} packets"
            )
            frame = self._sockets[side].recv(65535)
            # To groups, kernels speak that have just got an interface.
            if frame[0] & 1 or frame[12:14] not in (b"\x08\x00", b"\x86\xdd"):
                continue
            if frame.endswith(body) and frame[36:38] == MARKER.to_bytes(2):
                return came
            came.append(frame)


class Wires(Ends):
    """A gateway between two wires, as a context manager."""

    def __init__(self, topology, directory, flows=HEAD + OUT, extra="", workers=1, vrf=""):
        gw = self._attach(topology, "gw")
        ports, neighbours = [], []
        for side in FAR:
            gw.silence(side)
            ports.append(Port(side, OWN[side], kind="af-packet", interface=side, vrf=vrf))
            neighbours += [Neighbour(side, address, FAR[side]) for address in HOSTS[side]]
        config = Config(ports=ports, neighbours=neighbours, workers=workers, vrfs=[vrf] if vrf else [])
        self.gateway = Gateway(gw, config, directory)
        self.gateway.write(f"{config.render(self.gateway.socket)}\n{extra}")
        self._flows = flows

    def __enter__(self):
        self.gateway.__enter__()
        try:
            self.replace(self._flows)
        except BaseException:
            self.gateway.kill()
            raise
        return self

    def __exit__(self, *error):
        try:
            self.gateway.__exit__(*error)
        finally:
            self._close()

    def replace(self, flows):
        """Makes the flows these."""
        self.gateway.run("flow", "replace", "-", stdin=flows)

    @contextlib.contextmanager
    def one_batch(self):
        """The gateway stands still meanwhile: what is sent is in its rings together."""
        self.gateway.process.send_signal(signal.SIGSTOP)
        try:
            yield
        finally:
            self.gateway.process.send_signal(signal.SIGCONT)

    def connections(self, *words):
        """The connections, as JSON."""
        return self.gateway.json("conntrack", "-L", *words)

    def connection(self, *words):
        """The one connection that the words name, or None."""
        found = self.connections(*words)
        assert len(found) <= 1, found
        return found[0] if found else None

    def statistics(self):
        """What the table counts."""
        return self.gateway.json("conntrack", "-S")


def demand_checksums(packet):
    """Every checksum of a packet is what scapy calculates."""
    again = packet.__class__(bytes(packet))
    layers = [again.getlayer(at) for at in range(20) if again.getlayer(at)]
    for layer in layers:
        # What an ICMP error quotes may be cut, and has the checksums of its sender.
        if layer.name.endswith("in ICMP") or layer.name == "IPerror6":
            break
        for name in ("chksum", "cksum"):
            if name in layer.fields and not (layer.name == "UDP" and layer.chksum == 0):
                delattr(layer, name)
    assert bytes(again.__class__(bytes(again))) == bytes(packet), packet.show2(dump=True)


class Talk:
    """A TCP connection, made by hand, from the left to the right."""

    def __init__(self, wires, sport=40000, dport=80, client="10.1.0.2", server="10.2.0.2", seq=1_000, answer=90_000):
        self.wires, self.sport, self.dport = wires, sport, dport
        self.client, self.server = client, server
        self.seq, self.ack = seq, answer
        """What each side sends next."""

    def segment(self, by, flags, seq=None, ack=None, data=b"", **fields):
        """A segment by the `client` or the `server`; what is not said is right."""
        own, other = (self.seq, self.ack) if by == "client" else (self.ack, self.seq)
        ends = (self.client, self.server) if by == "client" else (self.server, self.client)
        ports = (self.sport, self.dport) if by == "client" else (self.dport, self.sport)
        if ack is None:
            ack = other if "A" in flags else 0
        network = IPv6 if ":" in self.client else IP
        tcp = TCP(sport=ports[0], dport=ports[1], flags=flags, seq=(own if seq is None else seq) % 2**32,
                  ack=ack % 2**32, **{"window": 8192} | fields)
        packet = network(src=ends[0], dst=ends[1]) / tcp
        return packet / Raw(data) if data else packet

    def says(self, by, flags, seq=None, ack=None, data=b"", **fields):
        """Sends a segment; whether it came out. One that did and is in order moves the numbers."""
        segment = self.segment(by, flags, seq, ack, data, **fields)
        came = self.wires.passes("left" if by == "client" else "right", segment)
        moved = len(data) + ("S" in flags) + ("F" in flags)
        if came and seq is None:
            self.seq, self.ack = (
                (self.seq + moved, self.ack) if by == "client" else (self.seq, self.ack + moved)
            )
        return came

    def opens(self):
        """The handshake; every segment of it passes."""
        assert self.says("client", "S") and self.says("server", "SA") and self.says("client", "A")
        assert self.state() == "ESTABLISHED"
        return self

    def closes(self):
        """Both sides send a FIN, and acknowledge the other's."""
        for by, flags in [("client", "FA"), ("server", "FA"), ("client", "A")]:
            assert self.says(by, flags), (by, flags)
        return self

    def carries_data(self):
        """Data passes both ways, and the connection is established."""
        for by in ("client", "server", "client"):
            assert self.says(by, "PA", data=b"data"), by
        assert self.state() == "ESTABLISHED"

    def entry(self):
        """The connection, as JSON, or None."""
        return self.wires.connection("-p", "tcp", "-s", self.client, "--sport", self.sport, "--dport", self.dport)

    def state(self):
        """Its state, or None if it is not there."""
        found = self.entry()
        return found and found["state"]
