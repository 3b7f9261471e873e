"""Pings of which every single one must be answered, once."""

import re

from harness.failure import CommandFailed


def command(target, count, size=56, source=None, deadline=10, options=(), interval=0.05):
    """The words of a `ping` that ends with the `count`th answer, or in `deadline` seconds.

    Until then it goes on sending, so that a machine that is slow does not look like one that loses packets.
    """
    words = ["ping", "-n", "-c", count, "-i", interval, "-W", "2", "-w", deadline, "-s", size, *options]
    return [*words, *(["-I", source] if source else []), target]


def demand_all(said, count):
    """Demands that of what `command` has sent the first `count` were answered, and nothing twice.

    Were one lost, a later one would have been counted in its place.
    """
    answered = [int(number) for number in re.findall(r"bytes from .*icmp_seq=(\d+)", said)]
    if not set(answered) >= set(range(1, count + 1)) or len(answered) != len(set(answered)):
        raise CommandFailed(f"ping: not the first {count} were answered, each once:\n{said}")
