"""Fixtures of the end-to-end tests."""

import os
import signal
import sys

import pytest

sys.dont_write_bytecode = True

from harness import guest as guest_kernel
from harness import transfers
from harness.netns import Topology, remove_leftovers


def pytest_configure(config):
    """A run that is told to end cleans up like one that is interrupted."""
    signal.signal(signal.SIGTERM, signal.default_int_handler)


def pytest_terminal_summary(terminalreporter):
    """Says what was asked for twice, for the summary of ./test."""
    for line in transfers.sent_again:
        terminalreporter.write_line(f"NOTE {line}")


def need(condition, reason):
    """Skips a test whose ground is missing on a user's machine; in CI, where nothing may be missing, fails it."""
    if condition:
        return
    if os.environ.get("CI"):
        pytest.fail(f"missing: {reason}")
    pytest.skip(reason)


@pytest.fixture(scope="session")
def root():
    """The right to make network namespaces."""
    need(os.geteuid() == 0, "needs root, for network namespaces")
    remove_leftovers()


@pytest.fixture
def topology(root):
    """Namespaces and links for one test."""
    with Topology() as made:
        yield made


@pytest.fixture(scope="session")
def guest_world(root):
    """The guest kernel, booted once: `(guest, gw, lan)`, with gw's `wan` leading to the guest's `vec0` and gw's `lan` to lan.

    For tests with two VRFs, gw's `red-wan` and `blue-wan` lead to the guest's `vec1` and `vec2`.
    """
    missing = guest_kernel.fetch()
    need(missing is None, f"guest kernel: {missing}")
    with Topology() as made:
        gw, lan = made.namespace("gw"), made.namespace("lan")
        taps = ("wan", "red-wan", "blue-wan")
        for tap in taps:
            gw.tap(tap)
        made.link(gw, "lan", lan, "eth0")
        gw.silence("lan")
        booted = guest_kernel.Guest(gw, *taps)
        yield booted, gw, lan
        booted.stop()
