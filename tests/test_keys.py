"""Where keys are seen, and where they are not: logs, errors, replies, memory."""

import re
import time

import pytest

from harness.config import Config, Port
from harness.gateway import Gateway, Here, binary
from harness.netns import run

FILE_KEY = "8f1e6a44c05d93b7e2a86f10d47bc5391e0d72a6"
"""AES-GCM with 128 bits and its salt, of an SA in the file."""
COMMAND_KEY = "d3076cbe98f1a54e207b6dc98e13fa55"
COMMAND_HASH_KEY = "6b92e8d1f0374ca5be6d21908fc7a3145ed8b067"
BATCH_KEY = "c17f5be0963ad284f76c0e9ab8d513426fe0a4d9"
KEYS = [FILE_KEY, COMMAND_KEY, COMMAND_HASH_KEY, BATCH_KEY]

SA_IN_FILE = f"""
[[sa]]
source = "10.1.0.1"
destination = "10.1.0.2"
spi = 0x1000
aead = {{ name = "rfc4106(gcm(aes))", key = "0x{FILE_KEY}" }}
"""


@pytest.fixture
def gateway(tmp_path):
    """A gateway with a port in memory and an SA in its file."""
    running = Gateway(Here, Config(ports=[Port("lan", ["10.1.0.1/24"])]), tmp_path)
    running.without_sa = running.config_path.read_text()
    running.write(running.without_sa + SA_IN_FILE)
    running.config_path.chmod(0o600)
    with running:
        yield running


def add(gateway, spi, key=COMMAND_KEY, hash_key=COMMAND_HASH_KEY, check=True):
    """Adds an SA by command."""
    words = f"xfrm state add src 10.1.0.1 dst 10.1.0.2 spi {spi} proto esp mode tunnel reqid 1"
    return gateway.run(*words.split(), "auth", "sha1", f"0x{hash_key}", "enc", "cbc(aes)", f"0x{key}", check=check)


def batch(gateway, spi):
    """Adds an SA by a batch."""
    line = f"xfrm state add src 10.1.0.1 dst 10.1.0.2 spi {spi} proto esp mode tunnel aead rfc4106(gcm(aes)) 0x{BATCH_KEY} 128"
    return gateway.run("batch", "-", stdin=line + "\n")


def has_key(text):
    """The keys in a text, whole or the first half of one."""
    return [key for key in KEYS if key[:16] in text.lower()]


def test_keys_are_shown_to_who_asks_for_them_alone(gateway):
    said = [add(gateway, 0x2000).stdout, batch(gateway, 0x3000).stdout]
    for words in (["sas"], ["sas", "-j"], ["policies", "-j"], ["daemon", "-j"], ["workers", "-j"]):
        said.append(gateway.run("show", *words).stdout)
    for words in (["xfrm", "state", "show"], ["xfrm", "state", "show", "nokeys"], ["reload", "--dry-run"]):
        said.append(gateway.run(*words).stdout)
    assert not any(has_key(text) for text in said), said
    assert set(has_key(gateway.run("xfrm", "state", "show", "keys").stdout)) == set(KEYS)
    assert not has_key(gateway.log())


def test_errors_say_nothing_of_keys(gateway):
    add(gateway, 0x2000)
    wrong = [
        add(gateway, 0x2000, check=False),
        add(gateway, 0, check=False),
        add(gateway, 0x2001, COMMAND_KEY + "0", check=False),
        add(gateway, 0x2001, COMMAND_KEY + "zz", check=False),
        add(gateway, 0x2001, COMMAND_KEY * 2 + "00", check=False),
        gateway.run("xfrm", "state", "add", f"0x{COMMAND_KEY}", check=False),
        gateway.run("explain", f"0x{COMMAND_KEY}", check=False),
    ]
    for done in wrong:
        assert done.returncode != 0
    # What is no key where the grammar expects a word is repeated, so only those with a key in its place count.
    assert not any(has_key(done.stdout + done.stderr) for done in wrong[:5])
    for broken in (f'key = "0x{FILE_KEY}0"', f'key = "{FILE_KEY}"', f'key = "0x{FILE_KEY}00"'):
        gateway.write(gateway.without_sa + SA_IN_FILE.replace(f'key = "0x{FILE_KEY}"', broken))
        refused = gateway.run("reload", check=False)
        assert refused.returncode == 1 and not has_key(refused.stdout + refused.stderr), refused
    assert not has_key(gateway.log())


def memory(pid):
    """All that may be read of a process's memory, piece by piece."""
    with open(f"/proc/{pid}/maps") as maps, open(f"/proc/{pid}/mem", "rb", buffering=0) as mem:
        for line in maps:
            place, rights, *_, name = (line.rstrip("\n") + " ").split(" ", 5)
            if not rights.startswith("rw"):
                continue
            start, end = (int(word, 16) for word in place.split("-"))
            if end - start > 64 << 20:
                # Tables of the decision cache and packets, which are mostly untouched.
                continue
            mem.seek(start)
            try:
                yield line, mem.read(end - start)
            except OSError:
                pass


def remnants(pid, keys):
    """Where keys are in memory: as bytes, and as text."""
    found = []
    for line, content in memory(pid):
        for key in keys:
            for form, needle in (("bytes", bytes.fromhex(key)[:16]), ("text", key[:24].encode())):
                found += [(form, key[:8], line.strip(), at.start()) for at in re.finditer(re.escape(needle), content)]
    return found


@pytest.mark.namespaces
def test_nothing_of_a_key_stays_in_memory(gateway, root):
    """Whoever reads all memory after the SAs are gone finds nothing of their keys."""
    pid = gateway.json("show", "daemon")["pid"]
    add(gateway, 0x2000)
    batch(gateway, 0x3000)
    there = {key for _, key, *_ in remnants(pid, KEYS)}
    assert there == {key[:8] for key in KEYS}, "the test sees keys that are in use"
    for spi in (0x2000, 0x3000):
        gateway.run("xfrm", "state", "delete", "dst", "10.1.0.2", "spi", str(spi), "proto", "esp")
    gateway.write(gateway.without_sa)
    gateway.run("reload")
    # Sleeping workers let go of the tables before within half a second; so does the compiler's thread.
    time.sleep(1.5)
    assert gateway.json("show", "sas") == []
    assert remnants(pid, [key for key in KEYS if key != FILE_KEY]) == []


@pytest.mark.namespaces
@pytest.mark.parametrize("_", range(5))
def test_nothing_of_a_key_of_the_first_file_stays_in_memory(gateway, root, _):
    """The same of an SA that was in the configuration file when the daemon started. Where what was left on its stack
    gets to differs from start to start."""
    pid = gateway.json("show", "daemon")["pid"]
    assert remnants(pid, [FILE_KEY]), "the test sees keys that are in use"
    gateway.write(gateway.without_sa)
    gateway.run("reload")
    time.sleep(1.5)
    assert gateway.json("show", "sas") == []
    assert remnants(pid, [FILE_KEY]) == []


def test_keys_that_are_weak_are_noted(gateway, tmp_path):
    assert "all zeroes" in add(gateway, 0x2000, key="00" * 16).stdout
    assert "16 bytes, and should have 20" in add(gateway, 0x2001, hash_key="11" * 16).stdout
    assert "another SA has the same key" in add(gateway, 0x2002, key="11" * 16).stdout
    assert "warning" not in add(gateway, 0x2003, key="22" * 16, hash_key="33" * 20).stdout
    path = tmp_path / "weak.toml"
    path.write_text(gateway.without_sa + SA_IN_FILE + SA_IN_FILE.replace("0x1000", "0x1001"))
    path.chmod(0o644)
    noted = run([binary(), "check", path])
    assert "another SA has the same key" in noted.stdout + noted.stderr
    assert "others may read it (mode 0644)" in noted.stdout + noted.stderr
    path.chmod(0o600)
    assert "others may read" not in run([binary(), "check", path]).stdout
