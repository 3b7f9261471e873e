"""Where `hitpath save` writes: what is there, whose it is, and what becomes of it if not all can be done."""

import os
import pathlib
import random
import resource
import signal
import subprocess
import tempfile
import time

import pytest

from harness.config import Config, Port
from harness.gateway import Gateway, Here, binary
from harness.needs import need
from harness.netns import run

KEY = "8f1e6a44c05d93b7e2a86f10d47bc5391e0d72a6"
SA = f"src 10.1.0.1 dst 10.1.0.2 proto esp spi 0x1001 mode tunnel reqid 1 aead rfc4106(gcm(aes)) 0x{KEY} 128"

NOBODY = 65534


@pytest.fixture(scope="module")
def gateway():
    """A gateway with an SA, which everybody may ask."""
    with tempfile.TemporaryDirectory() as folder:
        os.chmod(folder, 0o755)
        with Gateway(Here, Config(ports=[Port("lan", ["10.1.0.1/24"])]), folder) as running:
            running.run("xfrm", "state", "add", *SA.split())
            running.socket.chmod(0o666)
            yield running


@pytest.fixture
def folder():
    """A folder that everybody may look into."""
    with tempfile.TemporaryDirectory() as folder:
        os.chmod(folder, 0o755)
        yield pathlib.Path(folder)


def save(gateway, *words, **options):
    """`hitpath save`."""
    env = os.environ | {"HITPATH_SOCKET": str(gateway.socket)}
    options = {"stdout": subprocess.PIPE, "stderr": subprocess.PIPE} | options
    return subprocess.run([binary(), "save", *words], env=env, text=True, timeout=20, **options)


def refused(done, *why):
    """What was said of a save that was refused for these reasons."""
    assert done.returncode == 1 and all(word in done.stderr for word in why), done


def names(folder):
    """What is in a folder."""
    return sorted(os.listdir(folder))


@pytest.mark.parametrize("name", ["/dev/stdout", "/proc/self/fd/1", "/dev/fd/1", "so", "log", "stdout"])
def test_standard_output_is_appended_to_by_any_name(gateway, folder, name):
    log, link = folder / "log", folder / "so"
    link.symlink_to("/dev/stdout")
    log.write_text("first\n")
    within = {"cwd": "/dev" if name == "stdout" else folder}
    with log.open("a") as output:
        done = save(gateway, name, stdout=output, **within)
        assert done.returncode == 0, done
        refused(save(gateway, "--keys", name, stdout=output, **within), "FILE is none")
    text = log.read_text()
    assert text.startswith("first\n[gateway]") or text.startswith("first\n# left out"), text
    assert link.is_symlink() and names(folder) == ["log", "so"]


def test_keys_are_beside_a_file_alone(gateway, folder):
    fifo, to_fifo = folder / "fifo", folder / "gw.toml.keys"
    os.mkfifo(fifo)
    to_fifo.symlink_to(fifo)
    for name in (fifo, "/dev/stdout", "/dev/null"):
        refused(save(gateway, "--keys", name), *(["start its reader"] if name == fifo else ["FILE is none"]))
    refused(save(gateway, "--keys", folder / "gw.toml"), "fifo is a FIFO, and keys are written to files alone")
    to_fifo.unlink()
    to_fifo.symlink_to("gw.toml")
    refused(save(gateway, "--keys", folder / "gw.toml"), "it is the configuration itself")
    assert names(folder) == ["fifo", "gw.toml.keys"]
    reader = os.open(fifo, os.O_RDONLY | os.O_NONBLOCK)
    assert save(gateway, fifo).returncode == 0
    assert b"[gateway]" in os.read(reader, 1 << 16)
    refused(save(gateway, "--keys", fifo), "FILE is none")
    os.close(reader)


def test_a_folder_is_refused_before_keys_are_written(gateway, folder):
    (folder / "gw.toml").mkdir()
    (folder / "gw.toml.keys").write_text("former")
    refused(save(gateway, "--keys", folder / "gw.toml"), "is a folder: give the name of a file")
    assert (folder / "gw.toml.keys").read_text() == "former"


@pytest.mark.namespaces
@pytest.mark.parametrize("former", ["former", None])
def test_both_or_neither(gateway, folder, root, former):
    """A file that another one is mounted on cannot be replaced."""
    file, keys = folder / "gw.toml", folder / "gw.toml.keys"
    file.write_text("before")
    if former:
        keys.write_text(former)
    before = names(folder)
    script = f"mount --bind {file} {file} && exec {binary()} --socket {gateway.socket} save --keys {file}"
    done = subprocess.run(["unshare", "-m", "sh", "-c", script], capture_output=True, text=True, timeout=20)
    refused(done, "gw.toml: Device or resource busy")
    assert (file.read_text(), names(folder)) == ("before", before)
    assert not former or keys.read_text() == former
    assert save(gateway, "--keys", file).returncode == 0
    assert KEY in keys.read_text() and "[[sa]]" in file.read_text()


def test_keys_of_another_configuration_are_refused(gateway, folder):
    """As a crash leaves them that comes when keys are in their place and their configuration is not."""
    file, keys = folder / "gw.toml", folder / "gw.toml.keys"

    def wrong():
        done = run([binary(), "check", file], check=False)
        said = done.stdout + done.stderr
        return said if done.returncode else None

    assert save(gateway, "--keys", file).returncode == 0
    former, former_keys = file.read_text(), keys.read_text()
    assert save(gateway, "--keys", file).returncode == 0
    assert (file.read_text(), keys.read_text()) == (former, former_keys), "the same is the same"
    assert wrong() is None
    other = SA.replace("spi 0x1001", "spi 0x1000").replace(KEY, KEY[::-1])
    gateway.run("xfrm", "state", "add", *other.split())
    assert save(gateway, "--keys", file).returncode == 0
    gateway.run("xfrm", "state", "delete", *"dst 10.1.0.2 spi 0x1000 proto esp".split())
    assert wrong() is None
    file.write_text(former)
    assert "these are the keys of another configuration" in wrong()
    refused_by_reload = gateway.config_path.read_text()
    gateway.write(former.replace('"gw.toml.keys"', f'"{keys}"'))
    done = gateway.run("reload", check=False)
    gateway.write(refused_by_reload)
    assert done.returncode == 1 and "these are the keys of another configuration" in done.stderr, done
    # Neither needs the word; but one that has it needs the other.
    no_word = "".join(line for line in former.splitlines(True) if not line.startswith("keys-id"))
    file.write_text(no_word)
    assert "these are the keys of another configuration" in wrong()
    keys.write_text(former_keys.split("\n", 1)[1])
    assert wrong() is None
    file.write_text(former)
    assert "these are the keys of another configuration" in wrong()
    assert KEY not in former and KEY in former_keys


def test_no_file_with_keys_stays_beside(gateway, folder):
    """Neither where a limit ends the process, nor where signals do."""
    file = folder / "gw.toml"

    def short():
        resource.setrlimit(resource.RLIMIT_FSIZE, (20, 20))

    assert save(gateway, "--keys", file, preexec_fn=short).returncode != 0
    assert names(folder) == []
    env = os.environ | {"HITPATH_SOCKET": str(gateway.socket)}
    begin = time.monotonic()
    assert save(gateway, "--keys", file).returncode == 0
    whole = time.monotonic() - begin
    for signum in [signal.SIGINT, signal.SIGTERM, signal.SIGHUP] * 20:
        running = subprocess.Popen([binary(), "save", "--keys", file], env=env, stderr=subprocess.DEVNULL)
        time.sleep(random.uniform(0.3, 1.0) * whole)
        running.send_signal(signum)
        running.wait(20)
        assert names(folder) == ["gw.toml", "gw.toml.keys"], signum


AS_NOBODY = {"user": NOBODY, "group": NOBODY, "extra_groups": []}


class Nobody:
    """Another user than root."""

    @staticmethod
    def start(*command, **options):
        """Starts a program."""
        return Here.start(*command, **options, **AS_NOBODY)


def test_who_is_not_root_replaces_what_he_may_write(folder):
    need(os.geteuid() == 0, "needs root, to be another user")
    own = folder / "own"
    own.mkdir()
    os.chown(own, NOBODY, NOBODY)
    with Gateway(Nobody, Config(ports=[Port("lan", ["10.1.0.1/24"])]), own) as gateway:
        before = names(own)
        for name, mode in (("read-only", 0o444), ("shared", 0o666), ("own/read-only", 0o444), ("own/given", 0o626)):
            (folder / name).write_text("before")
            (folder / name).chmod(mode)
        refused(save(gateway, own / "read-only", **AS_NOBODY), "user 0 and has mode 0444: you may not write to it")
        refused(save(gateway, folder / "shared", **AS_NOBODY), "for which its folder has no place: Permission denied")
        assert (folder / "shared").read_text() == "before" and (own / "read-only").read_text() == "before"
        # It cannot be given back.
        done = save(gateway, own / "given", **AS_NOBODY)
        assert done.returncode == 0 and "only root may give it to user 0, group 0" in done.stderr, done
        found = (own / "given").stat()
        assert (found.st_uid, found.st_gid, found.st_mode & 0o777) == (NOBODY, NOBODY, 0o626)
        # What the group of root may is not for that of the new one.
        os.chown(own / "given", 0, 0)
        (own / "given").chmod(0o642)
        assert save(gateway, own / "given", **AS_NOBODY).returncode == 0
        assert (own / "given").stat().st_mode & 0o777 == 0o602
        # Keys of his own.
        assert save(gateway, "--keys", own / "new.toml", **AS_NOBODY).returncode == 0
        assert save(gateway, "--keys", own / "new.toml", **AS_NOBODY).returncode == 0
        found = (own / "new.toml.keys").stat()
        assert (found.st_uid, found.st_mode & 0o777) == (NOBODY, 0o600)
        assert names(own) == sorted([*before, "given", "new.toml", "new.toml.keys", "read-only"])
        # A folder that may not be looked into is not one without the file.
        (folder / "closed").mkdir(mode=0o700)
        refused(save(gateway, folder / "closed" / "gw.toml", **AS_NOBODY), "Permission denied")
