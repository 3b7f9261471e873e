"""Network namespaces with links between them, which never outlive the test run."""

import contextlib
import ctypes
import itertools
import os
import signal
import socket
import subprocess

from harness import ping
from harness.failure import CommandFailed

PREFIX = "hitpath-test"
CLONE_NEWNET = 0x40000000
ETH_P_ALL = 0x0003
SO_RCVBUFFORCE = 33

_numbers = itertools.count(1)
_libc = ctypes.CDLL(None, use_errno=True)


def run(command, check=True, timeout=30, stdin=None, env=None):
    """Runs `command` to its end and returns what it said, as text."""
    try:
        done = subprocess.run(
            [str(word) for word in command],
            input=stdin,
            stdin=None if stdin is not None else subprocess.DEVNULL,
            capture_output=True,
            text=True,
            errors="replace",
            timeout=timeout,
            env=env,
        )
    except subprocess.TimeoutExpired as late:
        raise CommandFailed(
            f"{' '.join(map(str, command))}: no end after {timeout} s\n{late.stdout}\n{late.stderr}"
        ) from None
    if check and done.returncode != 0:
        raise CommandFailed(f"{' '.join(map(str, command))}: exit code {done.returncode}\n{done.stdout}{done.stderr}")
    return done


class Namespace:
    """One network namespace: a host, or the place where a gateway runs."""

    def __init__(self, label):
        self.label = label
        self.name = f"{PREFIX}-{os.getpid()}-{next(_numbers)}-{label}"
        self._started = []
        run(["ip", "netns", "add", self.name])
        self.ip("link", "set", "lo", "up")
        # Tests must not wait for duplicate address detection, nor meet the kernel's own router solicitations.
        self.sysctl("net.ipv6.conf.default.accept_dad", 0)
        self.sysctl("net.ipv6.conf.all.accept_dad", 0)
        self.sysctl("net.ipv6.conf.default.router_solicitations", 0)

    def ip(self, *words, check=True):
        """Runs iproute2's `ip` for this namespace."""
        return run(["ip", "-n", self.name, *words], check=check)

    def run(self, *command, check=True, timeout=30, stdin=None, env=None):
        """Runs a command inside."""
        return run(["ip", "netns", "exec", self.name, *command], check=check, timeout=timeout, stdin=stdin, env=env)

    def start(self, *command, **options):
        """Starts a program inside; it is ended with the namespace at the latest."""
        options = {
            "stdin": subprocess.DEVNULL,
            "stdout": subprocess.PIPE,
            "stderr": subprocess.PIPE,
            "text": True,
        } | options
        process = subprocess.Popen(["ip", "netns", "exec", self.name, *map(str, command)], **options)
        self._started.append(process)
        return process

    def sysctl(self, name, value):
        """Sets a kernel setting of this namespace."""
        self.run("sysctl", "-qw", f"{name}={value}")

    def addresses(self, interface, *addresses):
        """Gives `interface` its addresses and brings it up."""
        for address in addresses:
            self.ip("addr", "replace", address, "dev", interface, *(["nodad"] if ":" in address else []))
        self.ip("link", "set", interface, "up")

    def tap(self, interface):
        """A TAP interface, up, which the kernel itself has no address on."""
        self.ip("tuntap", "add", interface, "mode", "tap")
        self.silence(interface)
        self.ip("link", "set", interface, "up")

    def silence(self, interface):
        """Keeps the kernel from speaking on an interface that belongs to a gateway."""
        self.sysctl(f"net.ipv6.conf.{interface}.disable_ipv6", 1)

    def mac(self, interface):
        """The hardware address of `interface`."""
        return self.run("cat", f"/sys/class/net/{interface}/address").stdout.strip()

    @contextlib.contextmanager
    def entered(self):
        """The calling thread is inside: sockets that it opens now stay in this namespace."""
        home = os.open("/proc/thread-self/ns/net", os.O_RDONLY)
        there = os.open(f"/run/netns/{self.name}", os.O_RDONLY)
        try:
            _setns(there)
            yield
        finally:
            _setns(home)
            os.close(home)
            os.close(there)

    def packet_socket(self, interface):
        """A raw socket that sends and receives whole frames on `interface`."""
        with self.entered():
            opened = socket.socket(socket.AF_PACKET, socket.SOCK_RAW, socket.htons(ETH_P_ALL))
            opened.setsockopt(socket.SOL_SOCKET, SO_RCVBUFFORCE, 4 << 20)
            opened.bind((interface, ETH_P_ALL))
        return opened

    def ping(self, target, count=3, size=56, source=None, timeout=10, check=True, options=()):
        """Pings `target` and demands every answer, unless `check` is off."""
        words = ping.command(target, count, size, source, timeout, options)
        done = self.run(*words, check=check, timeout=timeout + 5)
        if check:
            ping.demand_all(done.stdout, count)
        return done

    def ping_exactly(self, target, count, source=None):
        """Sends exactly `count` pings, and demands every answer. Nothing is then on its way."""
        for _ in range(count):
            ping.demand_all(self.run(*ping.once(target, source)).stdout, 1)

    def remove(self):
        """Ends what runs inside, and removes the namespace."""
        for process in self._started:
            if process.poll() is None:
                process.kill()
                process.wait()
            for stream in (process.stdout, process.stderr):
                if stream:
                    stream.close()
        remove_named(self.name)


class Topology:
    """Namespaces and the links between them, as a context manager that removes all of it at the end."""

    def __init__(self):
        self._spaces = {}

    def __enter__(self):
        return self

    def __exit__(self, *_):
        self.remove()

    def __getitem__(self, label):
        return self._spaces[label]

    def namespace(self, label):
        """A new namespace under this label."""
        self._spaces[label] = Namespace(label)
        return self._spaces[label]

    def link(self, left, left_interface, right, right_interface, mtu=1500):
        """A veth pair between two namespaces, both ends up."""
        run(
            [
                "ip",
                "link",
                "add",
                left_interface,
                "mtu",
                mtu,
                "netns",
                left.name,
                "type",
                "veth",
                "peer",
                "name",
                right_interface,
                "mtu",
                mtu,
                "netns",
                right.name,
            ]
        )
        left.ip("link", "set", left_interface, "up")
        right.ip("link", "set", right_interface, "up")

    def remove(self):
        """Removes every namespace, and the links with them."""
        for space in self._spaces.values():
            space.remove()
        self._spaces.clear()


def remove_leftovers():
    """Removes the namespaces of earlier test runs that were killed before they could."""
    for line in run(["ip", "netns", "list"]).stdout.splitlines():
        name = line.split()[0]
        if name.startswith(f"{PREFIX}-") and not os.path.exists(f"/proc/{name.split('-')[2]}"):
            remove_named(name)


def remove_named(name):
    """Ends what runs in the namespace of this name, and removes it."""
    for pid in run(["ip", "netns", "pids", name], check=False).stdout.split():
        with contextlib.suppress(ProcessLookupError):
            os.kill(int(pid), signal.SIGKILL)
    run(["ip", "netns", "del", name], check=False)


def _setns(fd):
    if _libc.setns(fd, CLONE_NEWNET) != 0:
        raise OSError(ctypes.get_errno(), "setns")
