"""This machine's files as they are, in a root directory of their own in which nothing that is changed stays."""

import os
import pathlib
import subprocess

import pytest

from harness.failure import CommandFailed

# What is changed goes to memory. The folder for packages is the one that the caller has.
SETUP = """
set -eu
layers=$1 shared=$2
mount -t tmpfs tmpfs "$layers"
mkdir "$layers/upper" "$layers/work" "$layers/root"
root=$layers/root
mount -t overlay overlay -o "lowerdir=/,upperdir=$layers/upper,workdir=$layers/work" "$root"
mount -t proc proc "$root/proc"
mount --rbind /dev "$root/dev"
mount -t tmpfs -o mode=755 tmpfs "$root/run"
mount -t tmpfs tmpfs "$root/tmp"
mkdir "$root/run/shared"
mount --bind "$shared" "$root/run/shared"
# What a gateway of this machine has left is not a clean root's.
rm -rf "$root/var/lib/hitpath" "$root/etc/hitpath" "$root/etc/default/hitpath"
"""

ENTER = """
exec chroot "$root" /bin/bash -eu
"""

# A service manager of its own carries out the script, in a part of the control groups that is its own.
BOOT = """
mount -t sysfs sysfs "$root/sys"
if [ -e /sys/fs/cgroup/cgroup.controllers ]; then
    mount -t cgroup2 cgroup2 "$root/sys/fs/cgroup"
else
    mount -t tmpfs -o mode=755 tmpfs "$root/sys/fs/cgroup"
    mkdir "$root/sys/fs/cgroup/systemd" "$root/sys/fs/cgroup/unified"
    mount -t cgroup -o none,name=systemd cgroup "$root/sys/fs/cgroup/systemd"
    mount -t cgroup2 cgroup2 "$root/sys/fs/cgroup/unified"
fi
cat >"$shared/booted.sh"
mkdir -p "$root/run/systemd/system"
cat >"$root/run/systemd/system/booted.target" <<UNIT
[Unit]
Requires=systemd-journald.service booted.service
After=systemd-journald.service
UNIT
cat >"$root/run/systemd/system/booted.service" <<UNIT
[Unit]
DefaultDependencies=no
[Service]
Type=oneshot
StandardOutput=file:/run/shared/booted.out
StandardError=inherit
ExecStart=/bin/bash -eu /run/shared/booted.sh
ExecStopPost=/bin/bash -c 'echo \\$\\$EXIT_STATUS >/run/shared/booted.code'
ExecStopPost=/bin/systemctl --no-block --force exit
UNIT
export container=hitpath-test
exec chroot "$root" /lib/systemd/systemd --system --unit=booted.target --log-target=console --log-level=warning --show-status=0
"""

ENVIRONMENT = {"PATH": "/usr/local/sbin:/usr/local/bin:/usr/sbin:/usr/bin:/sbin:/bin", "LC_ALL": "C.UTF-8"}


def run_in_clean_root(script, directory, timeout=240):
    """Runs a script of bash in it. `directory` is /run/shared there. What it printed is returned."""
    done = _unshared(SETUP + ENTER, script, directory, timeout)
    if done.returncode != 0:
        raise CommandFailed(f"exit code {done.returncode}\n{done.stdout}\n{done.stderr}")
    return done.stdout


def boot_clean_root(script, directory, timeout=240):
    """The same with systemd as its first process, in a network of its own; the script is a service there."""
    if not pathlib.Path("/lib/systemd/systemd").exists():
        pytest.skip("needs systemd")
    groups = [pathlib.Path("/sys/fs/cgroup", part) for part in ("systemd", "unified")]
    groups = [group / f"hitpath-test-{os.getpid()}" for group in groups if group.exists()]
    groups = groups or [pathlib.Path(f"/sys/fs/cgroup/hitpath-test-{os.getpid()}")]
    try:
        for group in groups:
            group.mkdir(exist_ok=True)
    except OSError as why:
        pytest.skip(f"needs control groups that can be written: {why}")

    def enter():
        for group in groups:
            (group / "cgroup.procs").write_text("0")

    more = ["--net", "--uts", "--ipc", "--cgroup"]
    try:
        done = _unshared(SETUP + BOOT, script, directory, timeout, more, enter)
    finally:
        # What was in them has ended with the first process.
        for group in groups:
            for part in sorted(group.rglob("*/"), reverse=True):
                part.rmdir()
            group.rmdir()
    said, code = ((directory / name) for name in ("booted.out", "booted.code"))
    if not code.exists() or code.read_text().strip() != "0":
        raise CommandFailed(f"{said.exists() and said.read_text()}\n{done.stdout}\n{done.stderr}")
    return said.read_text()


def _unshared(setup, script, directory, timeout, more=(), before=None):
    layers = directory / "layers"
    layers.mkdir(exist_ok=True)
    unshare = ["unshare", "--mount", "--pid", *more, "--fork", "--kill-child", "--propagation", "private"]
    done = subprocess.run(
        [*unshare, "bash", "-c", setup, "setup", str(layers), str(directory)],
        input=script,
        capture_output=True,
        text=True,
        timeout=timeout,
        env=ENVIRONMENT,
        preexec_fn=before,
    )
    if done.returncode != 0 and "mount: " in done.stderr:
        # Whether a container may do that is not for its packages to say.
        pytest.skip(f"needs overlay mounts: {done.stderr.strip()[-200:]}")
    return done
