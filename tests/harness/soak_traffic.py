"""The traffic of the soak, run inside the namespaces of its hosts.

    soak_traffic.py udp-send COUNTS PAUSE RATE ADDRESS...
    soak_traffic.py udp-receive COUNTS
    soak_traffic.py tcp-send COUNTS PAUSE ADDRESS...
    soak_traffic.py tcp-receive

COUNTS is a file that each program writes its counts to, twice a second. Senders send nothing while the file PAUSE is
there.
"""

import contextlib
import hashlib
import json
import os
import pathlib
import random
import selectors
import socket
import struct
import sys
import time

UDP, TCP = 7001, 7002


class Counts:
    """Counts that others read."""

    def __init__(self, path, **counts):
        self.path, self.now, self._due = pathlib.Path(path), counts, 0.0

    def write(self, at_once=False):
        """Writes them, unless that was done just before."""
        if at_once or time.monotonic() >= self._due:
            new = self.path.with_suffix(".new")
            new.write_text(json.dumps(self.now))
            new.rename(self.path)
            self._due = time.monotonic() + 0.5


def family(address):
    """The socket family of an address."""
    return socket.AF_INET6 if ":" in address else socket.AF_INET


def udp_send(counts, pause, rate, *addresses):
    """Datagrams of all sizes, numbered for each address, in bursts of up to 20."""
    outs = [socket.socket(family(address), socket.SOCK_DGRAM) for address in addresses]
    counts = Counts(counts, sent=[0] * len(addresses), refused=0, is_paused=False)
    sent = counts.now["sent"]
    due = time.monotonic()
    while True:
        if os.path.exists(pause):
            counts.now["is_paused"] = True
            counts.write(at_once=True)
            time.sleep(0.05)
            due = time.monotonic()
            continue
        counts.now["is_paused"] = False
        burst = random.choice([1, 1, 2, 5, 20])
        which = random.randrange(len(addresses))
        for _ in range(burst):
            text = struct.pack(">BQ", which, sent[which]) + bytes(random.choice([0, 50, 600, 1200]))
            try:
                outs[which].sendto(text, (addresses[which], UDP))
                sent[which] += 1
            except OSError:
                counts.now["refused"] += 1
        counts.write()
        due += burst / float(rate)
        time.sleep(max(0.0, due - time.monotonic()))


def udp_receive(counts):
    """Counts datagrams by flow, and those that came twice."""
    here = socket.socket(socket.AF_INET6, socket.SOCK_DGRAM)
    here.setsockopt(socket.SOL_SOCKET, 33, 16 << 20)  # SO_RCVBUFFORCE
    here.bind(("::", UDP))
    here.settimeout(0.2)
    seen = {}
    counts = Counts(counts, received={}, twice=0)
    while True:
        with contextlib.suppress(TimeoutError):
            which, number = struct.unpack_from(">BQ", here.recv(2048))
            bits = seen.setdefault(which, bytearray())
            if len(bits) <= number // 8:
                bits.extend(bytes(number // 8 + 4096 - len(bits)))
            if bits[number // 8] >> number % 8 & 1:
                counts.now["twice"] += 1
            else:
                bits[number // 8] |= 1 << number % 8
                counts.now["received"][str(which)] = counts.now["received"].get(str(which), 0) + 1
        counts.write()


def tcp_send(counts, pause, *addresses):
    """Connections one after the other, of which each sends a few hundred KB and gets their digest back."""
    counts = Counts(counts, whole=0, broken=0, wrong=0, is_paused=False)
    while True:
        if os.path.exists(pause):
            counts.now["is_paused"] = True
            counts.write(at_once=True)
            time.sleep(0.05)
            continue
        counts.now["is_paused"] = False
        address = random.choice(addresses)
        text = random.randbytes(random.randrange(1, 300_000))
        try:
            with socket.socket(family(address), socket.SOCK_STREAM) as out:
                out.settimeout(10)
                out.connect((address, TCP))
                out.sendall(struct.pack(">Q", len(text)) + text)
                got = b""
                while len(got) < 32 and (more := out.recv(32 - len(got))):
                    got += more
            if len(got) == 32:
                counts.now["whole" if got == hashlib.sha256(text).digest() else "wrong"] += 1
            else:
                counts.now["broken"] += 1
        except OSError:
            counts.now["broken"] += 1
        counts.write()
        time.sleep(0.05)


def tcp_receive():
    """The other end of that."""
    listener = socket.create_server(("::", TCP), family=socket.AF_INET6, dualstack_ipv6=True)
    selector = selectors.DefaultSelector()
    selector.register(listener, selectors.EVENT_READ)
    texts = {}
    while True:
        for key, _ in selector.select():
            peer = key.fileobj
            if peer is listener:
                peer, _ = listener.accept()
                peer.settimeout(5)
                texts[peer] = bytearray()
                selector.register(peer, selectors.EVENT_READ)
                continue
            text = texts[peer]
            try:
                more = peer.recv(1 << 16)
                text += more
                is_over = not more
                if len(text) >= 8 and len(text) == 8 + struct.unpack_from(">Q", text)[0]:
                    peer.sendall(hashlib.sha256(text[8:]).digest())
                    is_over = True
            except OSError:
                is_over = True
            if is_over:
                selector.unregister(peer)
                peer.close()
                del texts[peer]


if __name__ == "__main__":
    role = {"udp-send": udp_send, "udp-receive": udp_receive, "tcp-send": tcp_send, "tcp-receive": tcp_receive}
    role[sys.argv[1]](*sys.argv[2:])
