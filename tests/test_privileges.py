"""What a running gateway may still do, and what others may see of it."""

import os
import pathlib
import resource
import signal

import pytest

from harness.algorithms import GCM
from harness.config import Port
from harness.gateway import Gateway
from harness.netns import run
from harness.silent import Ended
from harness.site import site
from harness.tunnel import Tunnel

pytestmark = pytest.mark.namespaces

NET_ADMIN, NET_RAW, SYS_RESOURCE = 12, 13, 24
PR_SET_SECCOMP_FILTER = "2"


@pytest.fixture
def gw(topology):
    """A namespace with the interfaces of a site."""
    gw = topology.namespace("gw")
    for label in ("lan", "wan"):
        topology.link(gw, label, topology.namespace(label), "eth0")
        gw.silence(label)
    return gw


def statuses(gateway):
    """What /proc says of each of the daemon's threads."""
    pid = gateway.json("show", "daemon")["pid"]
    for path in pathlib.Path(f"/proc/{pid}/task").iterdir():
        lines = (path / "status").read_text().splitlines()
        yield dict(line.split(":\t", 1) for line in lines if ":\t" in line)


def may_lock():
    """Whether the limit of locked memory is none, or can be lifted."""
    with open("/proc/self/status") as status:
        effective = next(int(line.split()[1], 16) for line in status if line.startswith("CapEff"))
    unlimited = resource.getrlimit(resource.RLIMIT_MEMLOCK)[1] == resource.RLIM_INFINITY
    return unlimited or bool(effective & 1 << SYS_RESOURCE)


def test_every_thread_has_two_capabilities_and_a_filter(gw, tmp_path):
    with Gateway(gw, site([Tunnel(GCM, 4)], live=True), tmp_path) as gateway:
        threads = list(statuses(gateway))
        assert len(threads) >= 5
        for status in threads:
            for kind in ("CapPrm", "CapEff"):
                assert int(status[kind], 16) == 1 << NET_ADMIN | 1 << NET_RAW, status["Name"]
            assert int(status["CapInh"], 16) == int(status["CapAmb"], 16) == 0
            assert status["NoNewPrivs"] == "1" and status["Seccomp"] == PR_SET_SECCOMP_FILTER
        view = gateway.json("show", "daemon")
        assert sorted(view["capabilities"]) == ["CAP_NET_ADMIN", "CAP_NET_RAW"]
        assert view["seccomp"] == "on"
        locked = any(int(status["VmLck"].split()[0]) > 0 for status in threads)
        assert view["memory_locked"] == locked == may_lock()
        assert locked or "RLIMIT_MEMLOCK" in gateway.log()


@pytest.mark.parametrize("mode, filters", [("off", "0"), ("log", "2"), ("on", "2")])
def test_the_filter_can_be_switched(gw, tmp_path, mode, filters):
    config = site(live=True)
    text = config.render(tmp_path / "hitpath.sock")
    text = text.replace("[gateway]\n", f'[gateway]\nseccomp = "{mode}"\n', 1)
    with Gateway(gw, text, tmp_path) as gateway:
        assert {status["Seccomp"] for status in statuses(gateway)} == {filters}
        assert gateway.json("show", "daemon")["seccomp"] == mode


def test_new_ports_are_opened_at_a_reload(gw, topology, tun, tmp_path):
    config = site(live=True)
    with Gateway(gw, config, tmp_path) as gateway:
        host = topology.namespace("new")
        topology.link(gw, "new", host, "eth0")
        gw.silence("new")
        host.addresses("eth0", "10.77.0.2/24")
        config.ports.append(Port("new", ["10.77.0.1/24"], kind="af-packet", interface="new"))
        config.ports.append(Port("tap7", ["10.78.0.1/24"], kind="tap", interface="tap7"))
        gateway.write(config)
        gateway.run("reload")
        host.ping("10.77.0.1")
        gw.addresses("tap7", "10.78.0.2/24")
        gw.ping("10.78.0.1")


def test_nothing_is_dumped(gw, tmp_path):
    """The kernel writes no core of a process that is not dumpable, whatever the limit."""
    with Gateway(gw, site([Tunnel(GCM, 4)], live=True), tmp_path) as gateway:
        pid = gateway.json("show", "daemon")["pid"]
        assert resource.prlimit(pid, resource.RLIMIT_CORE) == (0, 0)
        # The files of a process that is not dumpable belong to root whoever runs it, and nobody
        # may look into it without the right to trace any process.
        # Newer kernels let those read, too, who may measure performance.
        given_up = "-sys_ptrace,-perfmon,-sys_admin"
        untraced = ["setpriv", f"--bounding-set={given_up}", f"--inh-caps={given_up}"]
        for file in ("mem", "environ", "maps"):
            seen = run([*untraced, "head", "-c", "1", f"/proc/{pid}/{file}"], check=False)
            assert seen.returncode != 0 and "ermission" in seen.stderr, seen
        gateway.process.send_signal(signal.SIGABRT)
        ended = os.waitid(os.P_PID, gateway.process.pid, os.WEXITED | os.WNOWAIT)
        assert (ended.si_code, ended.si_status) == (os.CLD_KILLED, signal.SIGABRT), "not CLD_DUMPED"
        gateway.process.wait(10)
        gateway.process = Ended()
