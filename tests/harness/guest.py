"""A Linux kernel of its own, with ESP, as a peer: user-mode-linux, a kernel that runs as an ordinary process."""

import contextlib
import json
import os
import pathlib
import re
import select
import signal
import subprocess
import tempfile
import threading
import time

from harness import ping, xstate
from harness.failure import CommandFailed

GUEST = pathlib.Path(__file__).resolve().parent.parent / "guest"
CACHE = GUEST.parent.parent / ".cache" / "guest"
TRAFFIC = GUEST / "traffic.py"

# A terminal takes this much in one piece; longer requests may lose bytes.
LONGEST_REQUEST = 3000

KERNEL = "HITPATH_TEST_GUEST_KERNEL"
"""Environment variable that names another user-mode-linux than the one that is fetched."""

ADVICE = {
    r"set fp regs failed": (
        "this machine's kernel takes only a whole XSAVE area, and the guest's kernel hands over "
        f"less; set {xstate.VARIABLE}=complete"
    ),
    r"ptrace.*(errno = 1\b|not permitted)|(?i:checking).*ptrace.*failed": (
        "user-mode-linux needs ptrace: `sysctl kernel.yama.ptrace_scope=1`, "
        "and in a container --cap-add SYS_PTRACE"
    ),
    r"PROT_EXEC|No space left|open_tempfile|create_tmp_file": (
        "user-mode-linux maps 192 MiB from a file in the temporary folder: "
        "set TMPDIR to a folder with that much room, on a file system that is not mounted noexec"
    ),
}
"""What to do, by a pattern of what the guest's kernel says."""


def fetch():
    """Makes sure that the guest's kernel is there. Returns why it is not, or None."""
    if (CACHE / "ready").exists():
        return None
    if os.environ.get(KERNEL):
        return None
    done = subprocess.run([GUEST / "fetch"], capture_output=True, text=True)
    return None if done.returncode == 0 else done.stderr.strip().splitlines()[-1]


class Place:
    """Where commands run in the guest. `interface` leads to the gateway."""

    interface = "vec0"

    def batch(self, lines):
        """Runs many commands of `ip`, each a list of words, in as few steps as the terminal allows."""
        text = ""
        for words in lines:
            line = " ".join(str(word) or '""' for word in words) + "\n"
            if len(text) + len(line) > LONGEST_REQUEST - 200:
                self.run("ip", "-batch", "-", stdin=text)
                text = ""
            text += line
        self.run("ip", "-batch", "-", stdin=text)

    def ping(self, target, count=3, size=56, source=None, timeout=10, check=True, options=()):
        """Pings from the guest and demands every answer, unless `check` is off."""
        words = ping.command(target, count, size, source, timeout, options)
        done = self.run(*words, check=check, timeout=timeout + 5)
        if check:
            ping.demand_all(done.stdout, count)
        return done

    def ping_exactly(self, target, count, source=None):
        """Sends exactly `count` pings, and demands every answer. Nothing is then on its way."""
        for _ in range(count):
            ping.demand_all(self.run(*ping.once(target, source)).stdout, 1)

    def clear(self):
        """Forgets SAs, policies, addresses and routes of the test before."""
        self.batch(
            [
                ["xfrm", "policy", "flush"],
                ["xfrm", "state", "flush"],
                ["addr", "flush", "dev", self.interface],
                ["link", "set", self.interface, "down"],
                ["addr", "flush", "dev", "lo", "scope", "global"],
                ["link", "set", self.interface, "up"],
            ]
        )


class Guest(Place):
    """A running guest. The TAP interfaces `taps` of `namespace` are its `vec0`, `vec1` and so on."""

    lost = None
    """Why no test can use the guest any more, in a few words."""

    how = None
    """How it was started."""

    def __init__(self, namespace, *taps):
        to_guest, self._requests = os.pipe()
        self._answers, from_guest = os.pipe()
        self._pending = b""
        self._stopping = threading.Event()
        self._waking = threading.Thread(target=self._wake, daemon=True)
        self._log = tempfile.TemporaryFile("w+", errors="replace")
        self._home = tempfile.TemporaryDirectory(prefix="hitpath-guest-")
        kernel = [os.environ.get(KERNEL) or CACHE / "linux.uml"]
        Guest.how = "guest: user-mode-linux, as it is"
        if completed := xstate.must_be_completed():
            kernel = ["env", f"LD_PRELOAD={xstate.library()}", *kernel]
            Guest.how = "guest: user-mode-linux, with the XSAVE area completed"
        self._process = namespace.start(
            *kernel,
            "mem=192M",
            f"uml_dir={self._home.name}",
            "umid=guest",
            "root=/dev/root",
            "rootfstype=hostfs",
            "rootflags=/",
            "ro",
            "quiet",
            "panic=-1",
            f"init={GUEST / 'init.py'}",
            f"modules={CACHE / 'root'}",
            "con=null",
            "con0=null,fd:1",
            f"con1=fd:{to_guest},fd:{from_guest}",
            *(f"vec{at}:transport=tap,ifname={tap},depth=128,gro=1" for at, tap in enumerate(taps)),
            pass_fds=(to_guest, from_guest),
            stdout=self._log,
            stderr=subprocess.STDOUT,
            env=os.environ | {"TMPDIR": self._home.name},
            start_new_session=True,
        )
        os.close(to_guest)
        os.close(from_guest)
        try:
            self._read_answer(120, "the guest did not start")
            self._waking.start()
            if completed:
                self._note_area()
        except CommandFailed:
            self.stop()
            raise

    def run(self, *command, check=True, timeout=30, stdin=None):
        """Runs a command in the guest; answers like `subprocess.run`."""
        words = [str(word) for word in command]
        answer = self._ask({"run": words, "input": stdin, "timeout": timeout}, timeout + 10)
        return self._done(words, answer, check)

    def start(self, *command):
        """Starts a program that runs beside the next commands."""
        words = [str(word) for word in command]
        return GuestJob(self, words, self._ask({"start": words}, 10)["job"])

    @contextlib.contextmanager
    def namespace(self, name, interface):
        """A network namespace in the guest that `interface` is in, while the block runs."""
        self.run("ip", "netns", "add", name)
        try:
            self.run("ip", "link", "set", interface, "netns", name)
            yield GuestNamespace(self, name, interface)
        finally:
            self.run("ip", "netns", "delete", name)

    def counters(self):
        """What the guest's kernel has counted: its interfaces, its SAs, its errors."""
        if Guest.lost:
            return f"{Guest.lost}\n"
        files = ("/proc/net/xfrm_stat", "/proc/net/snmp", "/proc/net/snmp6")
        commands = (["ip", "-s", "link"], ["ip", "-s", "xfrm", "state"], ["cat", *files])
        return "".join(self.run(*words).stdout for words in commands)

    def log(self):
        """What the guest's kernel has printed so far."""
        self._log.seek(0)
        return self._log.read()

    def _wake(self):
        """Sends an empty line ten times a second.

        The guest's kernel looks at its interfaces when a signal says that something has come by any of its
        files. Now and then it misses the signal of a packet, which then waits for the next one.
        """
        while not self._stopping.wait(0.1):
            try:
                os.write(self._requests, b"\n")
            except BrokenPipeError:
                return

    def stop(self):
        """Ends the guest: every process that it consists of."""
        self._stopping.set()
        try:
            os.killpg(self._process.pid, signal.SIGKILL)
        except ProcessLookupError:
            pass
        self._process.wait()
        if self._waking.is_alive():
            self._waking.join()
        os.close(self._requests)
        os.close(self._answers)
        self._log.close()
        self._home.cleanup()

    def _note_area(self):
        """Demands that the library was at work, and notes on what."""
        area = re.search(r"xstate: (\d+) bytes of (\d+) given", self.log())
        if not area:
            raise self._failed("the guest runs without the library that completes the XSAVE area")
        Guest.how += f" ({area[1]} bytes of {area[2]} given)"

    def _ask(self, request, timeout):
        line = json.dumps(request).encode() + b"\n"
        assert len(line) <= LONGEST_REQUEST, "too long a request for the guest's terminal"
        try:
            os.write(self._requests, line)
        except BrokenPipeError:
            raise self._failed("the guest has ended") from None
        return self._read_answer(timeout, "the guest does not answer")

    def _read_answer(self, timeout, otherwise):
        """Reads one line. The guest is lost if none comes: the next would be taken for it."""
        end = time.monotonic() + timeout
        while b"\n" not in self._pending:
            ended = self._process.poll() is not None
            # A process of the guest may outlive its kernel and keep the pipe open.
            ready, _, _ = select.select([self._answers], [], [], 0 if ended else 0.2)
            piece = os.read(self._answers, 1 << 16) if ready else b""
            if not piece and (ready or ended or time.monotonic() > end):
                raise self._failed(otherwise)
            self._pending += piece
        line, self._pending = self._pending.split(b"\n", 1)
        return json.loads(line)

    def _failed(self, what):
        """Remembers that the guest is lost. Returns the failure, with what to do."""
        Guest.lost = what
        with contextlib.suppress(subprocess.TimeoutExpired):
            self._process.wait(1)
        log = self.log()
        last = "".join(f"  {line}\n" for line in log.splitlines()[-20:]) or "  nothing\n"
        advice = [todo for said, todo in ADVICE.items() if re.search(said, log)]
        advice = advice or ["docs/testing.md says what the guest needs"]
        code = self._process.returncode
        state = "it still runs" if code is None else f"its exit code is {code}"
        todo = "\n".join(f"What to do: {line}." for line in advice)
        return CommandFailed(f"{what}; {state}. Its kernel said last:\n{last}{todo}")

    @staticmethod
    def _done(words, answer, check):
        if check and answer["code"] != 0:
            raise CommandFailed(f"guest: {' '.join(words)}: exit code {answer['code']}\n{answer['out']}{answer['err']}")
        return subprocess.CompletedProcess(words, answer["code"], answer["out"], answer["err"])


class GuestNamespace(Place):
    """A network namespace in the guest."""

    def __init__(self, guest, name, interface):
        self.interface = interface
        self._guest, self._inside = guest, ["ip", "netns", "exec", name]
        self.run("ip", "link", "set", "lo", "up")

    def run(self, *command, **options):
        """Runs a command inside."""
        return self._guest.run(*self._inside, *command, **options)

    def start(self, *command):
        """Starts a program inside that runs beside the next commands."""
        return self._guest.start(*self._inside, *command)


class GuestJob:
    """A program that runs in the guest beside other commands."""

    def __init__(self, guest, words, job):
        self._guest, self._words, self._job = guest, words, job

    def finish(self, check=True, timeout=20):
        """Waits for its end."""
        return self._end(False, check, timeout)

    def kill(self):
        """Ends it."""
        return self._end(True, False, 5)

    def _end(self, kill, check, timeout):
        answer = self._guest._ask({"finish": self._job, "kill": kill, "timeout": timeout}, timeout + 10)
        return Guest._done(self._words, answer, check)
