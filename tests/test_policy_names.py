"""Names of policies: shown wherever a policy is, and there again after a restart, a save and a reload."""

import json

import pytest

from harness.audit import wait_for
from harness.failure import CommandFailed
from harness.gateway import Gateway, Here, binary
from harness.hosted import configured
from harness.netns import run

BERLIN = "xfrm policy add src 10.1.0.0/16 dst 10.2.0.0/16 dir out action block name berlin-1"


@pytest.fixture
def gateway(tmp_path):
    """A gateway on memory ports, with an audit log."""
    gateway = Gateway(Here, "", tmp_path)
    gateway.write(configured(gateway.socket, live=False, audit={"log": str(tmp_path / "audit.log")}))
    with gateway:
        yield gateway


def names(gateway):
    """Names by direction."""
    return sorted((policy["direction"], policy.get("name", "")) for policy in gateway.json("show", "policies"))


def test_a_name_is_shown_wherever_the_policy_is(gateway, tmp_path):
    gateway.run(*BERLIN.split())
    gateway.run(*BERLIN.replace("dir out", "dir in").split())
    gateway.run(*"xfrm policy add src 10.3.0.0/16 dst 10.4.0.0/16 dir out action block".split())
    assert names(gateway) == [("in", "berlin-1"), ("out", ""), ("out", "berlin-1")]
    for words in (["show", "policies"], ["show", "spd", "dir", "out"]):
        lines = gateway.run(*words).stdout.splitlines()
        head = next(line for line in lines if line.startswith("VRF"))
        row = next(line for line in lines if "10.1.0.0/16" in line)
        assert row[head.index("NAME") :].split()[0] == "berlin-1", row
    assert "\tname berlin-1\n" in gateway.run("xfrm", "policy", "list", "name", "berlin-1", "dir", "out").stdout
    listed = gateway.json("xfrm", "policy", "list", "name", "berlin-1")
    assert [policy["name"] for policy in listed] == ["berlin-1"] * 2
    gateway.run(*"route add 10.2.0.0/16 via 192.168.11.1".split())
    packet = "udp 10.1.0.1:1 > 10.2.0.1:2 in lan"
    (stage,) = [it for it in json.loads(gateway.run("-j", "explain", packet, check=False).stdout) if it["stage"] == "policy"]
    assert (stage["name"], stage["direction"]) == ("berlin-1", "in")
    assert ", name berlin-1, index " in gateway.run("explain", packet, check=False).stdout
    (record,) = wait_for(tmp_path / "audit.log", 1, command=BERLIN)
    assert record["outcome"] == "done"


def test_it_survives_a_restart_a_save_and_a_reload(gateway, tmp_path):
    gateway.run(*BERLIN.split())
    gateway.kill()
    gateway.start_again()
    assert names(gateway) == [("out", "berlin-1")]
    saved = tmp_path / "saved.toml"
    gateway.run("save", saved)
    text = saved.read_text()
    assert 'name = "berlin-1"' in text
    assert run([binary(), "check", saved]).returncode == 0
    gateway.write(text)
    gateway.run("reload")
    assert names(gateway) == [("out", "berlin-1")]
    assert gateway.run("diff").stdout.strip() in ("", "no difference")
    gateway.write(text.replace("berlin-1", "rome"))
    assert "name berlin-1 -> " in gateway.run("reload").stdout
    assert names(gateway) == [("out", "rome")]
    # An update says all, the name as well.
    gateway.run(*BERLIN.replace("add", "update").replace(" name berlin-1", "").split())
    assert names(gateway) == [("out", "")]


def test_what_is_no_name_is_refused(gateway, tmp_path):
    for name in ("_x", "two words", "a" * 64, 'a"b', ""):
        with pytest.raises(CommandFailed, match="not a name of a policy"):
            gateway.run(*BERLIN.split()[:-1], name)
    body = json.dumps({"do": "policy_add", "with": {"direction": "out", "action": "discard", "name": "a\nb"}})
    said = run(["curl", "-sS", "--unix-socket", gateway.socket, "http://hitpath/v1", "-d", body]).stdout
    assert "not a name of a policy" in said
    assert names(gateway) == []
