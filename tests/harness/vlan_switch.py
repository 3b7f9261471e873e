"""A switch with VLANs, made of the kernel's classifiers: trunk frames have a tag or two, hosts' frames have none.

The tags are pushed and popped by BPF programs, as a kernel need not have VLAN devices.
They are where a VLAN device has them too: beside the packet, for the next device to put into the frame.
"""

import contextlib
import ctypes
import os
import struct

from harness.failure import CommandFailed
from harness.netns import run

SYS_BPF = 321
PROG_LOAD, OBJ_PIN = 5, 6
SCHED_CLS = 3
VLAN_PUSH, VLAN_POP, REDIRECT = 18, 19, 23
VLAN_TCI, VLAN_PROTOCOL = 24, 28
"""Offsets in `struct __sk_buff`."""
CUSTOMER, SERVICE = 0x8100, 0x88A8
"""The EtherTypes in front of tags."""

_libc = ctypes.CDLL(None, use_errno=True)


class VlanSwitch:
    """The switch in one namespace, whose trunk is the interface `trunk`."""

    def __init__(self, namespace, trunk, directory):
        self._here, self._trunk = namespace, trunk
        self._folder = directory / f"bpf-{namespace.name}"
        self._ports = {}

    def __enter__(self):
        self._folder.mkdir()
        run(["mount", "-t", "bpf", "bpf", self._folder])
        self._tc("qdisc", "add", "dev", self._trunk, "clsact")
        return self

    def __exit__(self, *_):
        run(["umount", self._folder])

    def access(self, vlan, host, mtu=1500):
        """Connects `eth0` of a host's namespace to a VLAN: a number, or each tag's EtherType and number."""
        tags = ((CUSTOMER, vlan),) if isinstance(vlan, int) else tuple(vlan)
        port = "vlan" + "-".join(f"{protocol & 15:x}{number}" for protocol, number in tags)
        pair = ["link", "add", port, "mtu", str(mtu), "type", "veth", "peer", "name", "eth0", "mtu", str(mtu)]
        self._here.ip(*pair, "netns", host.name)
        self._here.silence(port)
        self._here.ip("link", "set", port, "up")
        self._tc("qdisc", "add", "dev", port, "clsact")
        self._ports[tags] = self._index(port)
        push = [_copy(6, 1)]
        for protocol, number in reversed(tags):
            push += [_copy(1, 6), _move(2, _network_order(protocol)), _move(3, number), _call(VLAN_PUSH)]
        self._attach(port, [*push, *_redirect(self._index(self._trunk))])
        self._tc("filter", "del", "dev", self._trunk, "ingress")
        self._attach(self._trunk, self._pop())

    def _pop(self):
        """What belongs to a VLAN goes to its port without the tags. All else is the namespace's own."""
        return [_copy(6, 1), *self._branches(()), *_PASS]

    def _branches(self, outer):
        """What becomes of frames that had the tags `outer`, by the next tag, which the kernel has put beside them."""
        program = [_load(2, 6, VLAN_PROTOCOL), _load(3, 6, VLAN_TCI), _instruction(0x57, 3, immediate=0xFFF)]
        deeper = [ports[: len(outer) + 1] for ports in self._ports if ports[: len(outer)] == outer != ports]
        for tags in dict.fromkeys(deeper):
            there = [_copy(1, 6), _call(VLAN_POP)]
            if any(len(ports) > len(tags) and ports[: len(tags)] == tags for ports in self._ports):
                there += self._branches(tags)
            there += _redirect(self._ports[tags]) if tags in self._ports else _PASS
            protocol, number = tags[-1]
            program.append(_instruction(0x55, 2, offset=len(there) + 1, immediate=_network_order(protocol)))
            program.append(_instruction(0x55, 3, offset=len(there), immediate=number))
            program += there
        return program

    def _attach(self, interface, program):
        path = self._folder / f"{interface}-{len(self._ports)}"
        _pin(_load_program(program), path)
        self._tc("filter", "add", "dev", interface, "ingress", "prio", "1", "bpf", "da", "pinned", path)

    def _index(self, interface):
        return int(self._here.run("cat", f"/sys/class/net/{interface}/ifindex").stdout)

    def _tc(self, *words):
        return run(["tc", "-n", self._here.name, *words])


def _instruction(code, target=0, source=0, offset=0, immediate=0):
    return struct.pack("<BBhi", code, source << 4 | target, offset, immediate)


def _copy(target, source):
    return _instruction(0xBF, target, source)


def _network_order(word):
    return word >> 8 | (word & 0xFF) << 8


def _move(register, value):
    return _instruction(0xB7, register, immediate=value)


def _load(register, base, offset):
    return _instruction(0x61, register, base, offset)


def _call(function):
    return _instruction(0x85, immediate=function)


def _redirect(index):
    return [_move(1, index), _move(2, 0), _call(REDIRECT), _instruction(0x95)]


_PASS = [_move(0, 0), _instruction(0x95)]


def _load_program(instructions):
    """Has the kernel take a program. Returns its descriptor."""
    code = b"".join(instructions)
    text, licence = ctypes.create_string_buffer(code, len(code)), ctypes.create_string_buffer(b"MIT")
    attributes = struct.pack("<IIQQ", SCHED_CLS, len(instructions), ctypes.addressof(text), ctypes.addressof(licence))
    return _bpf(PROG_LOAD, attributes)


def _pin(program, path):
    name = ctypes.create_string_buffer(os.fsencode(path))
    with contextlib.closing(os.fdopen(program)):
        _bpf(OBJ_PIN, struct.pack("<QI", ctypes.addressof(name), program))


def _bpf(command, attributes):
    buffer = ctypes.create_string_buffer(attributes.ljust(128, b"\0"), 128)
    done = _libc.syscall(SYS_BPF, command, buffer, len(buffer))
    if done < 0:
        raise CommandFailed(f"bpf({command}): {os.strerror(ctypes.get_errno())}")
    return done
