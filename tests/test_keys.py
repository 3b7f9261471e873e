"""Where keys are seen, and where they are not: logs, errors, replies, memory."""

import http.client
import json
import re
import socket
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
        assert not has_key(done.stdout + done.stderr), done
    for broken in (f'key = "0x{FILE_KEY}0"', f'key = "{FILE_KEY}"', f'key = "0x{FILE_KEY}00"'):
        gateway.write(gateway.without_sa + SA_IN_FILE.replace(f'key = "0x{FILE_KEY}"', broken))
        refused = gateway.run("reload", check=False)
        assert refused.returncode == 1 and not has_key(refused.stdout + refused.stderr), refused
    assert not has_key(gateway.log())


K = COMMAND_HASH_KEY
"""A key in the wrong place, and without 0x."""

GCM = "rfc4106(gcm(aes))"
SA_TO = "xfrm state add src 10.1.0.1 dst 10.1.0.2 spi 1 proto esp mode tunnel"

LINES = [
    *(f"xfrm state add {key} {K}" for key in ("src", "dst", "spi", "proto", "mode", "reqid", "if_id", "replay-window")),
    *(f"xfrm state add {key} {K}" for key in ("vrf", "sel src", "sel proto", "sel sport", "flag", "aead", "enc", "")),
    f"{SA_TO} auth sha1 0x{K} enc aes 0x{COMMAND_KEY} vrf {K}",
    f"{SA_TO} auth sha1 0x{K} enc aes 0x{COMMAND_KEY} vrf {K[:24]}",
    f"{SA_TO} aead {GCM} --{K} 128",
    f"{SA_TO} aead {GCM} {K} 128",
    f"{SA_TO} aead {GCM} 0x{COMMAND_KEY} {K}",
    f"{SA_TO} vrf {K[:24]} aead {GCM} 0x{K} 128",
    f"xfrm state delete src {K}",
    f"xfrm state delete dst 10.1.0.2 spi 1 vrf {K[:24]}",
    f"xfrm state get src {K}",
    f"xfrm state list reqid {K}",
    f"xfrm state flush proto {K}",
    f"xfrm state {K}",
    f"xfrm policy add src {K}",
    f"xfrm policy add src 10.1.0.0/16 dir {K}",
    f"xfrm policy add dir out tmpl dst 10.1.0.2 proto esp reqid {K}",
    f"xfrm policy list {K}",
    f"xfrm {K}",
    f"route add {K}",
    f"route add 10.9.0.0/16 via {K}",
    f"vrf add {K}",
    K,
]
"""Commands with a key in the wrong place."""


@pytest.mark.parametrize("line", LINES)
def test_no_error_of_a_command_shows_a_key_in_the_wrong_place(gateway, line):
    words = line.split()
    said = [gateway.run(*words, check=False), gateway.run("-j", *words, check=False)]
    assert all(done.returncode != 0 for done in said), said
    said += [gateway.run("help", *words, check=False), gateway.run(line, check=False)]
    said += [gateway.run("batch", *options, "-", stdin=line + "\n", check=False) for options in ([], ["-j"])]
    for done in said:
        assert K[:12] not in done.stdout + done.stderr, done


@pytest.mark.parametrize(
    "words",
    [
        ["explain", f"esp 10.1.0.1 > 10.1.0.2 spi {K}"],
        ["explain", f"udp 10.1.0.1 > 0x{K} in lan"],
        ["explain", f"udp 10.1.0.1 > 10.1.0.2 in {K}"],
        ["show", f"0x{K}"],
        ["show", "spd", "vrf", K],
        ["flow", "add", f"in_port=0x{K},actions=drop"],
        ["flow", "show", f"nw_src={K}"],
        ["monitor", K],
        ["xfrm", "monitor", K],
        ["conntrack", "-L", "-s", K],
        ["tap", "add", K],
        ["trace", "del", K],
    ],
)
def test_no_other_error_shows_a_key(gateway, words):
    for done in (gateway.run(*words, check=False), gateway.run("-j", *words, check=False)):
        assert done.returncode != 0 and K[:12] not in done.stdout + done.stderr, done


@pytest.mark.parametrize("words", [f"auth sha1 {K} enc foo", f"aead {GCM} {K}", f"aead {K}", f"aead {GCM} open-sesame"])
def test_help_shows_no_key(gateway, words):
    done = gateway.run("help", "xfrm", "state", "add", *words.split(), check=False)
    assert K[:12] not in done.stdout + done.stderr and "open-sesame" not in done.stdout + done.stderr, done


def test_words_that_are_no_keys_are_shown(gateway):
    for line, wrong in (
        ("xfrm state add src 192.0.2.1000", "src '192.0.2.1000' is not"),
        ("xfrm policy add src 2001:db8:aaaa:bbbb:cccc::1/129", "src '2001:db8:aaaa:bbbb:cccc::1/129'"),
        ("xfrm state add replay-windw 64", "'replay-windw'"),
        (f"{SA_TO} vrf customer-berlin aead {GCM} 0x{BATCH_KEY} 128", "there is no VRF 'customer-berlin'"),
    ):
        assert wrong in gateway.run(*line.split(), check=False).stderr


def test_a_key_without_0x_is_told_so(gateway):
    refused = gateway.run(*f"{SA_TO} aead {GCM} {K} 128".split(), check=False)
    assert "(in hexadecimal, with 0x in front)" in refused.stderr


@pytest.mark.parametrize(
    "broken",
    [
        ('source = "10.1.0.1"', f'source = "{K}"'),
        ("spi = 0x1000", f"spi = 0x{K}"),
        ("spi = 0x1000", f'spi = 0x1000\nmode = "{K}"'),
        ("spi = 0x1000", f'spi = 0x1000\nflags = ["{K}"]'),
        ("spi = 0x1000", f'spi = 0x1000\nvrf = "{K[:24]}"'),
        ("spi = 0x1000", f"spi = 0x1000\n{K} = 1"),
        ("spi = 0x1000", "spi = 0x1000\nmy-secret-key-1 = 1"),
        ("spi = 0x1000", f"spi = 0x1000\n{K}"),
        ("[[sa]]", f"[{K}]\n[[sa]]"),
        (f'key = "0x{FILE_KEY}"', f'key = "key:{K}"'),
    ],
)
def test_no_error_of_a_file_shows_a_key(gateway, tmp_path, broken):
    path = tmp_path / "broken.toml"
    path.write_text(gateway.without_sa + SA_IN_FILE.replace(*broken))
    path.chmod(0o600)
    state = tmp_path / "broken-state"
    state.mkdir(mode=0o700)
    for words in (["check"], ["check", "-j"], ["run", "--state-directory", state, "--config"]):
        done = run([binary(), *words, path], check=False)
        assert done.returncode != 0, done
        assert K[:12] not in done.stdout + done.stderr and "my-secret" not in done.stdout + done.stderr, done


@pytest.mark.parametrize(
    "wrong",
    [{"icv": K}, {"mode": K}, {"aead": K}, {K: 1}, {"vrf": K}, {"vrf": K[:24]}, {"source": K}, {"aead": {"icv_bits": K}}],
)
def test_no_reply_shows_a_key(gateway, wrong):
    aead = {"name": GCM, "key": f"0x{BATCH_KEY}", "icv_bits": 128} | wrong.get("aead", {}) if isinstance(wrong.get("aead", {}), dict) else K
    right = {"source": "10.1.0.1", "destination": "10.1.0.2", "spi": 1, "mode": "tunnel"}
    status, reply = post(gateway, {"do": "state_add", "with": right | wrong | {"aead": aead}})
    assert status >= 400 and K[:12] not in reply, reply
    assert K[:12] not in gateway.log()


def post(gateway, request):
    """The status and the body of the reply to a request."""
    connection = http.client.HTTPConnection("hitpath")
    connection.sock = socket.socket(socket.AF_UNIX)
    connection.sock.connect(str(gateway.socket))
    connection.request("POST", "/v1", json.dumps(request))
    reply = connection.getresponse()
    return reply.status, reply.read().decode()


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


def test_a_file_whose_keys_are_in_another_one_has_none(gateway, tmp_path):
    add(gateway, 0x2000)
    file = tmp_path / "saved.toml"
    gateway.run("save", "--keys", file)
    keys = tmp_path / "saved.toml.keys"
    file.chmod(0o644)

    def noted():
        done = run([binary(), "check", file])
        return done.stdout + done.stderr

    assert "others may read" not in noted()
    keys.chmod(0o644)
    assert "others may read this secret" in noted() and "it has keys" not in noted()
    keys.chmod(0o600)
    # One of them stands in the file.
    file.write_text(file.read_text().replace('"key:1"', f'"0x{"42" * 20}"'))
    assert "it has keys, and others may read it (mode 0644)" in noted()


def test_a_reload_warns_of_a_mode_once_until_it_or_the_file_changes(gateway, tmp_path):
    """Of the file itself, and of the one that `keys-file` names, which is read more than once for a reload."""
    add(gateway, 0x2000)
    gateway.run("save", "--keys", saved := tmp_path / "saved.toml")
    keys = tmp_path / "saved.toml.keys"
    gateway.write(saved.read_text())
    keys.chmod(0o640)

    def warned(change=None):
        """How often the two are warned of in two reloads and a look at what differs."""
        before = gateway.log()
        if change:
            change()
        for words in (["reload"], ["reload"], ["reload", "--dry-run"], ["diff"]):
            gateway.run(*words, check=False)
        log = gateway.log().removeprefix(before)
        return log.count("others may read this secret"), log.count("it has keys, and others may read it")

    assert warned() == (1, 0)
    assert warned() == (0, 0)
    assert warned(lambda: keys.chmod(0o644)) == (1, 0)
    # What is written to it later is no less readable.
    assert warned(lambda: (time.sleep(0.1), keys.write_text(keys.read_text()))) == (1, 0)
    assert warned(lambda: keys.chmod(0o600)) == (0, 0)
    gateway.write(gateway.without_sa + SA_IN_FILE)
    assert warned(lambda: gateway.config_path.chmod(0o644)) == (0, 1)
    assert warned() == (0, 0)
