"""What `hitpath check` refuses by name, and what only a start would find otherwise."""

import json

import pytest

from harness.gateway import binary
from harness.netns import run

PORT = """
[[port]]
name = "lan"
kind = "memory"
addresses = ["10.1.0.1/24"]
"""

SA = """
[[sa]]
source = "10.1.0.1"
destination = "10.1.0.2"
spi = 0x1000
{line}
aead = {{ name = "rfc4106(gcm(aes))", key = "{key}" }}
"""

KEY = "0x8f1e6a44c05d93b7e2a86f10d47bc5391e0d72a6"


@pytest.fixture
def check(tmp_path):
    """Checks a file with a port, and returns the exit code and what was said."""

    def check(text, *options):
        path = tmp_path / "gw.toml"
        path.write_text(text + PORT)
        path.chmod(0o600)
        done = run([binary(), "check", *options, path], check=False)
        return done.returncode, done.stdout + done.stderr

    return check


@pytest.mark.parametrize("option", ["--config", "-c"])
def test_a_file_needs_no_option(option):
    done = run([binary(), "check", option, "gw.toml"], check=False)
    assert done.returncode == 2 and "give the FILE alone: hitpath check gw.toml\n" in done.stderr, done


@pytest.mark.parametrize(
    ("line", "says"),
    [
        ('mode = "transport"', 'mode = "transport" is not supported yet ("tunnel": hitpath protects in tunnel mode)'),
        ('mode = "tunel"', 'mode = "tunel" ("tunnel")'),
        ("esn = true", 'sa has no key "esn": there are no extended sequence numbers'),
        ('encap = "espinudp"', 'sa has no key "encap": there is no NAT traversal'),
        ("nat-traversal = true", 'sa has no key "nat-traversal": there is no NAT traversal'),
        ("lifetime = 3600", 'sa has no key "lifetime": SAs have no lifetimes here'),
        ("windw = 3", "known keys: "),
    ],
)
def test_what_an_sa_cannot_do_is_refused_by_name(check, line, says):
    code, told = check(SA.format(line=line, key=KEY))
    assert code == 1 and says in told, told


@pytest.mark.parametrize(
    ("section", "says"),
    [
        ("nat", "masquerade, snat and forwards of [firewall]"),
        ("qos", "[[qdisc]]"),
        ("acl", "[firewall] between zones, [[filter]] of a port or VRF"),
        ("syslog", "[audit] for who changed what"),
        ("log", "[audit] for who changed what"),
        ("vti", '[[port]] with kind = "xfrm"'),
        ("vlan", '[[port]] with kind = "vlan"'),
        ("interface", '[[port]] with kind = "af-packet"'),
        ("interfaces", '[[port]] with kind = "af-packet"'),
        ("routing", "[[route]] with to and via"),
        ("policies", "[[policy]]"),
        ("sr", "hitpath does no segment routing"),
    ],
)
def test_sections_of_others_are_told_what_is_here(check, section, says):
    code, told = check(f"[{section}]\n")
    assert code == 1 and f'there is no section "{section}": ' in told and says in told, told


def test_a_wrong_line_of_a_file_of_keys_is_said_by_its_number(check, tmp_path):
    keys = tmp_path / "k.keys"
    keys.write_text(f"{KEY}\n{KEY}\n0xzz\n{KEY}\n")
    keys.chmod(0o600)
    code, told = check('[gateway]\nkeys-file = "k.keys"\n' + SA.format(line="", key="key:1"))
    assert code == 1 and "k.keys:3: each line is a key" in told, told
    assert len(told.splitlines()) == 1, told
    # A first line that is no key counts as a line of the file.
    keys.write_text(f"# keys-id one\n{KEY}\n0xzz\n")
    with_id = '[gateway]\nkeys-file = "k.keys"\nkeys-id = "one"\n'
    code, told = check(with_id + SA.format(line="", key="key:1"))
    assert code == 1 and "k.keys:3: each line is a key" in told, told
    code, told = check('[gateway]\nkeys-id = "one"\n')
    assert code == 1 and "there is no keys-file" in told, told


@pytest.mark.parametrize("section", ["metrics", "page"])
def test_files_with_tokens_are_looked_at(check, tmp_path, section):
    text = f'[{section}]\naddress = "127.0.0.1:9464"\ntoken-file = "t.tok"\n'
    token = tmp_path / "t.tok"
    code, told = check(text)
    assert code == 1 and "gw.toml:3:14: " in told and "No such file" in told, told
    for wrong in ("short", "two words of a length that is right"):
        token.write_text(wrong)
        token.chmod(0o600)
        code, told = check(text)
        assert code == 1 and f"token-file in [{section}] has one line of 16 to 256" in told and wrong not in told, told
    token.write_text("0123456789abcdef0123456789abcdef\n")
    assert check(text)[0] == 0


@pytest.mark.parametrize(
    ("text", "says"),
    [
        ('[audit]\nlog = "/nosuch/dir/audit.log"\n', "log in [audit]: /nosuch/dir: No such file"),
        ('[metrics]\naddress = "203.0.113.9:9464"\nanyone = true\n', "address in [metrics]: 203.0.113.9:9464: "),
        ('[page]\nsocket = "/etc/passwd/page.sock"\n', "socket in [page]: /etc/passwd/page.sock: /etc/passwd is no directory"),
        ('[gateway]\nsocket = "/etc/passwd"\n', "socket in [gateway]: /etc/passwd exists and is no socket"),
    ],
)
def test_what_this_machine_cannot_give_is_found_with_live(check, text, says):
    assert check(text)[0] == 0
    code, told = check(text, "--live")
    assert code == 1 and says in told, told
    code, told = check(text, "--live", "-j")
    assert code == 1 and any(says in place for place in json.loads(told)["live"][0]["places"]), told
