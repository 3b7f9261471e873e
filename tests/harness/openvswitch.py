"""Open vSwitch from Debian, in user space, with ports that lead nowhere: what its tables decide."""

import pathlib
import re
import shutil
import signal
import subprocess
import time

from harness.failure import CommandFailed
from harness.needs import need

SCHEMA = pathlib.Path("/usr/share/openvswitch/vswitch.ovsschema")


def need_openvswitch():
    """Skips, or fails in CI, where Open vSwitch is not installed."""
    programs = ["ovsdb-tool", "ovsdb-server", "ovs-vswitchd", "ovs-vsctl", "ovs-ofctl", "ovs-appctl"]
    missing = [name for name in programs if not shutil.which(name)]
    need(not missing, "the Debian package openvswitch-switch")


class OpenVSwitch:
    """A database, a switch and a bridge with dummy ports 1 to `ports`, in a directory."""

    def __init__(self, directory, ports=4):
        # Paths of Unix sockets are short.
        self.directory = pathlib.Path(directory)
        self.database = self.directory / "db"
        self.control = self.directory / "ctl"
        self.bridge = f"unix:{self.directory}/br0.mgmt"
        self.ports = ports
        self.processes = []
        self.environment = {
            "PATH": "/usr/sbin:/usr/bin:/sbin:/bin",
            **{f"OVS_{name}DIR": str(self.directory) for name in ["RUN", "LOG", "DB", "SYSCONF"]},
        }

    def __enter__(self):
        try:
            self._start()
        except BaseException:
            self.__exit__()
            raise
        return self

    def __exit__(self, *_):
        for process in reversed(self.processes):
            process.send_signal(signal.SIGTERM)
            try:
                process.wait(10)
            except subprocess.TimeoutExpired:
                process.kill()
                process.wait()

    def _start(self):
        self.run("ovsdb-tool", "create", f"{self.directory}/conf.db", SCHEMA)
        self._spawn("ovsdb-server", f"{self.directory}/conf.db", f"--remote=punix:{self.database}",
                    f"--unixctl={self.directory}/dbctl")
        self._await(self.database)
        self.run("ovs-vsctl", f"--db=unix:{self.database}", "--no-wait", "init")
        self._spawn("ovs-vswitchd", f"unix:{self.database}", "--enable-dummy=override", "--disable-system",
                    f"--unixctl={self.control}")
        self._await(self.control)
        words = ["add-br", "br0", "--", "set", "bridge", "br0", "datapath_type=dummy", "fail-mode=secure",
                 "protocols=OpenFlow10,OpenFlow13"]
        for port in range(1, self.ports + 1):
            words += ["--", "add-port", "br0", f"p{port}", "--",
                      "set", "interface", f"p{port}", "type=dummy", f"ofport_request={port}"]
        self.run("ovs-vsctl", f"--db=unix:{self.database}", *words)
        # Ports are those of the first fragment, and not of none.
        self.run("ovs-ofctl", "set-frags", self.bridge, "nx-match")

    def _spawn(self, *words):
        log = open(self.directory / f"{words[0]}.log", "wb")
        with log:
            self.processes.append(subprocess.Popen(words, stdout=log, stderr=log, env=self.environment))

    def _await(self, path):
        deadline = time.monotonic() + 20
        while not path.exists():
            if time.monotonic() > deadline:
                raise CommandFailed(f"{path} did not appear")
            time.sleep(0.02)

    def run(self, *words, given=None, check=True):
        """What a program prints."""
        done = subprocess.run([str(word) for word in words], input=given, capture_output=True, text=True,
                              timeout=60, env=self.environment)
        if check and done.returncode:
            raise CommandFailed(f"{words}: {done.stdout}{done.stderr}")
        return done.stdout + done.stderr

    def replace_flows(self, flows):
        """Makes the flows these."""
        self.run("ovs-ofctl", "del-flows", self.bridge)
        self.run("ovs-ofctl", "-O", "OpenFlow13", "add-flows", self.bridge, "-", given="\n".join(flows) + "\n")

    def dump_flows(self):
        """The flows, as `priority=...,MATCH` with their tables, without actions."""
        lines = self.run("ovs-ofctl", "-O", "OpenFlow13", "--no-stats", "--no-names", "dump-flows", self.bridge).splitlines()
        return sorted(line.strip().split(" actions=")[0] for line in lines if "actions=" in line)

    def trace(self, packet):
        """The ports that a packet leaves by, sorted, and what the packet is like in the end."""
        text = self.run("ovs-appctl", "-t", self.control, "ofproto/trace", "br0", packet)
        ports = []
        for actions in re.findall(r"^Datapath actions: (.*)$", text, re.MULTILINE):
            # What is inside of parentheses is not a port.
            while "(" in actions:
                actions, count = re.subn(r"\w+\([^()]*\)", "", actions)
                assert count, text
            ports += [int(word) for word in actions.split(",") if word.strip().isdigit()]
        final = re.search(r"^Final flow: (.*)$", text, re.MULTILINE)
        assert final, text
        return sorted(ports), final[1], text
