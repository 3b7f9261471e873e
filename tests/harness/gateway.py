"""The program under test: a running gateway, its control client, and replays of captures."""

import json
import os
import pathlib
import signal
import stat
import subprocess
import time

from harness.failure import CommandFailed
from harness.netns import run

ROOT = pathlib.Path(__file__).resolve().parent.parent.parent


def binary():
    """The program: what HITPATH names, or else the newest build."""
    if named := os.environ.get("HITPATH"):
        return named
    target = pathlib.Path(os.environ.get("CARGO_TARGET_DIR", ROOT / "target"))
    built = [path for kind in ("release", "debug") if (path := target / kind / "hitpath").exists()]
    if not built:
        raise CommandFailed("hitpath is not built: cargo build --release")
    return str(max(built, key=lambda path: path.stat().st_mtime))


class Client:
    """`hitpath` as the client of a running gateway."""

    def __init__(self, socket):
        self.socket = socket

    def run(self, *words, check=True, timeout=20, stdin=None):
        """Runs a client command."""
        env = os.environ | {"HITPATH_SOCKET": str(self.socket)}
        return run([binary(), *words], check=check, timeout=timeout, stdin=stdin, env=env)

    def json(self, *words):
        """Runs a client command and reads its answer as JSON."""
        return json.loads(self.run(*words, "-j").stdout)

    def drops(self):
        """Dropped packets by reason; reasons that did not occur are left out."""
        return named_counts(self.json("show", "drops"))

    def sa_packets(self):
        """Packets by SPI."""
        return {int(str(sa["spi"]), 0): sa["packets"] for sa in rows(self.json("show", "sas"))}


class Here:
    """Where the tests themselves run, for gateways that need no network."""

    @staticmethod
    def start(*command, **options):
        """Starts a program."""
        return subprocess.Popen([*map(str, command)], stdin=subprocess.DEVNULL, text=True, **options)


class Gateway(Client):
    """A gateway that runs in a namespace, or `Here`, as a context manager."""

    def __init__(self, namespace, config, directory):
        self._namespace, self._directory = namespace, pathlib.Path(directory)
        super().__init__(self._directory / "hitpath.sock")
        self.config_path = self._directory / "gw.toml"
        self.state_path = self._directory / "state"
        self.env = None
        self.write(config)

    def write(self, config):
        """Writes the configuration file anew; a reload is another step."""
        self.config_path.write_text(config if isinstance(config, str) else config.render(self.socket))

    def __enter__(self):
        self._log = (self._directory / "gateway.log").open("w+")
        self.process = self._namespace.start(
            *self.command(), stdout=self._log, stderr=subprocess.STDOUT, env=self.env
        )
        try:
            self._wait_until(lambda: "ready" in self.log(), "to be ready")
        except CommandFailed:
            self.process.kill()
            self.process.wait()
            self._log.close()
            raise
        return self

    def command(self):
        """What it is started by."""
        return [binary(), "run", "--config", self.config_path, "--state-directory", self.state_path]

    def __exit__(self, kind, error, _):
        alive = self.process.poll() is None
        if alive:
            # Seen only where the test fails: where packets were lost, if they were.
            for what in ("ports", "drops", "sas"):
                print(self.run("show", what, check=False).stdout)
            self.process.send_signal(signal.SIGTERM)
            try:
                self.process.wait(10)
            except subprocess.TimeoutExpired:
                self.process.kill()
        log = self.log()
        self._log.close()
        if kind is not None:
            print(f"the gateway said:\n{log}")
        elif not alive or self.process.returncode != 0:
            raise CommandFailed(f"the gateway ended with {self.process.wait()}:\n{log}")

    def kill(self):
        """Ends the gateway as a crash would. It may be started again."""
        self.process.kill()
        self.process.wait()
        self._log.close()

    def start_again(self):
        """Starts a gateway that was killed."""
        return self.__enter__()

    def log(self):
        """What the gateway has said so far."""
        return (self._directory / "gateway.log").read_text(errors="replace")

    def wait_for_drops(self, reason, count, timeout=3):
        """Waits until so many packets were dropped for `reason`, and demands that there be no more."""
        seen = self.wait_for_more_drops(reason, count - 1, timeout)
        assert seen == count, f"{reason}: {seen} instead of {count}; all drops: {self.drops()}"

    def wait_for_more_drops(self, reason, than=0, timeout=3):
        """Waits until more packets were dropped for `reason`: the system may answer before the gateway has looked."""
        end = time.monotonic() + timeout
        while (seen := self.drops().get(reason, 0)) <= than and time.monotonic() < end:
            time.sleep(0.05)
        assert seen > than, f"{reason}: {seen}, wanted more than {than}; all drops: {self.drops()}"
        return seen

    def wait_for_no_carrier(self, port):
        """Waits until the gateway knows that the cable of `port` was pulled at its other end."""
        self._wait_until(lambda: self._interface_state(port) == "no-carrier", f"to see that {port} has no carrier")

    def _interface_state(self, port):
        return next(row.get("interface_state") for row in self.json("show", "ports") if row["name"] == port)

    def socket_mode(self):
        """Permission bits of the control socket."""
        return stat.S_IMODE(os.stat(self.socket).st_mode)

    def _wait_until(self, true, what, timeout=10):
        end = time.monotonic() + timeout
        while not true():
            if self.process.poll() is not None or time.monotonic() > end:
                raise CommandFailed(f"the gateway failed {what}:\n{self.log()}")
            time.sleep(0.02)


def rows(answer):
    """The rows of a client's answer, whether it is a list or has one under its only list-valued name."""
    if isinstance(answer, list):
        return answer
    lists = [content for content in answer.values() if isinstance(content, list)]
    assert len(lists) == 1, f"not one table: {answer}"
    return lists[0]


def named_counts(answer):
    """A table of counters as a dictionary, without its zeros."""
    if isinstance(answer, dict) and all(isinstance(count, int) for count in answer.values()):
        return {name: count for name, count in answer.items() if count}
    return {row.get("reason") or row["name"]: row["packets"] for row in rows(answer) if row["packets"]}
