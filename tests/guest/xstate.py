#!/usr/bin/python3 -I
"""The extended register state of a stopped child, by ptrace.

    xstate.py area          prints how many bytes the whole area has
    xstate.py set BYTES     sets the first BYTES of the area, and prints as JSON what came of it

`set` changes the legacy registers and AVX's upper halves, as far as BYTES reach, and hands over a
header in which nothing else is in use. tests/harness/xstate.py reads what is printed.
"""

import ctypes
import json
import os
import signal
import sys

PTRACE_TRACEME = 0
PTRACE_GETREGSET, PTRACE_SETREGSET = 0x4204, 0x4205
NT_X86_XSTATE = 0x202
SYS_PTRACE = 101
LARGEST = 1 << 16

# The area's parts that are the same on every processor (Intel SDM volume 1, section 13.4).
XMM = slice(160, 416)
ENABLED = slice(464, 472)  # Filled in by Linux: the components that the system has enabled.
IN_USE = slice(512, 520)
YMM_HIGH = slice(576, 832)
SSE, AVX = 1 << 1, 1 << 2


class Iovec(ctypes.Structure):
    _fields_ = [("base", ctypes.c_void_p), ("length", ctypes.c_size_t)]


libc = ctypes.CDLL(None, use_errno=True)
libc.ptrace.argtypes = [ctypes.c_long, ctypes.c_int, ctypes.c_void_p, ctypes.c_void_p]
libc.ptrace.restype = ctypes.c_long
libc.syscall.argtypes = [ctypes.c_long, *libc.ptrace.argtypes]
libc.syscall.restype = ctypes.c_long


def ptrace(request, pid, address=None, data=None, call=libc.ptrace):
    """Calls ptrace: the preload library's, if the program was started with one."""
    if call(request, pid, address, data) == -1:
        code = ctypes.get_errno()
        raise OSError(code, f"ptrace: {os.strerror(code)}")


def system_call(*arguments):
    """The kernel's ptrace, past any library."""
    return libc.syscall(SYS_PTRACE, *arguments)


def stopped_child():
    """A child that waits to be told to go on, and then ends."""
    pid = os.fork()
    if pid == 0:
        try:
            ptrace(PTRACE_TRACEME, 0)
        except OSError:
            os._exit(1)
        os.kill(os.getpid(), signal.SIGSTOP)
        os._exit(0)
    _, status = os.waitpid(pid, 0)
    if not os.WIFSTOPPED(status):
        raise OSError(1, "ptrace: a child may not be traced")
    return pid


def read(pid):
    """The whole area."""
    room = ctypes.create_string_buffer(LARGEST)
    io = Iovec(ctypes.addressof(room), len(room))
    ptrace(PTRACE_GETREGSET, pid, NT_X86_XSTATE, ctypes.addressof(io))
    return bytearray(room.raw[: io.length])


def write(pid, data, call=libc.ptrace):
    """Sets the area to `data`."""
    room = ctypes.create_string_buffer(bytes(data), len(data))
    io = Iovec(ctypes.addressof(room), len(data))
    ptrace(PTRACE_SETREGSET, pid, NT_X86_XSTATE, ctypes.addressof(io), call)


def pattern(start, length):
    """Bytes that are never zero and differ from one place to the next."""
    return bytes((start + at) % 255 + 1 for at in range(length))


def bits(area, where):
    """A bitmap of the area as a number."""
    return int.from_bytes(area[where], "little")


def set_first(pid, count):
    """Sets the first `count` bytes, and returns what is changed by it and what is not."""
    before = read(pid)
    if not bits(before, ENABLED) & AVX:
        raise OSError(95, "the processor has no AVX")
    before[YMM_HIGH] = pattern(7, 256)
    before[IN_USE] = (bits(before, IN_USE) | SSE | AVX).to_bytes(8, "little")
    write(pid, before, system_call)
    before = read(pid)
    given = before[:]
    given[XMM] = pattern(100, 256)
    given[YMM_HIGH] = pattern(200, 256)
    reached = AVX if count >= YMM_HIGH.stop else 0
    given[IN_USE] = (1 | SSE | reached).to_bytes(8, "little")
    try:
        write(pid, given[:count])
    except OSError as error:
        return {"area": len(before), "errno": error.errno}
    after = read(pid)
    kept = YMM_HIGH.stop if reached else YMM_HIGH.start
    return {
        "area": len(before),
        "errno": 0,
        "xmm_set": after[XMM] == given[XMM],
        "ymm_high_set": after[YMM_HIGH] == given[YMM_HIGH],
        "ymm_high_kept": after[YMM_HIGH] == before[YMM_HIGH],
        "rest_kept": after[kept:] == before[kept:],
        "in_use_before": bits(before, IN_USE),
        "in_use_after": bits(after, IN_USE),
    }


def main(words):
    pid = stopped_child()
    try:
        if words == ["area"]:
            print(len(read(pid)))
        elif len(words) == 2 and words[0] == "set":
            print(json.dumps(set_first(pid, int(words[1]))))
        else:
            sys.exit(__doc__)
    finally:
        os.kill(pid, signal.SIGKILL)
        os.waitpid(pid, 0)


if __name__ == "__main__":
    try:
        main(sys.argv[1:])
    except OSError as error:
        sys.exit(error.strerror)
