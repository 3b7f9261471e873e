"""Capture files in the forms that the field writes, and captures of live interfaces."""

import contextlib
import struct

from scapy.layers.l2 import Ether

SOL_PACKET, PACKET_STATISTICS = 263, 6
ETHERNET, RAW_IP = 1, 101
START = 1_700_000_000
"""When captures begin, in seconds since 1970."""

SPACING = 100_000
"""Nanoseconds from one frame to the next."""


def write_pcap(path, frames, nano=False, link=ETHERNET, order="<", spacing=SPACING):
    """Writes the old pcap form; `order` is the byte order, as `struct` writes it."""
    unit = 1 if nano else 1000
    with open(path, "wb") as out:
        out.write(struct.pack(order + "IHHiIII", 0xA1B23C4D if nano else 0xA1B2C3D4, 2, 4, 0, 0, 262144, link))
        for number, frame in enumerate(frames):
            data, seconds, part = bytes(frame), *divmod(number * spacing, 10**9)
            out.write(struct.pack(order + "IIII", START + seconds, part // unit, len(data), len(data)) + data)


def write_pcapng(path, frames, nano=False, link=ETHERNET, order="<", spacing=SPACING):
    """Writes pcapng: one section, one interface, with nanoseconds where asked for."""
    unit = 1 if nano else 1000
    with open(path, "wb") as out:
        out.write(_block(order, 0x0A0D0D0A, struct.pack(order + "IHHq", 0x1A2B3C4D, 1, 0, -1)))
        resolution = struct.pack(order + "HHB3xHH", 9, 1, 9 if nano else 6, 0, 0)
        out.write(_block(order, 1, struct.pack(order + "HHI", link, 0, 262144) + resolution))
        for number, frame in enumerate(frames):
            data, stamp = bytes(frame), (START * 10**9 + number * spacing) // unit
            head = struct.pack(order + "IIIII", 0, stamp >> 32, stamp & 0xFFFFFFFF, len(data), len(data))
            out.write(_block(order, 6, head + data + bytes(-len(data) % 4)))


def _block(order, kind, body):
    length = struct.pack(order + "I", len(body) + 12)
    return struct.pack(order + "I", kind) + length + body + length


@contextlib.contextmanager
def captured(namespace, interface):
    """Yields a list that has every frame that passed `interface` while the block ran, once the block has ended."""
    frames = []
    with namespace.packet_socket(interface) as listening:
        listening.setblocking(False)
        yield frames
        # The kernel queues a frame for us before it hands it on, so all that the block has seen the effect of is here.
        with contextlib.suppress(BlockingIOError):
            while True:
                frames.append(Ether(listening.recv(65535)))
        _, lost = struct.unpack("II", listening.getsockopt(SOL_PACKET, PACKET_STATISTICS, 8))
        assert lost == 0, f"{lost} frames did not fit the socket"
