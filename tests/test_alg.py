"""FTP and TFTP through the gateway: Debian's servers and clients, hosts that are network namespaces.

Flows open the control port alone. What a data connection needs is announced on the control connection.
"""

import hashlib
import re
import subprocess
import time

import pytest
from harness.config import Config
from harness.gateway import Gateway
from test_namespaces import LEFT, RIGHT, attach

pytestmark = pytest.mark.namespaces

BASE = """
table=0, priority=1 actions=drop
table=0, priority=10,arp actions=NORMAL
table=0, priority=110,icmp6 actions=NORMAL
table=0, priority=100,ip actions=ct(table=1,nat)
table=0, priority=100,ipv6 actions=ct(table=1,nat)
table=1, priority=30,ct_state=+trk+rel+new,ip actions=ct(commit,nat),NORMAL
table=1, priority=30,ct_state=+trk+rel+new,ipv6 actions=ct(commit,nat),NORMAL
table=1, priority=20,ct_state=+trk+est,ip actions=NORMAL
table=1, priority=20,ct_state=+trk+est,ipv6 actions=NORMAL
"""
"""Every flow but the one of the control connection."""

PLAIN = (
    "table=1, priority=10,ct_state=+trk+new,tcp,in_port=left,tp_dst=21 actions=ct(commit,alg=ftp),NORMAL\n"
    "table=1, priority=10,ct_state=+trk+new,tcp6,in_port=left,tp_dst=21 actions=ct(commit,alg=ftp),NORMAL\n"
    "table=1, priority=10,ct_state=+trk+new,udp,in_port=left,tp_dst=69 actions=ct(commit,alg=tftp),NORMAL\n"
    "table=1, priority=10,ct_state=+trk+new,udp6,in_port=left,tp_dst=69 actions=ct(commit,alg=tftp),NORMAL\n"
)
SOURCE = {4: RIGHT[4][0], 6: f"[{RIGHT[6][0]}]"}
MASQUERADE = re.sub(
    r"(tcp|udp)(6?)(.*?)alg=(\w+)\)",
    lambda found: f"{found[1]}{found[2]}{found[3]}alg={found[4]},nat(src={SOURCE[6 if found[2] else 4]}))",
    PLAIN,
)
PORT_FORWARD = (
    f"table=1, priority=10,ct_state=+trk+new,tcp,in_port=right,nw_dst={RIGHT[4][0]},tp_dst=2121 "
    f"actions=ct(commit,alg=ftp,nat(dst={LEFT[4][1]}:21)),NORMAL\n"
    f"table=1, priority=10,ct_state=+trk+new,tcp6,in_port=right,ipv6_dst={RIGHT[6][0]},tp_dst=2121 "
    f"actions=ct(commit,alg=ftp,nat(dst=[{LEFT[6][1]}]:21)),NORMAL\n"
)

VSFTPD = """
listen=NO
listen_ipv6=YES
background=NO
anonymous_enable=YES
local_enable=NO
write_enable=YES
anon_upload_enable=YES
anon_umask=022
no_anon_password=YES
anon_root={root}
connect_from_port_20=YES
seccomp_sandbox=NO
secure_chroot_dir={empty}
xferlog_enable=NO
"""

WAYS = {
    "epsv": [],
    "pasv": ["--disable-epsv"],
    "eprt": ["--ftp-port", "-"],
    "port": ["--ftp-port", "-", "--disable-eprt"],
}
"""How curl asks for the data connection."""


@pytest.fixture
def hosts(topology, tmp_path):
    """Two hosts with the gateway between them: `(left, right, gateway)`."""
    topology.namespace("gw")
    left, left_port = attach(topology, "left", LEFT)
    right, right_port = attach(topology, "right", RIGHT)
    with Gateway(topology["gw"], Config(ports=[left_port, right_port]), tmp_path) as gateway:
        yield left, right, gateway


def replace(gateway, flows):
    gateway.run("flow", "replace", "-", stdin=flows)


class Vsftpd:
    """A server for anonymous users on a host, with `big` to read and `in/` to write into."""

    def __init__(self, host, directory):
        self.host, self.root = host, directory / "ftp"
        (self.root / "in").mkdir(parents=True)
        self.big = hashlib.sha512(b"big").digest() * 30_000
        (self.root / "big").write_bytes(self.big)
        (self.root / "in").chmod(0o777)
        # vsftpd drops its rights before it comes here.
        for path in (self.root, *self.root.parents):
            if path.stat().st_uid == 0 and path != path.parent:
                path.chmod(path.stat().st_mode | 0o555)
        self.root.chmod(0o555)
        empty = directory / "empty"
        empty.mkdir()
        self.config = directory / "vsftpd.conf"
        self.config.write_text(VSFTPD.format(root=self.root, empty=empty))

    def __enter__(self):
        self.process = self.host.start("vsftpd", self.config)
        wait_for_port(self.host, "t", 21)
        return self

    def __exit__(self, *_):
        self.process.kill()
        self.process.wait()


def wait_for_port(host, kind, port):
    for _ in range(100):
        if f":{port} " in host.run("ss", f"-{kind}lnH").stdout:
            return
        time.sleep(0.05)
    raise AssertionError(f"nobody listens at port {port}")


def url(address, path, scheme="ftp", port=""):
    address = f"[{address}]" if ":" in address else address
    return f"{scheme}://{address}{port}/{path}"


def curl(host, *words):
    return host.run("curl", "-sS", "-g", "-m", "15", *words, timeout=20)


def fetched(host, path, *words):
    curl(host, "-o", path, *words)
    return path.read_bytes()


def moved_both_ways(server, client, target, tmp_path, way, port=""):
    """Reads and writes a file, and lists the directory, over one kind of data connection."""
    assert fetched(client, tmp_path / "got", *WAYS[way], url(target, "big", port=port)) == server.big
    local = tmp_path / "sent"
    local.write_bytes(server.big[: 300_000])
    name = f"in/{way}-{target.replace(':', '-')}"
    curl(client, *WAYS[way], "-T", local, url(target, name, port=port))
    assert (server.root / name).read_bytes() == local.read_bytes()
    assert "big" in curl(client, *WAYS[way], url(target, "", port=port)).stdout


ways = pytest.mark.parametrize("way", WAYS)


def ways_of(family):
    # PORT and PASV have no words for IPv6 (RFC 2428).
    return WAYS if family == 4 else ("epsv", "eprt")


@pytest.mark.parametrize("flows", [PLAIN, MASQUERADE], ids=["plain", "masquerade"])
@pytest.mark.parametrize("family", [4, 6], ids=["v4", "v6"])
def test_ftp_of_real_programs(hosts, tmp_path, flows, family):
    left, right, gateway = hosts
    replace(gateway, BASE + flows)
    with Vsftpd(right, tmp_path) as server:
        for way in ways_of(family):
            moved_both_ways(server, left, RIGHT[family][1], tmp_path, way)
    statistics = gateway.json("conntrack", "-S")
    assert statistics["followed"] >= 6 and statistics["distrusted"] == 0, statistics
    expected = [c for c in gateway.json("conntrack", "-L") if "EXPECTED" in c["status"]]
    assert expected and all(c["master"] is not None for c in expected)
    assert gateway.json("conntrack", "-L", "expect") == []


@pytest.mark.parametrize("family", [4, 6], ids=["v4", "v6"])
def test_an_ftp_server_behind_a_forwarded_port(hosts, tmp_path, family):
    left, right, gateway = hosts
    replace(gateway, BASE + PORT_FORWARD)
    with Vsftpd(left, tmp_path) as server:
        for way in ways_of(family):
            moved_both_ways(server, right, RIGHT[family][0], tmp_path, way, port=":2121")


def test_lftp_keeps_one_control_connection(hosts, tmp_path):
    """Several data connections of one control connection, whose sequence numbers are shifted each time."""
    left, right, gateway = hosts
    replace(gateway, BASE + MASQUERADE)
    with Vsftpd(right, tmp_path) as server:
        for passive in ("true", "false"):
            out = tmp_path / f"lftp-{passive}"
            out.mkdir()
            script = (
                f"set ftp:passive-mode {passive}; set net:timeout 5; set net:max-retries 2; "
                f"set ftp:prefer-epsv false; open {RIGHT[4][1]}; "
                + "".join(f"get big -o {out}/{number}; cls; " for number in range(4))
                + "bye"
            )
            left.run("lftp", "-c", script, timeout=40)
            assert all((out / str(number)).read_bytes() == server.big for number in range(4))
    masters = {c["master"] for c in gateway.json("conntrack", "-L") if "EXPECTED" in c["status"]}
    assert len(masters) == 2, masters


@pytest.mark.parametrize("flows", [PLAIN, MASQUERADE], ids=["plain", "masquerade"])
@pytest.mark.parametrize("family", [4, 6], ids=["v4", "v6"])
def test_tftp_of_real_programs(hosts, tmp_path, flows, family):
    left, right, gateway = hosts
    replace(gateway, BASE + flows)
    root = tmp_path / "tftp"
    root.mkdir()
    big = hashlib.sha512(b"tftp").digest() * 4000
    (root / "boot.img").write_bytes(big)
    for path in (root, *root.parents):
        if path.stat().st_uid == 0 and path != path.parent:
            path.chmod(path.stat().st_mode | 0o555)
    root.chmod(0o777)
    address = f"[{RIGHT[family][1]}]" if family == 6 else RIGHT[family][1]
    server = right.start("in.tftpd", "-L", "-s", "-c", "--user", "nobody", "-a", f"{address}:69", root)
    try:
        wait_for_port(right, "u", 69)
        assert fetched(left, tmp_path / "got", url(RIGHT[family][1], "boot.img", "tftp")) == big
        if family == 4:
            local = tmp_path / "sent"
            local.write_bytes(big[:70_000])
            commands = f"binary\nput {local} sent\n"
            left.run("tftp", RIGHT[4][1], stdin=commands, timeout=20)
            assert (root / "sent").read_bytes() == big[:70_000]
    finally:
        server.kill()
        server.wait()
    assert gateway.json("conntrack", "-S")["followed"] >= 1


CLIENT = """
import socket, sys
control = socket.create_connection((sys.argv[1], 21), 5)
control.settimeout(5)
control.recv(1000)
for line in ("USER anonymous", "PASS x", *sys.argv[2:]):
    control.sendall(line.encode() + b"\\r\\n")
    print(control.recv(1000).decode().strip(), flush=True)
sys.stdin.read()
"""


def test_what_is_expected_is_shown_followed_and_bounded(hosts, tmp_path):
    left, right, gateway = hosts
    replace(gateway, BASE + PLAIN)
    command = [*gateway.command()[:1], "--socket", gateway.socket, "conntrack", "-E", "expect"]
    follower = subprocess.Popen(command, stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True)
    time.sleep(0.5)
    with Vsftpd(right, tmp_path):
        lines = ["PORT 10,1,0,9,200,1", "PORT 10,1,0,2,200,1", "PASV", "EPSV"]
        client = left.start(
            *("/usr/bin/python3", "-c", CLIENT, RIGHT[4][1], *lines),
            **{"stdin": subprocess.PIPE, "stdout": subprocess.PIPE, "text": True},
        )
        told = [client.stdout.readline() for _ in range(2 + len(lines))]
        assert told[-1].startswith("229 "), told
        # One at a time; the one of another host never was.
        shown = gateway.run("conntrack", "-L", "expect")
        assert re.fullmatch(
            r"\d+ proto=6 src=10.1.0.2 dst=10.2.0.2 sport=0 dport=\d+ mask-src=255.255.255.255 "
            r"mask-dst=255.255.255.255 sport=0 dport=65535 master-src=10.1.0.2 master-dst=10.2.0.2 "
            r"sport=\d+ dport=21 class=0 helper=ftp\n",
            shown.stdout,
        ), shown.stdout
        assert "1 expectations have been shown." in shown.stderr
        assert gateway.run("conntrack", "-C", "expect").stdout == "1\n"
        statistics = gateway.json("conntrack", "-S")
        assert statistics["distrusted"] == 1 and statistics["followed"] == 3, statistics
        gateway.run("conntrack", "-F")
        assert gateway.json("conntrack", "-L", "expect") == []
        client.kill()
        client.wait()
    time.sleep(0.5)
    follower.terminate()
    out, said = follower.communicate(timeout=5)
    kinds = re.findall(r"^ *\[(\w+)\] \d+ proto=6 ", out, re.M)
    assert kinds == ["NEW", "DESTROY"] * 3, (out, said)


def test_a_flushed_control_connection_announces_nothing(hosts, tmp_path):
    """Connections are gone after a flush; without `loose` what goes on is invalid."""
    left, right, gateway = hosts
    replace(gateway, BASE + PLAIN)
    with Vsftpd(right, tmp_path) as server:
        gateway.run("conntrack", "-F")
        assert fetched(left, tmp_path / "got", url(RIGHT[4][1], "big")) == server.big
        gateway.run("conntrack", "-F")
        assert gateway.run("conntrack", "-C").stdout == "0\n"
        assert fetched(left, tmp_path / "again", url(RIGHT[4][1], "big")) == server.big
