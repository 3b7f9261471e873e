"""Capture files through the whole gateway, with no root and no clock."""

import dataclasses
import json
import pathlib

from scapy.layers.l2 import Ether
from scapy.utils import rdpcap

from harness.capture import write_pcap
from harness.gateway import binary, named_counts, rows
from harness.netns import run


@dataclasses.dataclass
class Result:
    """What a replay has led to."""

    files: dict
    report: dict
    stderr: str

    def frames(self, port):
        """The frames that left through `port`."""
        return [Ether(bytes(frame)) for frame in rdpcap(str(self.files[port]))]

    @property
    def drops(self):
        """Dropped packets by reason."""
        return named_counts(self.report["drops"])

    @property
    def sa_packets(self):
        """Packets by SPI."""
        return {int(str(sa["spi"]), 0): sa["packets"] for sa in rows(self.report["sas"])}


def replay(directory, config, inputs, outputs, options=(), check=True):
    """Replays `inputs`, by port a list of frames or the path of a capture; `outputs` are the ports to record."""
    directory = pathlib.Path(directory)
    directory.mkdir(exist_ok=True)
    config_path = directory / "gw.toml"
    config_path.write_text(config if isinstance(config, str) else config.render(directory / "hitpath.sock"))
    command = [binary(), "replay", "--config", config_path, "-j", *options]
    for port, frames in inputs.items():
        path = frames
        if isinstance(frames, list):
            path = directory / f"{port}-in.pcap"
            write_pcap(path, frames)
        command += ["--in", f"{port}={path}"]
    files = {port: directory / f"{port}-out.pcap" for port in outputs}
    for port, path in files.items():
        command += ["--out", f"{port}={path}"]
    done = run(command, check=check, timeout=60)
    if not check:
        return done
    return Result(files, json.loads(done.stdout), done.stderr)
