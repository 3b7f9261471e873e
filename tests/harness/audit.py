"""Records of the audit log, read as strictly as docs/audit.md has them."""

import json
import re
import time

PART = re.compile(r'([a-z-]+)=("(?:[^"\\]|\\.)*"|[A-Za-z0-9-]+)(?: |$)')


def parts(line):
    """The parts of a record, after the strict grammar that docs/audit.md has."""
    time_, word, rest = line.split(" ", 2)
    assert re.fullmatch(r"\d{4}-\d\d-\d\dT\d\d:\d\d:\d\d\.\d{6}Z", time_) and word == "hitpath-audit", line
    found, at = {}, 0
    while at < len(rest):
        match = PART.match(rest, at)
        assert match, f"at {at}: {rest}"
        name, value = match.groups()
        assert name not in found, line
        found[name] = json.loads(value) if value.startswith('"') else int(value) if value.isdigit() else value
        at = match.end()
    return found


def records(path, **wanted):
    """The records of a file in which these parts are so. One that is begun anew may not be there for a moment."""
    lines = path.read_text().splitlines() if path.exists() else []
    return [record for record in map(parts, lines) if all(record.get(name) == wanted[name] for name in wanted)]


def wait_for(path, count=1, **wanted):
    """Waits until there are so many of these records. Returns them."""
    end = time.monotonic() + 10
    while len(found := records(path, **wanted)) < count:
        assert time.monotonic() < end, f"{wanted}: {found}\n{path.exists() and path.read_text()[-4000:]}"
        time.sleep(0.05)
    return found
