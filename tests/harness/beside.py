"""What tests have in common that send the same packets through another program and through hitpath."""


def passed(one, side, packet):
    """What comes out of one of them at the other side, as octets of IP packets: of a packet, of octets, or of
    several packets that are sent together."""
    if isinstance(packet, bytes):
        packet = one.frame(side, packet)
    seen = one.frames(side, *packet if isinstance(packet, list) else [packet])
    came = seen.right if side == "left" else seen.left
    return [frame[14:] for frame in came]


def difference(theirs, ours):
    """What differs in what has passed, in words for each of them; nothing if it is the same."""
    if theirs == ours:
        return None
    words = tuple(f"{len(came)} passed" if came else "dropped" for came in (theirs, ours))
    return words if words[0] != words[1] else ("other octets", "other octets")


def written_down(document, heading):
    """The first column of the table of differences under a heading of a document."""
    section = document.read_text().split(f"## {heading}\n", 1)[1].split("\n## ", 1)[0]
    rows = [line.split(" | ") for line in section.splitlines() if line.startswith("| ") and line.count(" | ") == 2]
    return [row[0].removeprefix("| ") for row in rows][2:]
