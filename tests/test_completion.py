"""Completion of every word in real shells: bash, zsh and fish, with names from a running daemon."""

import os
import pathlib
import re
import shutil
import time

import pexpect
import pytest

from harness.gateway import Gateway, Here, binary
from harness.needs import need
from harness.netns import run

CONFIG = """
[gateway]
socket = "{socket}"

[[vrf]]
name = "blue"
table = 10

[[port]]
name = "lan-of-mine"
kind = "memory"
addresses = ["192.0.2.1/24"]

[[port]]
name = "wan"
kind = "memory"
vrf = "blue"
addresses = ["198.51.100.1/24"]
"""


@pytest.fixture
def gateway(tmp_path):
    """A running daemon with names."""
    with Gateway(Here, CONFIG.format(socket=tmp_path / "hitpath.sock"), tmp_path) as made:
        yield made


@pytest.fixture
def program(tmp_path):
    """A folder for PATH in which the program has its name, and the shells' completions."""
    folder = tmp_path / "bin"
    folder.mkdir()
    (folder / "hitpath").symlink_to(pathlib.Path(binary()).resolve())
    for shell, name in (("bash", "hitpath"), ("zsh", "_hitpath"), ("fish", "hitpath.fish")):
        (folder / shell).mkdir()
        (folder / shell / name).write_text(run([binary(), "completions", shell]).stdout)
    return folder


def lines(gateway, *words):
    """The words that `hitpath complete` offers."""
    said = gateway.run("complete", "--", *words).stdout.splitlines()
    return [line.split("\t")[1] for line in said if line[0] in "wp"]


class Shell:
    """A shell in a terminal of its own."""

    def __init__(self, kind, program, socket):
        env = {
            "PATH": f"{program}:{os.environ['PATH']}",
            "HITPATH_SOCKET": str(socket),
            "HOME": str(program),
            "TERM": "dumb" if kind == "bash" else "xterm",
            "LC_ALL": "C.UTF-8",
        }
        start = {
            "bash": ["--norc", "--noprofile", "-i"],
            "zsh": ["-f", "-i"],
            "fish": ["--no-config", "-i"],
        }[kind]
        self.child = pexpect.spawn(kind, start, env=env, encoding="utf-8", dimensions=(50, 200), timeout=15)
        first = {
            "bash": f"PS1='READY> '; bind 'set enable-bracketed-paste off'; . {program}/bash/hitpath",
            "zsh": f"PS1='READY> '; fpath=({program}/zsh $fpath); autoload -Uz compinit; compinit -u -D; unset zle_bracketed_paste",
            "fish": f"function fish_prompt; echo -n 'READY> '; end; source {program}/fish/hitpath.fish",
        }[kind]
        self.kind = kind
        self.child.sendline(first)
        # Behind the answer, not in the echo of the question.
        self.child.sendline("echo begun-$((40+2))" if kind != "fish" else "echo begun-(math 40 + 2)")
        self.child.expect("begun-42")
        self.child.expect("READY> ")

    def complete(self, typed):
        """What a line becomes by the key of completion, as the shell would run it."""
        self.child.send(f"{typed}\t")
        time.sleep(1.5)
        # Prints the line's words instead of carrying them out.
        self.child.send("\x01echo 'GOT' \x05 'END'\r")
        # What is typed has a quote behind GOT, what is printed has none.
        self.child.expect(r"GOT (hitpath.*?) *END")
        got = re.sub(r"\x1b\[[0-9;?]*[a-zA-Z]|\r", "", self.child.match[1])
        self.child.expect("READY> ")
        return got.strip()


@pytest.mark.parametrize("kind", ["bash", "zsh", "fish"])
def test_words_complete_in_real_shells(kind, gateway, program):
    need(shutil.which(kind), f"needs {kind}")
    shell = Shell(kind, program, gateway.socket)
    for typed, becomes in [
        # A verb, an option and its value.
        ("hitpath release-i", "hitpath release-interfaces"),
        ("hitpath show --al", "hitpath show --all"),
        # Words of the grammars, at any depth.
        ("hitpath route add 10.0.0.0/8 vi", "hitpath route add 10.0.0.0/8 via"),
        ("hitpath xfrm policy setdef", "hitpath xfrm policy setdefault"),
        ("hitpath xfrm state add src 2001:db8::1 mod", "hitpath xfrm state add src 2001:db8::1 mode"),
        ("hitpath qdisc add dev wan root fq_codel memo", "hitpath qdisc add dev wan root fq_codel memory_limit"),
        ("hitpath conntrack -L --state ESTAB", "hitpath conntrack -L --state ESTABLISHED"),
        ("hitpath tap add port wan f snap", "hitpath tap add port wan f snaplen"),
        # Names that the daemon knows.
        ("hitpath link set lan", "hitpath link set lan-of-mine"),
        ("hitpath route show vrf bl", "hitpath route show vrf blue"),
        ("hitpath tap add vrf bl", "hitpath tap add vrf blue"),
        # The beginning of a word goes on, also behind `=` and in quotes.
        ("hitpath flow add in_po", "hitpath flow add in_port="),
        ("hitpath flow add in_port=lan-", "hitpath flow add in_port=lan-of-mine"),
        ("hitpath flow add 'table=0,check_over", "hitpath flow add table=0,check_overlap"),
    ]:
        got = shell.complete(typed)
        assert got == becomes, f"{kind}: {typed!r} became {got!r}"


@pytest.mark.parametrize("kind", ["bash", "zsh", "fish"])
def test_no_key_is_among_the_arguments_of_a_process(kind, gateway, program, tmp_path):
    need(shutil.which(kind), f"needs {kind}")
    real, seen = (program / "hitpath").resolve(), tmp_path / "arguments"
    (program / "hitpath").unlink()
    (program / "hitpath").write_text(f'#!/bin/sh\nprintf "%s\\n" "$*" >> {seen}\nexec {real} "$@"\n')
    (program / "hitpath").chmod(0o755)
    shell = Shell(kind, program, gateway.socket)
    line = "hitpath xfrm state add src 192.0.2.1 dst 192.0.2.2 proto esp spi 9 enc aes"
    for key in ("0x000102030405060708090a0b0c0d0e0f", "an-open-sesame"):
        assert shell.complete(f"{line} {key} replay-w") == f"{line} {key} replay-window"
        assert seen.read_text().count("complete --stdin") >= 1
        assert key not in seen.read_text()


def test_names_come_from_the_daemon_and_are_not_waited_for(gateway):
    assert lines(gateway, "link", "set", "dev", "") == ["lan-of-mine", "wan"]
    assert "10" in lines(gateway, "route", "show", "table", "")
    assert lines(gateway, "route", "add", "10.0.0.0/8", "dev", "w") == ["wan"]
    gateway.run("xfrm", "policy", "add", "src", "10.0.0.0/8", "dst", "10.1.0.0/16", "dir", "out", "action", "block")
    index = str(gateway.json("show", "policies")[0]["index"])
    assert lines(gateway, "xfrm", "policy", "get", "index", "") == [index]
    # A daemon that is stopped answers nobody.
    os.kill(gateway.process.pid, 19)
    try:
        begun = time.monotonic()
        assert lines(gateway, "link", "set", "dev", "") == []
        assert lines(gateway, "link", "set", "wan", "m") == ["mtu", "mss"]
        assert time.monotonic() - begun < 3
    finally:
        os.kill(gateway.process.pid, 18)


def test_names_of_policies_and_handles_come_from_the_daemon(gateway):
    gateway.run(*"xfrm policy add src 10.1.0.0/16 dst 10.2.0.0/16 dir out action block name berlin-1".split())
    gateway.run(*"qdisc add dev wan root handle 7: tbf rate 1gbit burst 64kb latency 50ms".split())
    assert lines(gateway, "xfrm", "policy", "list", "name", "") == ["berlin-1"]
    assert lines(gateway, "qdisc", "add", "dev", "wan", "parent", "") == ["7:"]


def test_without_a_daemon_words_complete_and_nothing_is_said(tmp_path):
    env = os.environ | {"HITPATH_SOCKET": str(tmp_path / "none.sock")}
    done = run([binary(), "complete", "--", "route", "add", "default", "v"], env=env)
    assert (done.stdout.split("\n")[0].split("\t")[1], done.stderr) == ("via", "")
    done = run([binary(), "complete", "--", "link", "set", "dev", ""], env=env)
    assert (done.stdout.count("\nw\t"), done.stderr, done.returncode) == (0, "", 0)
