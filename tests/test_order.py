"""The order in which a packet meets filters, connections, translation, policies and encryption, as
docs/life-of-a-packet.md has it: whatever could end it does, until it is opened, one after the other."""

import json

import pytest
from harness.algorithms import GCM, Sa
from harness.config import sa_entry
from harness.wires import HEAD, MARKER, Wires
from scapy.layers.inet import IP, UDP
from scapy.layers.ipsec import ESP
from scapy.packet import Raw

pytestmark = pytest.mark.namespaces

CLIENT, SERVICE = "192.0.2.77", "10.2.0.100"
"""The ends of the packet as it comes from the left: the service is an address of the gateway's own."""

OUTSIDE, SERVER = "203.0.113.77", "203.0.113.5"
"""What they are translated to: the server is behind the tunnel to the right host."""

FROM_LEFT = Sa(GCM, "10.1.0.2", "10.1.0.1", 0x1001, reqid=1)
TO_RIGHT = Sa(GCM, "10.2.0.1", "10.2.0.2", 0x2001, reqid=2)

TEMPLATE = "tmpl src {0.source} dst {0.destination} proto esp reqid {0.reqid} mode tunnel"

STARTS = {
    "clear": {"flow": "in_port=left", "explain": "in left", "fwd": "action allow"},
    "decrypted": {"flow": f"sa=reqid:{FROM_LEFT.reqid}", "explain": "in sa 1", "fwd": TEMPLATE.format(FROM_LEFT)},
}

EVER = f"""
filter add vrf main ingress pref 8 protocol ip flower src_ip {OUTSIDE} action drop
filter add vrf main ingress pref 9 protocol ip flower dst_ip {SERVER} action drop
flow add table=0,priority=200,udp,nw_src={OUTSIDE} actions=drop
flow add table=0,priority=200,udp,nw_dst={SERVER} actions=drop
xfrm policy add src {OUTSIDE} dst 0.0.0.0/0 dir fwd action block priority 1
xfrm policy add src 0.0.0.0/0 dst {SERVER} dir fwd action block priority 1
xfrm policy add src {CLIENT} dst 0.0.0.0/0 dir in action block priority 1
rule add pref 40 from {OUTSIDE} blackhole
rule add pref 41 to {SERVICE} blackhole
xfrm policy add src {CLIENT} dst 0.0.0.0/0 dir out action block priority 1
xfrm policy add src 0.0.0.0/0 dst {SERVICE} dir out action block priority 1
filter add vrf main egress pref 8 protocol ip flower src_ip {CLIENT} action drop
filter add vrf main egress pref 9 protocol ip flower dst_ip {SERVICE} action drop
route add 203.0.113.0/24 via 10.2.0.2
qdisc add dev right root tbf rate 1gbit burst 64kb limit 100kb
"""
"""What would end the packet if it had other addresses there than it has, or were for the gateway itself; a
route to the server, and a queue."""


def gates(start):
    """Reason of the drop -> what shuts the gate and what opens it, in the order of the gateway, with the
    addresses that the packet has there."""
    fwd = f"src {CLIENT} dst {SERVICE} dir fwd priority 10"
    out = f"src {OUTSIDE} dst {SERVER} dir out"
    ingress, egress = ("filter {} vrf main " + hook + " pref 5" for hook in ("ingress", "egress"))
    flower = "protocol ip flower src_ip {} dst_ip {} action drop"
    drop = f"table=0,priority=100,udp,nw_src={CLIENT},nw_dst={SERVICE}"
    rule = f"pref 50 from {CLIENT} to {SERVER} blackhole"
    found = {
        "filter_ingress": (f"{ingress.format('add')} {flower.format(CLIENT, SERVICE)}", ingress.format("del")),
        # No route leads to the client.
        "reverse_path": ("link set dev left rpf loose", "link set dev left rpf off"),
        "flow_drop": (f"flow add {drop} actions=drop", f"flow del --strict {drop}"),
        "policy_discard": (f"xfrm policy update {fwd} action block", f"xfrm policy update {fwd} {STARTS[start]['fwd']}"),
        "route_blackhole": (f"rule add {rule}", f"rule del {rule}"),
        "policy_no_match": (f"xfrm policy delete {out}", f"xfrm policy add {out} {TEMPLATE.format(TO_RIGHT)}"),
        "filter_egress": (f"{egress.format('add')} {flower.format(OUTSIDE, SERVER)}", egress.format("del")),
    }
    if start == "decrypted":
        # What a tunnel brings came by no link.
        del found["reverse_path"]
    return found


class Order:
    """The gateway, and the packet that is sent through it."""

    def __init__(self, wires, start):
        self.wires, self.start = wires, start
        self.inbound, self.outbound = FROM_LEFT.scapy(), TO_RIGHT.scapy()
        self.marked = 0

    def does(self, command):
        """Carries out a command of hitpath."""
        self.wires.gateway.run(*command.split())

    def counted(self):
        """Drops, packets of the SA to the right, and bytes that have left the queue."""
        gateway = self.wires.gateway
        (queue,) = gateway.json("qdisc", "show", "dev", "right")
        return gateway.drops(), gateway.sa_packets()[TO_RIGHT.spi], queue["bytes"]

    def sends(self, ttl):
        """Sends the packet. Returns why it was dropped, or what was in the ESP packet that came out."""
        packet = IP(src=CLIENT, dst=SERVICE, ttl=ttl) / UDP(sport=4000, dport=5000) / Raw(b"in order")
        if self.start == "decrypted":
            packet = self.inbound.encrypt(packet)
        drops, sealed, queued = self.counted()
        came = self.wires.send("left", packet).right
        after, sealed_after, queued_after = self.counted()
        new = {reason: after[reason] - drops.get(reason, 0) for reason in after if after[reason] != drops.get(reason)}
        bytes_of_packets = queued_after - queued - self.marked
        if came:
            assert new == {} and sealed_after == sealed + 1
            (outer,) = came
            # The queue has the encrypted packet, with its Ethernet header.
            assert ESP in outer and bytes_of_packets == len(outer) + 14
            return self.outbound.decrypt(outer)
        # What did not pass was not encrypted, and did not wait.
        assert (sealed_after, bytes_of_packets) == (sealed, 0)
        return new

    def explained(self, ttl):
        """What explain says becomes of it."""
        packet = f"udp {CLIENT}:4000 > {SERVICE}:5000 ttl {ttl} {STARTS[self.start]['explain']}"
        said = json.loads(self.wires.gateway.run("-j", "explain", packet, check=False).stdout)
        return said[-1].get("reason") or said[-1]["fate"]


@pytest.fixture(params=STARTS)
def order(request, topology, tmp_path):
    """The gateway with every gate shut."""
    start = request.param
    new = (
        f"table=1,priority=10,ct_state=+new+trk,udp,{STARTS[start]['flow']},tp_dst=5000 "
        f"actions=ct(commit,nat(dst={SERVER}:5300)),ct(commit,nat(src={OUTSIDE},twice)),NORMAL\n"
        "table=0,priority=65000,ip,nw_proto=50 actions=NORMAL\n"
    )
    markers = "".join(
        f'[[policy]]\ndirection = "{way}"\nprotocol = "udp"\ndestination-ports = {MARKER}\naction = "bypass"\n\n'
        for way in ("in", "fwd", "out")
    )
    extra = "\n".join([sa_entry(FROM_LEFT), sa_entry(TO_RIGHT), markers])
    with Wires(topology, tmp_path, HEAD + new, extra) as wires:
        made = Order(wires, start)
        for line in EVER.strip().splitlines():
            made.does(line)
        before = made.counted()[2]
        wires.send("left")
        made.marked = made.counted()[2] - before
        yield made


def test_every_gate_ends_it_before_the_next_one_does(order):
    """All are shut; the first is opened, and then the next. As well for a packet that opens a connection
    as for one of a connection that is there."""
    shut_and_open = gates(order.start)
    for shut, opened in shut_and_open.values():
        if "delete" not in shut:
            order.does(shut)
    for _ in range(2):
        for reason, (_, opened) in shut_and_open.items():
            assert order.sends(ttl=1) == {reason: 1}, reason
            # Of a packet that opens a connection, explain does not know its source to be.
            if reason not in ("policy_no_match", "filter_egress") or order.wires.connections():
                assert order.explained(ttl=1) == reason
            order.does(opened)
        # The error about it may not leave: no policy is for it, and no route leads to the client.
        assert order.sends(ttl=1) == {"hop_limit": 1, "policy_no_match": 1}
        inner = order.sends(ttl=9)
        assert (inner.src, inner.dst, inner[UDP].dport, inner.ttl) == (OUTSIDE, SERVER, 5300, 8)
        assert order.explained(ttl=9) == "sent-encrypted" and order.explained(ttl=1) == "hop_limit"
        (connection,) = order.wires.connections("-p", "udp", "--dport", "5000")
        assert connection["reply"]["destination"] == OUTSIDE
        for shut, _ in reversed(shut_and_open.values()):
            order.does(shut)
