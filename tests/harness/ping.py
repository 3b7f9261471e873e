"""Pings of which every single one must be answered, once."""

import re

from harness.failure import CommandFailed


def command(target, count, size=56, source=None, deadline=10, options=(), interval=0.05):
    """The words of a `ping` that ends with the `count`th answer, or in `deadline` seconds.

    Until then it goes on sending, so that a machine that is slow does not look like one that loses packets.
    It sends more than `count` if answers take longer than `interval`.
    Where packets are counted, use `once`.
    """
    words = ["ping", "-n", "-c", count, "-i", interval, "-W", "2", "-w", deadline, "-s", size, *options]
    return [*words, *(["-I", source] if source else []), target]


def once(target, source=None):
    """The words of a `ping` that sends exactly one packet and waits 10 seconds for its answer.

    With a count above one and no deadline it would wait for the last answer only twice as long as
    for those before.
    """
    return ["ping", "-n", "-c", 1, "-W", 10, *(["-I", source] if source else []), target]


def all_answered(said, count):
    """Whether of what `command` has sent the first `count` were answered, and nothing twice.

    Were one lost, a later one would have been counted in its place. The loss that `ping` tells counts
    those too that were sent because an answer took long.
    """
    answered = [int(number) for number in re.findall(r"bytes from .*icmp_seq=(\d+)", said)]
    return set(answered) >= set(range(1, count + 1)) and len(answered) == len(set(answered))


def demand_all(said, count):
    """Demands `all_answered`."""
    if not all_answered(said, count):
        raise CommandFailed(f"ping: not the first {count} were answered, each once:\n{said}")
