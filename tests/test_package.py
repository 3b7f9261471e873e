"""The Debian package: made from the built program, installed, run, upgraded, removed and purged in a root of its own."""

import os
import pathlib
import re
import shutil

import pytest

from harness.clean_root import boot_clean_root, run_in_clean_root
from harness.needs import need
from harness.netns import run

ROOT = pathlib.Path(__file__).resolve().parent.parent
PROGRAM = ROOT / "target/release/hitpath"


@pytest.fixture(scope="module")
def packages(tmp_path_factory):
    """A folder with two versions of the package."""
    need(os.geteuid() == 0, "needs root, for a root directory of its own")
    need(run(["cargo", "deb", "--version"], check=False).returncode == 0, "needs cargo-deb")
    need(PROGRAM.exists(), "needs target/release/hitpath: cargo build --release")
    folder = tmp_path_factory.mktemp("packages")
    run([ROOT / "package", "--no-build", "--fast", folder / "1.deb"], timeout=300)
    # The next one, which is the same but for its number.
    run(["dpkg-deb", "-R", folder / "1.deb", folder / "next"])
    control = folder / "next/DEBIAN/control"
    control.write_text(re.sub(r"^Version: .*$", "Version: 99.0-1", control.read_text(), flags=re.M))
    run(["dpkg-deb", "-Znone", "-b", folder / "next", folder / "2.deb"])
    shutil.rmtree(folder / "next")
    return folder


def test_install_run_upgrade_remove_purge(packages):
    said = run_in_clean_root(
        """
        dpkg -i /run/shared/1.deb >/dev/null 2>&1
        echo "owner $(stat -c '%U:%G %a' /etc/hitpath/gateway.toml)"
        dpkg --verify hitpath
        [ "$(systemctl is-enabled hitpath 2>/dev/null)" != enabled ]
        setpriv --reuid hitpath --regid hitpath --init-groups hitpath check /etc/hitpath/gateway.toml

        # As the unit would run it, but for what systemd does around it.
        install -d -o hitpath -g hitpath -m 0755 /run/hitpath
        install -d -o hitpath -g hitpath -m 0700 /var/lib/hitpath
        start=$(sed -n 's/^ExecStart=//p' /lib/systemd/system/hitpath.service | sed 's/ [$]HITPATH_OPTIONS//')
        setpriv --reuid hitpath --regid hitpath --init-groups $start >/run/log 2>&1 &
        for attempt in $(seq 300); do grep -q '^ready' /run/log && break; sleep 0.1; done
        grep -q '^ready' /run/log || { cat /run/log; exit 1; }
        hitpath show ports
        hitpath vrf add blue
        $(sed -n 's/^ExecReload=//p' /lib/systemd/system/hitpath.service)
        kill %1
        wait %1
        [ ! -e /run/hitpath/control.sock ]

        echo '# mine' >>/etc/hitpath/gateway.toml
        dpkg -i /run/shared/2.deb >/dev/null 2>&1
        echo "version $(dpkg-query -W -f '${Version}' hitpath)"
        tail -n 1 /etc/hitpath/gateway.toml
        echo "owner $(stat -c '%U:%G %a' /etc/hitpath/gateway.toml)"

        dpkg -r hitpath >/dev/null 2>&1
        [ ! -e /usr/bin/hitpath ]
        ls /etc/hitpath /var/lib/hitpath
        echo 0x00 >/etc/hitpath/gateway.keys
        dpkg -P hitpath >/run/purge 2>&1
        grep '^hitpath:' /run/purge
        rm /etc/hitpath/gateway.keys

        # Without files of the user's, nothing stays.
        dpkg -i /run/shared/1.deb >/dev/null 2>&1
        dpkg -P hitpath >/dev/null 2>&1
        [ ! -e /etc/hitpath ] && [ ! -e /var/lib/hitpath ] && [ ! -e /etc/default/hitpath ]
        [ ! -e /lib/systemd/system/hitpath.service ]
        echo purged
        """,
        packages,
    )
    assert said.count("owner root:hitpath 640") == 2, said
    assert "nowhere  memory" in said, said
    assert "version 99.0-1\n# mine\n" in said, said
    assert "gateway.toml" in said and re.search(r"^log$", said, re.M), said
    assert "hitpath: /etc/hitpath stays, as it has files of yours" in said, said
    assert "hitpath:   /etc/hitpath/gateway.keys\n" in said, said
    assert said.endswith("purged\n"), said


def test_links_of_the_documentation_lead_somewhere(packages, tmp_path):
    run(["dpkg-deb", "-x", packages / "1.deb", tmp_path])
    folder = tmp_path / "usr/share/doc/hitpath"
    pages = sorted(folder.glob("*.md"))
    assert len(pages) > 20 and folder / "README.md" in pages, pages
    links = [(page, to) for page in pages for to in re.findall(r"\]\(([^)#\s]+)", page.read_text()) if "://" not in to]
    assert len(links) > 100 and all((page.parent / to).exists() for page, to in links), [
        (page.name, to) for page, to in links if not (page.parent / to).exists()
    ]
    # The program that measures is not there, and has no page.
    assert not list(tmp_path.glob("usr/**/*hitpath-bench*"))


def test_each_verb_has_a_man_page(packages):
    verbs = re.findall(r"^  ([a-z-]+) ", run([PROGRAM, "--help"]).stdout.partition("Commands:")[2].partition("Options:")[0], re.M)
    assert len(verbs) > 25
    # It starts a program that the package does not have.
    verbs.remove("bench")
    said = run_in_clean_root(
        f"""
        # Containers often leave man pages out.
        rm -f /etc/dpkg/dpkg.cfg.d/docker /etc/dpkg/dpkg.cfg.d/excludes
        dpkg -i /run/shared/1.deb >/dev/null 2>&1
        for verb in {' '.join(verbs)}; do
            zcat /usr/share/man/man1/hitpath-$verb.1.gz | grep -q '^[.]SH EXTRA\\|^[.]SH DESCRIPTION' || echo "no text: $verb"
            MANWIDTH=100 man --nj --nh --warnings hitpath-$verb 2>&1 >/run/page | head -n 3
            grep -q "hitpath-$verb - " /run/page || echo "no page: $verb"
        done
        MANWIDTH=100 man --nj --nh hitpath | head -n 4
        MANWIDTH=100 man --nj --nh hitpath | grep 'hitpath-bench(1)' || true
        """,
        packages,
    )
    assert "hitpath - " in said and "bench" not in said, said
    assert "no page" not in said and "no text" not in said and "warning" not in said, said


def test_completions_complete(packages):
    for shell in ("bash", "zsh", "fish"):
        need(shutil.which(shell), f"needs {shell}")
    said = run_in_clean_root(
        r"""
        dpkg -i /run/shared/1.deb >/dev/null 2>&1
        bash -c '
            . /usr/share/bash-completion/completions/hitpath
            complete -p hitpath >/dev/null
            COMP_WORDS=(hitpath release-) COMP_CWORD=1 COMP_LINE="hitpath release-" COMP_POINT=16
            _hitpath hitpath release- hitpath
            echo "bash ${COMPREPLY[*]}"'
        fish -c 'echo "fish" (complete -C "hitpath release-")'
        zsh -fc '
            fpath=(/usr/share/zsh/vendor-completions $fpath)
            autoload -Uz compinit && compinit -u -D
            zmodload zsh/zpty
            zpty shell zsh -f -i
            zpty -w shell "fpath=($fpath); autoload -Uz compinit; compinit -u -D; PROMPT=; echo is-\$_comps[hitpath]"
            zpty -r -m shell seen "*is-_hitpath*"
            zpty -n -w shell "hitpath release-"$'"'"'\t'"'"'
            zpty -r -m shell seen "*release-interfaces*" && echo "zsh release-interfaces"'
        """,
        packages,
    )
    assert "bash release-interfaces\n" in said, said
    assert re.search(r"^fish release-interfaces", said, re.M), said
    assert "zsh release-interfaces\n" in said, said


def test_the_unit_is_confined(packages):
    need(shutil.which("systemd-analyze"), "needs systemd-analyze")
    said = run_in_clean_root(
        """
        dpkg -i /run/shared/1.deb >/dev/null 2>&1
        grep LogRateLimit /lib/systemd/system/hitpath.service
        systemd-analyze verify /lib/systemd/system/hitpath.service 2>&1
        systemd-analyze security --offline=true --no-pager /lib/systemd/system/hitpath.service || true
        """,
        packages,
    )
    level = re.search(r"Overall exposure level for hitpath.service: ([0-9.]+)", said)
    need(level, f"needs a systemd-analyze that rates a unit: {said[-300:]}")
    assert float(level[1]) < 2.0, said
    assert "Unknown key" not in said and "Failed to parse" not in said, said
    # What is logged of blocks of ports and of commands is all kept.
    assert re.search("^LogRateLimitIntervalSec=0$", said, re.MULTILINE), said


def test_the_unit_runs_with_a_port_on_an_interface(packages):
    """All that confines the service is in force, and packets pass by a packet socket."""
    said = boot_clean_root(
        """
        dpkg -i /run/shared/1.deb >/dev/null 2>&1
        ip link set lo up
        ip link add lan type veth peer name host
        sysctl -qw net.ipv6.conf.lan.disable_ipv6=1
        ip link set lan up
        ip link set host up
        ip addr add 192.168.13.5/24 dev host
        cat >/etc/hitpath/gateway.toml <<FILE
        [metrics]
        address = "127.0.0.1:9464"
        [[port]]
        name = "lan"
        kind = "af-packet"
        interface = "lan"
        addresses = ["192.168.13.1/24"]
FILE
        systemctl start hitpath || { journalctl --no-pager -u hitpath; exit 1; }
        echo "state $(systemctl show -P ActiveState hitpath) $(systemctl show -P StatusText hitpath)"
        pid=$(systemctl show -P MainPID hitpath)
        grep -E '^(Uid|CapEff|CapBnd|NoNewPrivs|Seccomp):' /proc/$pid/status
        for mount in / /var/lib/hitpath; do
            echo "mount $mount $(awk -v at=$mount '$5 == at {said = $6} END {print substr(said, 1, 2)}' /proc/$pid/mountinfo)"
        done
        echo "devices $(ls /proc/$pid/root/dev | grep -c -e tun -e sda -e kmsg)"
        ping -c 3 -i 0.2 -W 2 -I host 192.168.13.1
        hitpath -j show drops >/dev/null
        curl -sS http://127.0.0.1:9464/metrics | grep '^hitpath_port_receive_packets_total'
        hitpath route add 10.9.0.0/16 via 192.168.13.5
        systemctl reload hitpath
        echo "audited $(journalctl --no-pager HITPATH_EVENT=change -o cat | grep -c 'route add')"
        systemctl restart hitpath
        hitpath route show | grep 10.9.0.0/16
        systemctl stop hitpath
        echo "result $(systemctl show -P Result hitpath)"
        """,
        packages,
    )
    assert "state active packets pass, by 1 worker\n" in said, said
    assert re.search(r"^CapEff:\t0000000000003000$", said, re.M) and re.search(r"^NoNewPrivs:\t1$", said, re.M), said
    assert re.search(r"^Seccomp:\t2$", said, re.M), said
    assert "mount / ro\nmount /var/lib/hitpath rw\ndevices 0\n" in said, said
    assert " 0% packet loss" in said and "hitpath_port_receive_packets_total" in said, said
    assert "audited 1\n" in said and "10.9.0.0/16 via 192.168.13.5" in said, said
    assert said.endswith("result success\n"), said


def test_interfaces_are_taken_over_and_given_back(packages):
    """As docs/operating.md says."""
    said = boot_clean_root(
        """
        dpkg -i /run/shared/1.deb >/dev/null 2>&1
        ip link set lo up
        ip link add lan type veth peer name host
        ip link set lan up
        ip link set host up
        ip addr add 192.168.13.1/24 dev lan
        cat >/etc/hitpath/gateway.toml <<FILE
        [[port]]
        name = "lan"
        kind = "af-packet"
        interface = "lan"
        addresses = ["192.168.13.1/24"]
FILE
        echo 'HITPATH_OPTIONS=--own-interfaces' >/etc/default/hitpath
        drop_in=/etc/systemd/system/hitpath.service.d/own-interfaces.conf
        install -Dm644 /usr/share/doc/hitpath/examples/own-interfaces.conf $drop_in
        systemctl daemon-reload
        systemctl start hitpath || { journalctl --no-pager -u hitpath; exit 1; }
        echo "taken $(ip -br addr show dev lan | grep -c 192.168.13.1)"
        systemctl stop hitpath
        hitpath release-interfaces
        echo "back $(ip -br addr show dev lan | grep -c 192.168.13.1)"
        """,
        packages,
    )
    assert "taken 0\n" in said and "interface lan is the kernel's again\nback 1\n" in said, said
