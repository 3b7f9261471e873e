"""What `GET /metrics` returns, read as Prometheus' text format says."""

import pathlib
import re
import subprocess

from harness.needs import need
from harness.netns import run

ROOT = pathlib.Path(__file__).resolve().parent.parent.parent
SAMPLE = re.compile(r'([a-zA-Z_:][a-zA-Z0-9_:]*)(?:\{((?:[a-z_]+="(?:[^"\\]|\\.)*",?)*)\})? (\S+)')
LABEL = re.compile(r'([a-z_]+)="((?:[^"\\]|\\.)*)"')


def ask(socket, *options):
    """The text, by the control socket."""
    return run(["curl", "-sS", "--fail", "--unix-socket", socket, *options, "http://hitpath/metrics"]).stdout


def samples(text):
    """Values by name and labels: `{("hitpath_port_up", (("port", "lan"),)): 1.0}`."""
    values = {}
    for line in text.splitlines():
        if line.startswith("#"):
            continue
        found = SAMPLE.fullmatch(line)
        assert found, f"this is no sample: {line}"
        name, labels, value = found.groups()
        key = (name, tuple(sorted(LABEL.findall(labels or ""))))
        assert key not in values, f"twice: {line}"
        values[key] = float(value)
    return values


def of(values, name, /, **labels):
    """The value of a sample with exactly these labels."""
    return values[name, tuple(sorted((label, str(value)) for label, value in labels.items()))]


def promtool(*words, stdin=None):
    """Runs promtool. Fetches it before if it is not there."""
    return run([fetched("promtool"), *words], check=False, stdin=stdin)


def fetched(program):
    """`promtool` or `prometheus`, which are fetched if they are not there."""
    done = subprocess.run([ROOT / "tests/promtool"], capture_output=True, text=True, timeout=300)
    need(done.returncode == 0, f"needs {program}: {done.stderr.strip()[-200:]}")
    return ROOT / ".cache/promtool" / program
