"""What commands change survives: a crash, a torn write, a full disk; and what is damaged is not guessed at."""

import os
import re
import signal
import subprocess
import threading
import time

import pytest

from harness import metrics
from harness.failure import CommandFailed
from harness.gateway import Gateway, Here, binary
from harness.netns import run
from harness.slow_disk import SlowDisk

KEY = "0x00112233445566778899aabbccddeeff01020304"

CONFIG = """
[gateway]
socket = "{socket}"
{gateway}

[[port]]
name = "lan"
kind = "memory"
mac = "02:00:00:00:00:01"
addresses = ["10.1.0.1/16", "fd01::1/64"]

[[port]]
name = "wan"
kind = "memory"
mac = "02:00:00:00:00:02"
addresses = ["192.0.2.1/24"]

[[route]]
to = "default"
via = "192.0.2.2"

[[policy]]
direction = "out"
source = "10.1.0.0/16"
destination = "10.2.0.0/16"
action = "discard"
"""

SA = f"src 192.0.2.1 dst 192.0.2.2 proto esp spi 0x1001 mode tunnel reqid 1 aead rfc4106(gcm(aes)) {KEY} 128"

CHANGES = f"""\
route add 10.9.0.0/16 via 192.0.2.9
route add 10.8.0.0/16 nexthop via 192.0.2.3 weight 3 nexthop via 192.0.2.4 dev wan
route replace default via 192.0.2.254
vrf add blue
link add link wan name wan.100 vrf blue up type vlan id 100
addr add 172.16.0.1/24 dev wan.100
addr add 10.1.0.9/16 dev lan
route add default via 172.16.0.2 vrf blue
neigh add 192.0.2.2 lladdr 02:00:00:00:00:99 dev wan
xfrm state add {SA}
xfrm policy add src 10.1.0.0/16 dst 10.3.0.0/16 dir out tmpl dst 192.0.2.2 proto esp mode tunnel reqid 1
xfrm policy add src 10.1.0.1-10.1.0.9 dst 10.4.0.0/16 proto tcp dport 80-90 dir fwd priority 7 action block
xfrm policy delete src 10.1.0.0/16 dst 10.2.0.0/16 dir out
xfrm policy setdefault in accept
link set wan mtu 1400
link set lan down"""

TABLES = ("ports", "routes", "policies", "sas", "neighbours", "vrfs")

CHANGING = {"index", "id", "statistics", "packets", "bytes", "errors", "age_ms", "age_seconds", "sent_sequence"}
"""Members that begin anew with a gateway, or go on behind what may have been sent."""


def config(gateway=""):
    """A configuration whose keys of `[gateway]` are these."""
    return CONFIG.replace("{gateway}", gateway)


@pytest.fixture
def make(tmp_path):
    """Makes a gateway with keys of `[gateway]`, which is not running yet."""

    def made(keys=""):
        gateway = Gateway(Here(), "", tmp_path)
        gateway.write(config(keys).replace("{socket}", str(gateway.socket)))
        return gateway

    return made


@pytest.fixture
def gateway(make):
    """A gateway on memory ports."""
    with make() as running:
        yield running


def tables(gateway):
    """All tables, without what begins anew."""

    def lasting(value):
        if isinstance(value, dict):
            return {name: lasting(part) for name, part in value.items() if name not in CHANGING}
        return [lasting(part) for part in value] if isinstance(value, list) else value

    shown = {what: lasting(gateway.json("show", what)) for what in TABLES}
    shown["keys"] = gateway.run("xfrm", "state", "list", "keys").stdout.count(KEY)
    return shown


def change(gateway, lines=CHANGES):
    """Carries commands out, one after the other."""
    for line in lines.splitlines():
        gateway.run(*line.split())


def crash(gateway):
    """The gateway crashes and is started again."""
    gateway.kill()
    gateway.start_again()


def state(*words, check=True):
    """`hitpath state`."""
    return run([binary(), "state", *words], check=check)


def eventually(is_so, gateway):
    """Waits until something is so."""
    end = time.monotonic() + 10
    while not is_so():
        assert time.monotonic() < end, gateway.log()
        time.sleep(0.1)


def fill(path):
    """Writes a file until the disk is full."""
    with path.open("wb", buffering=0) as file:
        try:
            while True:
                file.write(bytes(512))
        except OSError:
            pass


def test_what_was_answered_is_there_after_a_crash(gateway):
    untouched = tables(gateway)
    change(gateway)
    before = tables(gateway)
    assert before != untouched and before["keys"] == 1
    for _ in range(2):
        crash(gateway)
        assert tables(gateway) == before
    # The same commands undo it, and that is there as well.
    change(
        gateway,
        "route del 10.9.0.0/16\naddr del 172.16.0.1/24 dev wan.100\nlink del wan.100\nxfrm state flush\nlink set lan up",
    )
    before = tables(gateway)
    crash(gateway)
    assert tables(gateway) == before and before["keys"] == 0


def test_a_batch_is_there_as_a_whole(gateway, tmp_path):
    lines = "".join(f"route add 10.{a}.{b}.0/24 via 192.0.2.9\n" for a in range(100, 104) for b in range(250))
    file = tmp_path / "routes.txt"
    file.write_text(lines)
    gateway.run("batch", "--atomic", file)
    crash(gateway)
    assert gateway.run("route", "show").stdout.count("via 192.0.2.9") == 1000
    file.write_text("route add 10.200.0.0/16 via 192.0.2.9\nroute add 10.200.0.0/16 via 192.0.2.9\n")
    assert gateway.run("batch", "--atomic", file, check=False).returncode == 1
    crash(gateway)
    assert "10.200.0.0/16" not in gateway.run("route", "show").stdout


def test_killed_while_changes_come(gateway):
    for turn in range(5):
        answered = []

        def add(turn=turn, answered=answered):
            for number in range(2000):
                route = f"10.{100 + turn}.{number // 250}.{number % 250}"
                if gateway.run("route", "add", route, "via", "192.0.2.9", check=False).returncode != 0:
                    return
                answered.append(route)

        adding = threading.Thread(target=add)
        adding.start()
        while len(answered) < 3 + turn and adding.is_alive():
            time.sleep(0.01)
        gateway.kill()
        adding.join()
        gateway.start_again()
        shown = {line.split()[0] for line in gateway.run("route", "show").stdout.splitlines()}
        assert answered and set(answered) <= shown
        # At most the one that was not answered any more.
        of_turn = {route for route in shown if route.startswith(f"10.{100 + turn}.")}
        assert len(of_turn) <= len(answered) + 1


def test_many_clients_share_the_disk(gateway):
    threads = [
        threading.Thread(target=lambda n=n: change(gateway, f"route add 10.{100 + n}.0.0/16 via 192.0.2.9"))
        for n in range(40)
    ]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    crash(gateway)
    assert gateway.run("route", "show").stdout.count("via 192.0.2.9") == 40


def test_without_sync_it_is_there_soon(gateway):
    for number in range(20):
        gateway.run("route", "add", f"10.{100 + number}.0.0/16", "via", "192.0.2.9", "--no-sync")
    # A change that waits is written behind those.
    gateway.run("vrf", "add", "last")
    crash(gateway)
    assert gateway.run("route", "show").stdout.count("via 192.0.2.9") == 20


@pytest.mark.parametrize("end", ["crash", "stop"])
def test_flows_whose_time_is_over_do_not_come_back(gateway, end):
    gateway.run("flow", "add", "priority=5,hard_timeout=1,ip,actions=NORMAL")
    gateway.run("flow", "add", "priority=6,ip,nw_dst=10.2.0.9,actions=NORMAL")
    deadline = time.monotonic() + 10
    while len(gateway.json("flow", "show")) > 1:
        assert time.monotonic() < deadline
        time.sleep(0.1)
    # No command has come since. A crash may lose what has not reached the disk yet.
    if end == "crash":
        while "flow del" not in (gateway.state_path / "log").read_text(errors="replace"):
            assert time.monotonic() < deadline
            time.sleep(0.1)
        gateway.kill()
    else:
        gateway.__exit__(None, None, None)
    gateway.start_again()
    assert [flow["priority"] for flow in gateway.json("flow", "show")] == [6]


def test_a_torn_last_write_is_dropped(gateway):
    change(gateway)
    before = tables(gateway)
    gateway.run("route", "add", "10.77.0.0/16", "via", "192.0.2.9")
    gateway.kill()
    kept = {file: file.read_bytes() for file in gateway.state_path.iterdir()}
    log = gateway.state_path / "log"
    whole = kept[log]
    for torn in (whole[:-7], whole[:-7] + bytes(7)):
        for file, data in kept.items():
            file.write_bytes(data)
        log.write_bytes(torn)
        assert "not written whole" in state("show", gateway.state_path).stderr
        gateway.start_again()
        assert "cut short" in gateway.log()
        assert tables(gateway) == before
        crash(gateway)
        assert "cut short" not in gateway.log() and tables(gateway) == before
        gateway.kill()
    gateway.start_again()


def test_damage_is_refused_with_what_mends_it(gateway):
    change(gateway)
    # Each change is written by itself, so that there is something behind the damage.
    gateway.kill()
    log = gateway.state_path / "log"
    data = bytearray(log.read_bytes())
    at = data.index(b"vrf add blue")
    data[at] ^= 0x20
    log.write_bytes(data)
    with pytest.raises(CommandFailed, match=f"hitpath state repair {gateway.state_path}"):
        gateway.start_again()
    assert "damaged bytes at byte" in gateway.log()
    assert state("show", gateway.state_path, check=False).returncode == 1
    repaired = state("repair", gateway.state_path).stdout
    assert "16 commands kept" in repaired and "could not be read" in repaired and "log.damaged.1" in repaired
    assert (gateway.state_path / "log.damaged.1").read_bytes() == data
    gateway.start_again()
    routes = gateway.run("route", "show").stdout
    assert "10.9.0.0/16" in routes and "nexthop" in routes
    # The VLAN was in the VRF that is lost, and the log says so.
    assert "link add link wan name wan.100" in gateway.log() and "log.before" in gateway.log()
    gateway.kill()
    assert "keys" in state("drop", gateway.state_path).stdout
    assert not list(gateway.state_path.glob("keys.*"))
    gateway.start_again()
    assert gateway.run("diff").stdout == ""


def ipsec(gateway):
    return {vrf["name"]: (vrf["ipsec"], vrf["closed"]) for vrf in gateway.json("vrf", "show")}


def closed_by_flows(gateway):
    return {flow.get("vrf", "main") for flow in gateway.json("flow", "show") if flow["actions"] == "drop"}


def test_what_a_repair_may_have_lost_leaves_vrfs_closed(gateway):
    gateway.run("vrf", "add", "blue")
    words = "dir out vrf blue tmpl src 192.0.2.1 dst 192.0.2.2 proto esp reqid 9 mode tunnel"
    gateway.run("xfrm", "policy", "add", "src", "10.1.0.0/16", "dst", "10.9.0.0/16", *words.split())
    gateway.run("vrf", "add", "green")
    assert ipsec(gateway)["blue"] == ("required", False) and ipsec(gateway)["green"] == ("auto", False)
    gateway.kill()
    log = gateway.state_path / "log"
    data = bytearray(log.read_bytes())
    data[data.index(b"xfrm policy add")] ^= 0x20
    log.write_bytes(data)
    said = state("repair", gateway.state_path).stdout
    assert "policies, flows, filters and the firewall may be lost" in said
    assert "`hitpath vrf set NAME ipsec auto`" in said and "`hitpath state drop`" in said
    gateway.start_again()
    assert "hitpath vrf set blue ipsec auto" in gateway.log()
    vrfs = {"main", "blue", "green"}
    for vrf in vrfs:
        assert f"hitpath flow del --strict 'vrf={vrf},table=0,priority=0'" in gateway.log()
    for _ in range(2):
        assert ipsec(gateway)["blue"] == ipsec(gateway)["green"] == ("required", True)
        assert closed_by_flows(gateway) == vrfs
        crash(gateway)
    # Who opens one is heard.
    gateway.run("vrf", "set", "green", "ipsec", "auto")
    gateway.run("flow", "del", "--strict", "vrf=green,table=0,priority=0")
    crash(gateway)
    assert ipsec(gateway)["green"] == ("auto", False) and ipsec(gateway)["blue"] == ("required", True)
    assert closed_by_flows(gateway) == vrfs - {"green"}


def test_a_torn_last_write_that_is_repaired_closes_nothing(gateway):
    gateway.run("vrf", "add", "green")
    gateway.run("vrf", "add", "blue")
    gateway.kill()
    log = gateway.state_path / "log"
    log.write_bytes(log.read_bytes()[:-7])
    said = state("repair", gateway.state_path).stdout
    assert "could not be read" in said and "may be lost" not in said
    gateway.start_again()
    assert ipsec(gateway)["green"] == ("auto", False) and "blue" not in ipsec(gateway)
    assert not closed_by_flows(gateway)


def test_a_log_that_is_missing_is_refused(gateway):
    change(gateway)
    gateway.kill()
    (gateway.state_path / "log").unlink()
    with pytest.raises(CommandFailed, match=f"hitpath state drop {gateway.state_path}"):
        gateway.start_again()
    assert "log is missing" in gateway.log()
    assert state("repair", gateway.state_path, check=False).returncode == 1
    assert "without changes" in state("drop", gateway.state_path).stdout
    # What it does not forget are sequence numbers.
    (gateway.state_path / "sequences").rename(gateway.state_path / "aside")
    with pytest.raises(CommandFailed, match="hitpath state forget-sequences"):
        gateway.start_again()
    (gateway.state_path / "aside").rename(gateway.state_path / "sequences")
    gateway.start_again()
    assert gateway.run("diff").stdout == ""


def test_keys_are_in_a_file_of_their_own(gateway):
    change(gateway)
    assert (gateway.state_path.stat().st_mode & 0o777) == 0o700
    keys = bytes.fromhex(KEY[2:])
    holding = []
    for file in gateway.state_path.iterdir():
        assert (file.stat().st_mode & 0o777) == 0o600, file
        data = file.read_bytes()
        if keys in data or KEY[2:].encode() in data.lower():
            holding.append(file.name)
    assert len(holding) == 1 and holding[0].startswith("keys."), holding
    gateway.kill()
    shown = state("show", gateway.state_path)
    assert "xfrm state add" in shown.stdout and KEY[2:] not in shown.stdout + shown.stderr
    gateway.start_again()
    assert KEY[2:] not in gateway.log()
    # The SA is gone, and with the next start so is its key.
    gateway.run("xfrm", "state", "flush")
    crash(gateway)
    assert not any(KEY[2:].encode() in file.read_bytes() for file in gateway.state_path.iterdir())


def test_keys_are_not_kept_if_told_so(make):
    with make("keep-keys = false") as gateway:
        change(gateway)
        crash(gateway)
        assert gateway.json("show", "sas") == []
        # What it protected is dropped until an SA is there again.
        assert len(gateway.json("show", "policies")) == 2
        said = gateway.run("explain", "udp 10.1.0.5:1 > 10.3.0.5:2 in lan", check=False)
        assert said.returncode == 1, said.stdout
        assert not list(gateway.state_path.glob("keys.*"))


def test_a_full_disk_refuses_changes_and_nothing_else(make, root, tmp_path):
    disk = tmp_path / "disk"
    disk.mkdir()
    run(["mount", "-t", "tmpfs", "-o", "size=128k,mode=0700", "tmpfs", disk])
    try:
        gateway = make()
        gateway.state_path = disk / "state"
        with gateway:
            change(gateway)
            filler = disk / "filler"
            fill(filler)
            refused = []
            for number in range(250):
                done = gateway.run("route", "add", f"10.100.{number}.0/24", "via", "192.0.2.9", check=False)
                if done.returncode != 0:
                    refused.append(done.stderr)
                    if len(refused) == 2:
                        break
            assert len(refused) == 2, "the disk was not full"
            assert "No space left" in refused[0] and "in force, and was not kept" in refused[0]
            assert "No space left" in refused[1] and "changes cannot be kept" in refused[1]
            # Nothing was changed by the second.
            assert f"10.100.{number}.0/24" not in gateway.run("route", "show").stdout
            assert f"10.100.{number - 1}.0/24" in gateway.run("route", "show").stdout
            # It is told once, and shown.
            eventually(lambda: gateway.log().count("changes by command cannot be kept") == 1, gateway)
            assert "No space left" in gateway.json("show", "daemon")["kept"]["changes_failure"]
            shown = gateway.run("show", "daemon").stdout
            assert re.search(r"changes by command +not kept: .*No space left", shown), shown
            assert metrics.samples(metrics.ask(gateway.socket))["hitpath_changes_kept", ()] == 0
            # SAs end all the same, and come back if the gateway is killed before there is room.
            ending = ("xfrm", "state", "delete", "dst", "192.0.2.2", "proto", "esp", "spi", "0x1001")
            for words, lines in [(ending, None), (("batch", "-"), "xfrm state flush\n")]:
                assert len(gateway.json("show", "sas")) == 1
                done = gateway.run(*words, stdin=lines, check=False)
                assert done.returncode == 1 and "in force, and was not kept" in done.stderr, done
                assert gateway.json("show", "sas") == []
                if lines is None:
                    crash(gateway)
            done = gateway.run("xfrm", "policy", "deleteall", check=False)
            assert done.returncode == 1 and "changes cannot be kept" in done.stderr, done
            # All that reads works.
            before = tables(gateway)
            gateway.run("explain", "udp 10.1.0.5:1 > 10.9.0.5:2 in lan", check=False)
            # Each line of a batch that goes on is counted as refused.
            lines = "".join(f"route add 10.101.{n}.0/24 via 192.0.2.9\n" for n in range(3))
            done = gateway.run("batch", "--force", "-", stdin=lines, check=False)
            assert done.returncode == 1 and "0 commands carried out, 3 refused" in done.stdout, done
            assert "standard input:1-3: changes cannot be kept" in done.stderr, done
            filler.unlink()
            end = time.monotonic() + 20
            while gateway.run("vrf", "add", "room", check=False).returncode != 0:
                assert time.monotonic() < end, gateway.log()
                time.sleep(0.2)
            gateway.run("vrf", "del", "room")
            eventually(lambda: "changes are kept again" in gateway.log(), gateway)
            daemon = gateway.json("show", "daemon")["kept"]
            assert daemon == {"directory": str(gateway.state_path)}
            assert metrics.samples(metrics.ask(gateway.socket))["hitpath_changes_kept", ()] == 1
            crash(gateway)
            assert tables(gateway) == before
            # A gateway starts on a full disk too, as it was.
            gateway.kill()
            fill(filler)
            gateway.start_again()
            assert tables(gateway) == before and "changes by command are refused" in gateway.log()
    finally:
        run(["umount", "-l", disk])


def test_a_gateway_ends_though_the_disk_hangs(make, tmp_path):
    gateway, disk = make(), SlowDisk(tmp_path)
    gateway.env = disk.environment()
    with gateway:
        gateway.run("vrf", "add", "kept")
        disk.mode("hang")
        gateway.run("vrf", "add", "lost", "--no-sync")
        assert "lost" in gateway.run("vrf", "show").stdout
        gateway.process.send_signal(signal.SIGTERM)
        assert gateway.process.wait(60) == 0
        log = gateway.log()
        assert "ending without the last changes" in log, log
        disk.mode(0)
        crash(gateway)
        assert "kept" in gateway.run("vrf", "show").stdout


def test_two_gateways_do_not_share_a_directory(gateway, tmp_path):
    other = tmp_path / "other"
    other.mkdir()
    second = Gateway(Here(), config().replace("{socket}", str(other / "hitpath.sock")), other)
    second.state_path = gateway.state_path
    with pytest.raises(CommandFailed, match=f"in use by process {gateway.process.pid}: hitpath run"):
        second.__enter__()
    assert "in use" in state("show", gateway.state_path, check=False).stderr
    change(gateway)


def test_a_directory_that_cannot_be_used_is_told(make, tmp_path):
    file = tmp_path / "file"
    file.write_text("")
    open_to_all = tmp_path / "open"
    open_to_all.mkdir(mode=0o755)
    for path, word in ((file / "state", 'state-directory = "off"'), (open_to_all, "chmod 0700")):
        gateway = make()
        gateway.state_path = path
        with pytest.raises(CommandFailed, match=word):
            gateway.__enter__()


def test_what_another_file_names_is_as_it_says(gateway):
    change(gateway)
    gateway.kill()
    text = gateway.config_path.read_text()
    text = text.replace('via = "192.0.2.2"', 'via = "192.0.2.3"')
    gateway.write(text + '\n[[route]]\nto = "10.9.0.0/16"\nvia = "192.0.2.7"\n')
    gateway.start_again()
    routes = gateway.run("route", "show").stdout
    # What the file names, whether a command had changed it or added it, is as the file says.
    assert "default via 192.0.2.3" in routes and "10.9.0.0/16 via 192.0.2.7" in routes
    assert "UP" in gateway.json("link", "show", "lan")[0]["flags"]
    assert [port["mtu"] for port in gateway.json("show", "ports")][:2] == [1500, 1500]
    assert "dst 10.2.0.0/16" in gateway.run("xfrm", "policy", "list").stdout
    # What commands had added is there.
    assert "10.8.0.0/16" in routes and "wan.100" in gateway.run("link", "show").stdout
    assert len(gateway.json("show", "sas")) == 1
    before = tables(gateway)
    crash(gateway)
    assert tables(gateway) == before
    # A reload does the same.
    gateway.run("route", "del", "10.9.0.0/16")
    gateway.run("reload")
    reloaded = tables(gateway)
    assert reloaded == before
    crash(gateway)
    assert tables(gateway) == before


def test_off_keeps_nothing(make):
    with make("allow-sequence-reuse = true") as gateway:
        gateway.kill()
        gateway.state_path = "off"
        gateway.start_again()
        change(gateway)
        crash(gateway)
        assert gateway.run("diff").stdout == ""
        assert "not kept" in gateway.log()


def test_diff_shows_what_commands_have_changed(gateway):
    assert gateway.run("diff").stdout == "" and gateway.json("diff") == {"changes": []}
    change(gateway)
    done = gateway.run("diff", check=False)
    assert done.returncode == 1
    lines = done.stdout.splitlines()
    for line in (
        "+ vrf blue",
        "+ route 10.9.0.0/16 via 192.0.2.9",
        "~ route 0.0.0.0/0 via 192.0.2.2 -> 0.0.0.0/0 via 192.0.2.254",
        "- policy src 10.1.0.0/16 dst 10.2.0.0/16 dir out action block",
        "+ neighbour 192.0.2.2 dev wan lladdr 02:00:00:00:00:99",
        "~ port wan: mtu 1500 -> 1400",
        "~ port lan: down, + address 10.1.0.9/16",
        "~ vrf main: default in block -> accept",
    ):
        assert line in lines, (line, lines)
    assert KEY[2:] not in done.stdout
    asked = gateway.run("diff", "-j", check=False)
    assert asked.returncode == 1 and '"added"' in asked.stdout


def test_what_is_saved_makes_the_same_gateway(gateway, make, tmp_path):
    change(gateway)
    before = tables(gateway)
    folder = tmp_path / "saved"
    folder.mkdir()
    file = folder / "gw.toml"
    said = gateway.run("save", file).stderr
    assert "sa src 192.0.2.1" in said and not (folder / "gw.toml.keys").exists()
    assert gateway.run("save").stdout == file.read_text()
    gateway.run("save", "--keys", file)
    keys = folder / "gw.toml.keys"
    assert (keys.stat().st_mode & 0o777) == 0o600 and KEY in keys.read_text()
    assert KEY[2:] not in file.read_text()
    run([binary(), "check", file])
    gateway.write(file.read_text().replace('"gw.toml.keys"', f'"{keys}"'))
    assert gateway.run("diff").stdout == ""
    gateway.run("reload")
    gateway.kill()
    state("drop", gateway.state_path)
    gateway.start_again()

    def without_origin(shown):
        if isinstance(shown, dict):
            return {name: without_origin(part) for name, part in shown.items() if name not in ("origin", "protocol")}
        return [without_origin(part) for part in shown] if isinstance(shown, list) else shown

    assert without_origin(tables(gateway)) == without_origin(before)


NOBODY = 65534


def test_save_goes_through_nothing_that_others_have_planted(gateway, tmp_path):
    """Links and files of others in a folder that everybody may write to, and files that others may read."""
    change(gateway)
    victim, shared = tmp_path / "victim", tmp_path / "shared"
    victim.write_text("before")
    shared.mkdir()
    shared.chmod(0o1777)
    (shared / "own").mkdir()
    (shared / "link").symlink_to(victim)
    (shared / "up").symlink_to(tmp_path)
    (shared / "file").write_text("")
    (tmp_path / "to_link").symlink_to(shared / "link")
    for name in ("link", "up", "file"):
        os.chown(shared / name, NOBODY, NOBODY, follow_symlinks=False)
    for planted in (shared / "link", tmp_path / "to_link", shared / "up" / "victim", shared / "file"):
        done = gateway.run("save", planted, check=False)
        assert done.returncode == 1, done
        assert "belongs to user 65534, " in done.stderr, done.stderr
    for name in ("link", "file"):
        (shared / f"{name}.toml.keys").symlink_to(victim)
        os.chown(shared / f"{name}.toml.keys", NOBODY, NOBODY, follow_symlinks=False)
        assert gateway.run("save", "--keys", shared / f"{name}.toml", check=False).returncode == 1
        assert not (shared / f"{name}.toml").exists(), "nothing is half done"
    assert victim.read_text() == "before" and (shared / "file").read_text() == ""
    gateway.run("save", "--keys", shared / "new.toml")
    gateway.run("save", "--keys", shared / "own" / "gw.toml")
    # Elsewhere a configuration keeps its owner, who is to have no keys.
    other = tmp_path / "other.toml"
    for name in (other, tmp_path / "other.toml.keys"):
        name.write_text("")
        os.chown(name, NOBODY, NOBODY)
    done = gateway.run("save", "--keys", other, check=False)
    assert done.returncode == 1 and "belongs to user 65534, who would read the keys" in done.stderr, done.stderr
    assert (other.read_text(), (tmp_path / "other.toml.keys").read_text()) == ("", "")
    gateway.run("save", other)
    assert other.stat().st_uid == NOBODY and "[[sa]]" not in other.read_text()
    # A file behind a descriptor is appended to, and no file of ours is left beside.
    both = tmp_path / "both"
    both.write_text("first\n")
    with both.open("a") as output:
        env = os.environ | {"HITPATH_SOCKET": str(gateway.socket)}
        subprocess.run([binary(), "save", "/dev/stdout"], stdout=output, env=env, check=True, stderr=subprocess.DEVNULL)
    assert both.read_text().startswith("first\n") and both.read_text().endswith(other.read_text())
    assert not [name for name in os.listdir(tmp_path) + os.listdir(shared) if name.startswith(".hitpath")]


def test_a_log_that_grows_is_begun_anew(gateway, tmp_path):
    file = tmp_path / "lines.txt"
    file.write_text("route add 10.99.0.0/16 via 192.0.2.9\nroute del 10.99.0.0/16\n" * 20_000)
    gateway.run("batch", file)
    gateway.run("vrf", "add", "kept")
    end = time.monotonic() + 10
    while (gateway.state_path / "log").stat().st_size > 1 << 20:
        assert time.monotonic() < end
        time.sleep(0.1)
    crash(gateway)
    assert gateway.run("diff", check=False).stdout == "+ vrf kept\n"
