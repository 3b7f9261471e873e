"""Fixtures of the end-to-end tests."""

import signal
import sys

import pytest

sys.dont_write_bytecode = True

from harness import guest as guest_kernel
from harness import transfers
from harness.failure import CommandFailed
from harness.needs import need, need_namespaces, need_tun
from harness.netns import Topology, remove_leftovers


notes_of_others = []
"""Notes of the processes that ran tests for this one."""


def pytest_configure(config):
    """A run that is told to end cleans up like one that is interrupted."""
    signal.signal(signal.SIGTERM, signal.default_int_handler)


@pytest.hookimpl(tryfirst=True)
def pytest_runtest_setup(item):
    """One test fails for a guest that does not start or ends. The others are not tried."""
    if guest_kernel.Guest.lost and item.get_closest_marker("guest"):
        pytest.skip(f"{guest_kernel.Guest.lost}: see the first failure")


def notes():
    """How the guest was run and what was asked for twice, as sentences."""
    return ([guest_kernel.Guest.how] if guest_kernel.Guest.how else []) + transfers.sent_again


def pytest_sessionfinish(session):
    """A process of several hands its notes to the one that prints the summary."""
    if hasattr(session.config, "workeroutput"):
        session.config.workeroutput["notes"] = notes()


@pytest.hookimpl(optionalhook=True)
def pytest_testnodedown(node):
    """Takes the notes of one process of several. One that crashed has none."""
    notes_of_others.extend(getattr(node, "workeroutput", {}).get("notes", []))


def pytest_terminal_summary(terminalreporter):
    """Says the notes, for the summary of ./test."""
    for line in notes() + notes_of_others:
        terminalreporter.write_line(f"NOTE {line}")


@pytest.fixture(scope="session")
def root():
    """The right to make network namespaces."""
    need_namespaces()
    remove_leftovers()


@pytest.fixture(scope="session")
def tun():
    """TAP interfaces."""
    need_tun()


@pytest.fixture
def topology(root):
    """Namespaces and links for one test."""
    with Topology() as made:
        yield made


@pytest.fixture(scope="session")
def guest_world(root, tun):
    """The guest kernel, booted once: `(guest, gw, lan)`.

    gw's `wan` leads to the guest's `vec0`, and gw's `lan` to lan.
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
        try:
            booted = guest_kernel.Guest(gw, *taps)
        except CommandFailed:
            guest_kernel.Guest.lost = guest_kernel.Guest.lost or "the guest could not be started"
            raise
        yield booted, gw, lan
        booted.stop()
