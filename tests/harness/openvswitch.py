"""Open vSwitch from Debian, in user space: with ports that lead nowhere, for what its tables decide; or
between two wires, as `harness.wires` has hitpath between two."""

import pathlib
import re
import shutil
import signal
import subprocess
import time

from harness.failure import CommandFailed
from harness.needs import need, need_tun
from harness.wires import FAR, Ends

SCHEMA = pathlib.Path("/usr/share/openvswitch/vswitch.ovsschema")


def need_openvswitch():
    """Skips, or fails in CI, where Open vSwitch is not installed."""
    programs = ["ovsdb-tool", "ovsdb-server", "ovs-vswitchd", "ovs-vsctl", "ovs-ofctl", "ovs-appctl"]
    missing = [name for name in programs if not shutil.which(name)]
    need(not missing, "the Debian package openvswitch-switch")


class OpenVSwitch:
    """A database, a switch and a bridge with dummy ports 1 to `ports`, in a directory. With `inside`, it has
    these interfaces of a network namespace as ports instead, and real packets."""

    def __init__(self, directory, ports=4, inside=None, interfaces=()):
        # Paths of Unix sockets are short.
        self.directory = pathlib.Path(directory)
        self.database = self.directory / "db"
        self.control = self.directory / "ctl"
        self.bridge = f"unix:{self.directory}/br0.mgmt"
        self.ports = ports
        self.interfaces = list(interfaces)
        self._prefix = ["ip", "netns", "exec", inside.name] if inside else []
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
        dummy = [] if self.interfaces else ["--enable-dummy=override"]
        self._spawn("ovs-vswitchd", f"unix:{self.database}", *dummy, "--disable-system", f"--unixctl={self.control}")
        self._await(self.control)
        kind = "netdev" if self.interfaces else "dummy"
        words = ["add-br", "br0", "--", "set", "bridge", "br0", f"datapath_type={kind}", "fail-mode=secure",
                 "protocols=OpenFlow10,OpenFlow13"]
        for port in self.interfaces:
            words += ["--", "add-port", "br0", port]
        for port in range(1, self.ports + 1 if dummy else 1):
            words += ["--", "add-port", "br0", f"p{port}", "--",
                      "set", "interface", f"p{port}", "type=dummy", f"ofport_request={port}"]
        self.run("ovs-vsctl", f"--db=unix:{self.database}", *words)
        if self.interfaces:
            # Smaller fragments than 1,200 bytes are dropped otherwise.
            self.run("ovs-appctl", "-t", self.control, "dpctl/ipf-set-min-frag", "v4", "400")
        # Ports are those of the first fragment, and not of none.
        self.run("ovs-ofctl", "set-frags", self.bridge, "nx-match")

    def _spawn(self, *words):
        log = open(self.directory / f"{words[0]}.log", "wb")
        with log:
            self.processes.append(subprocess.Popen([*self._prefix, *words], stdout=log, stderr=log, env=self.environment))

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

    def dump(self):
        """The flows with what they have counted."""
        # Otherwise they are counted once in half a second.
        self.run("ovs-appctl", "-t", self.control, "revalidator/purge")
        return self.run("ovs-ofctl", "-O", "OpenFlow13", "--names", "dump-flows", self.bridge)

    def connections(self):
        """The connections, as Open vSwitch prints them."""
        return self.run("ovs-appctl", "-t", self.control, "dpctl/dump-conntrack").splitlines()

    def flush(self):
        """Ends all connections."""
        self.run("ovs-appctl", "-t", self.control, "dpctl/flush-conntrack")


class Switched(Ends):
    """Open vSwitch between two wires, as a context manager."""

    def __init__(self, topology, directory):
        need_tun()
        middle = self._attach(topology, "ovs", "ovs-")
        for side in FAR:
            middle.silence(side)
        self.switch = OpenVSwitch(directory, inside=middle, interfaces=FAR)

    def __enter__(self):
        self.switch.__enter__()
        return self

    def __exit__(self, *error):
        try:
            self.switch.__exit__(*error)
        finally:
            self._close()
