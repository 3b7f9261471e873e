"""A peer on a wire that is nothing but scapy: answers address resolution, and pings inside ESP."""

import select
import threading
import time

from scapy.layers.inet import ICMP, IP
from scapy.layers.inet6 import ICMPv6EchoReply, ICMPv6EchoRequest, ICMPv6ND_NA, ICMPv6ND_NS, ICMPv6NDOptDstLLAddr, IPv6
from scapy.layers.ipsec import ESP
from scapy.layers.l2 import ARP, Ether

MAC = "02:00:00:00:00:aa"


class ScapyPeer:
    """Answers on `interface` of `namespace` as `addresses`; `inbound` and `outbound` are its SAs."""

    def __init__(self, namespace, interface, addresses, inbound=None, outbound=None):
        self._socket = namespace.packet_socket(interface)
        self._addresses = addresses
        self._inbound = inbound.scapy() if inbound else None
        self._outbound = outbound.scapy() if outbound else None
        self._end = threading.Event()
        self.decrypted = []
        self.error = None
        self._thread = threading.Thread(target=self._serve, daemon=True)
        self._thread.start()

    def stop(self):
        """Ends the peer, and raises what went wrong in it."""
        self._end.set()
        self._thread.join(5)
        self._socket.close()
        if self.error:
            raise self.error

    def wait_for(self, count, timeout=5):
        """Waits until `count` packets were decrypted, and returns them."""
        end = time.monotonic() + timeout
        while len(self.decrypted) < count and time.monotonic() < end and not self.error:
            time.sleep(0.01)
        return self.decrypted

    def _serve(self):
        try:
            while not self._end.is_set():
                if select.select([self._socket], [], [], 0.05)[0]:
                    self._handle(Ether(self._socket.recv(65535)))
        except Exception as error:  # Told to the test's own thread by stop().
            self.error = error

    def _handle(self, frame):
        if frame.src == MAC:
            return
        if ARP in frame and frame[ARP].op == 1 and frame[ARP].pdst in self._addresses:
            self._send(frame, ARP(op=2, hwsrc=MAC, psrc=frame[ARP].pdst, hwdst=frame.src, pdst=frame[ARP].psrc))
        elif ICMPv6ND_NS in frame and frame[ICMPv6ND_NS].tgt in self._addresses:
            target = frame[ICMPv6ND_NS].tgt
            self._send(
                frame,
                IPv6(src=target, dst=frame[IPv6].src, hlim=255)
                / ICMPv6ND_NA(tgt=target, R=0, S=1, O=1)
                / ICMPv6NDOptDstLLAddr(lladdr=MAC),
            )
        elif ESP in frame and self._inbound and frame[ESP].spi == self._inbound.spi:
            outer = frame[IP] if IP in frame else frame[IPv6]
            inner = self._inbound.decrypt(outer.__class__(bytes(outer)))
            self.decrypted.append(inner)
            self._answer(frame, inner)

    def _answer(self, frame, inner):
        if ICMP in inner and inner[ICMP].type == 8:
            reply = (
                IP(src=inner.dst, dst=inner.src)
                / ICMP(type=0, id=inner[ICMP].id, seq=inner[ICMP].seq)
                / inner[ICMP].payload
            )
        elif ICMPv6EchoRequest in inner:
            request = inner[ICMPv6EchoRequest]
            reply = IPv6(src=inner.dst, dst=inner.src) / ICMPv6EchoReply(
                id=request.id, seq=request.seq, data=request.data
            )
        else:
            return
        self._send(frame, self._outbound.encrypt(reply))

    def _send(self, frame, packet):
        self._socket.send(bytes(Ether(src=MAC, dst=frame.src) / packet))
