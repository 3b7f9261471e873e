"""What tests need of a machine. A test that cannot run says why."""

import errno
import os

import pytest

from harness.netns import run


def need(condition, reason):
    """Skips a test that cannot run here. Fails it in CI, where nothing may be missing."""
    if condition:
        return
    if os.environ.get("CI"):
        pytest.fail(f"missing: {reason}", pytrace=False)
    pytest.skip(reason)


def need_namespaces():
    """Needs the right to make network namespaces, and IPv6 in them."""
    need(os.geteuid() == 0, "needs root, for network namespaces")
    name = f"hitpath-test-{os.getpid()}-0-try"
    made = run(["ip", "netns", "add", name], check=False)
    run(["ip", "netns", "del", name], check=False)
    need(
        made.returncode == 0,
        "needs network namespaces (in a container: CAP_SYS_ADMIN and CAP_NET_ADMIN); "
        f"ip netns add: {last_line(made.stderr)}",
    )
    need(os.path.exists("/proc/net/if_inet6"), "needs IPv6 in the kernel (not ipv6.disable=1)")


def need_tun():
    """Needs TAP interfaces."""
    try:
        os.close(os.open("/dev/net/tun", os.O_RDWR))
        return
    except OSError as error:
        why = error
    advice = "in a container: --device /dev/net/tun"
    if why.errno in (errno.ENOENT, errno.ENODEV):
        advice = "`modprobe tun`, or `mkdir -p /dev/net && mknod /dev/net/tun c 10 200`"
    need(False, f"needs /dev/net/tun, for TAP interfaces: {why.strerror}; {advice}")


def last_line(said):
    """The last line of what a command said."""
    lines = said.strip().splitlines()
    return lines[-1] if lines else "no message"
