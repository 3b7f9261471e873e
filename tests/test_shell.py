"""`hitpath shell` in a real pseudo terminal: history, completion, errors, keys of the terminal."""

import os
import re
import stat
import time

import pexpect
import pytest

from harness.gateway import Gateway, Here, binary
from harness.netns import run

CONFIG = """
[gateway]
socket = "{socket}"

[[vrf]]
name = "blue"

[[port]]
name = "lan-of-mine"
kind = "memory"
addresses = ["192.0.2.1/24"]
"""

KEY = "0x00112233445566778899aabbccddeeff01020304"
SA = f"xfrm state add src 192.0.2.1 dst 192.0.2.2 proto esp spi 0x1001 mode tunnel aead 'rfc4106(gcm(aes))' {KEY} 128"
PROMPT = "hitpath> "


@pytest.fixture
def gateway(tmp_path):
    """A running daemon."""
    with Gateway(Here, CONFIG.format(socket=tmp_path / "hitpath.sock"), tmp_path) as made:
        yield made


class Shell:
    """The shell in a terminal."""

    def __init__(self, socket, home, words=("shell",)):
        env = os.environ | {"HITPATH_SOCKET": str(socket), "HOME": str(home), "TERM": "xterm", "XDG_STATE_HOME": ""}
        self.child = pexpect.spawn(
            binary(), list(words), env=env, encoding="utf-8", dimensions=(40, 160), timeout=10, echo=False
        )

    def wait(self, text):
        """Waits for a text, and returns what came before it."""
        self.child.expect_exact(text)
        return re.sub(r"\x1b\[[0-9;?]*[a-zA-Z]", "", self.child.before)

    def line(self, line):
        """What is said behind a line, up to the next prompt."""
        self.child.send(line + "\r")
        self.wait("\n")
        return self.wait(PROMPT)

    def leave(self):
        """Leaves by Ctrl-D, and returns the exit code."""
        self.child.send("\x04")
        self.child.expect(pexpect.EOF)
        self.child.close()
        return self.child.exitstatus


def history(home):
    """The file of history."""
    return home / ".local" / "state" / "hitpath" / "history"


@pytest.mark.parametrize("words", [("shell",), ()])
def test_lines_are_carried_out_and_errors_end_nothing(gateway, tmp_path, words):
    shell = Shell(gateway.socket, tmp_path, words)
    shell.wait(PROMPT)
    assert "lan-of-mine" in shell.line("show ports")
    assert "'by' is not expected here" in shell.line("route add 10.0.0.0/8 by 192.0.2.9")
    assert "unrecognized subcommand" in shell.line("shwo ports")
    assert "does not end" in shell.line("flow add 'table=0")
    assert shell.line("hitpath route add 10.0.0.0/8 via 192.0.2.9").strip() == ""
    assert "10.0.0.0/8 via 192.0.2.9" in shell.line("route show")
    assert '"name": "blue"' in shell.line("-j show vrfs")
    assert shell.line("   ").strip() == shell.line("# nothing").strip() == ""
    assert "Behind `hitpath route add` may come" in shell.line("help route add")
    for line in ("help", "?"):
        said = shell.line(line)
        assert "Commands:" in said and "exit, quit, Ctrl-D" in said and "Ctrl-R" in said
    assert "no pipes here" in shell.line("show ports | head -1")
    assert "Ctrl-R" in shell.line("history")
    assert "exit code is 0" in shell.line("exit 3")
    assert shell.leave() == 0


def test_words_complete_by_tab(gateway, tmp_path):
    shell = Shell(gateway.socket, tmp_path)
    shell.wait(PROMPT)
    shell.child.send("link set lan\t")
    shell.wait("lan-of-mine ")
    shell.child.send("mt\t")
    shell.wait("mtu ")
    shell.child.send("1400\r")
    shell.wait(PROMPT)
    assert gateway.json("show", "ports")[0]["mtu"] == 1400
    # Several words fit: they are listed with what they mean.
    shell.child.send("xfrm policy add dir \t\t")
    listed = shell.wait("forwarded, after decryption")
    assert "inbound" in listed and "outbound" in listed
    # Ctrl-C empties the line.
    shell.child.send("\x03")
    shell.wait(PROMPT)
    shell.child.send("vrf show\r")
    shell.wait("blue")
    shell.wait(PROMPT)
    assert shell.leave() == 0


def test_history_is_kept_and_keys_are_not(gateway, tmp_path):
    shell = Shell(gateway.socket, tmp_path)
    shell.wait(PROMPT)
    shell.line("show vrfs")
    assert shell.line(SA).strip() == ""
    shell.line(f"xfrm state ad {KEY}")
    shell.line(" show drops")
    assert gateway.json("show", "sas")[0]["spi"] == 0x1001
    assert shell.leave() == 0
    assert stat.S_IMODE(history(tmp_path).stat().st_mode) == 0o600
    assert stat.S_IMODE(history(tmp_path).parent.stat().st_mode) == 0o700
    text = history(tmp_path).read_text()
    assert "show vrfs" in text and KEY[2:] not in text and "aead" not in text and "drops" not in text, text
    again = Shell(gateway.socket, tmp_path)
    again.wait(PROMPT)
    again.child.send("\x1b[A\r")
    again.wait("show vrfs")
    assert "blue" in again.wait(PROMPT)
    assert again.leave() == 0
    # A file that others may read is closed to them.
    history(tmp_path).chmod(0o644)
    Shell(gateway.socket, tmp_path).wait(PROMPT)
    assert stat.S_IMODE(history(tmp_path).stat().st_mode) == 0o600


def test_ctrl_c_ends_the_command_and_not_the_shell(gateway, tmp_path):
    shell = Shell(gateway.socket, tmp_path)
    shell.wait(PROMPT)
    shell.child.send("top --batch -d 0.2\r")
    shell.wait("packets/s in")
    shell.child.send("\x03")
    shell.wait(PROMPT)
    assert "lan-of-mine" in shell.line("show ports")
    assert shell.leave() == 0


def test_keys_stand_in_no_list_of_processes(gateway, tmp_path):
    shell = Shell(gateway.socket, tmp_path)
    shell.wait(PROMPT)
    # A daemon that is stopped keeps the command waiting, so that it can be looked at.
    os.kill(gateway.process.pid, 19)
    try:
        shell.child.send(SA + "\r")
        time.sleep(1)
        children = run(["ps", "-o", "args=", "--ppid", str(shell.child.pid)], check=False).stdout
        own = run(["ps", "-o", "args=", "-p", str(shell.child.pid)]).stdout
        assert KEY not in children + own
    finally:
        os.kill(gateway.process.pid, 18)
    shell.wait(PROMPT)
    assert len(gateway.json("show", "sas")) == 1
    assert shell.leave() == 0


def test_the_prompt_says_what_the_daemon_does(tmp_path):
    shell = Shell(tmp_path / "none.sock", tmp_path)
    shell.wait("hitpath (no daemon)> ")
    shell.child.send("show ports\r")
    shell.wait("is the daemon running?")
    shell.wait("hitpath (no daemon)> ")
    with Gateway(Here, CONFIG.format(socket=tmp_path / "hitpath.sock"), tmp_path) as gateway:
        other = Shell(gateway.socket, tmp_path)
        other.wait(PROMPT)
        os.kill(gateway.process.pid, 19)
        try:
            other.child.send("\r")
            other.wait("hitpath (no answer)> ")
        finally:
            os.kill(gateway.process.pid, 18)
    assert shell.leave() == 0


def test_without_a_terminal_there_is_help(tmp_path):
    done = run([binary()], check=False)
    assert done.returncode == 2 and "Usage: hitpath" in done.stderr
    done = run([binary(), "shell"], check=False)
    assert done.returncode == 2 and "needs a terminal" in done.stderr
