"""This machine's files as they are, in a root directory of their own in which nothing that is changed stays."""

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
mount -t tmpfs tmpfs "$root/run"
mount -t tmpfs tmpfs "$root/tmp"
mkdir "$root/run/shared"
mount --bind "$shared" "$root/run/shared"
# What a gateway of this machine has left is not a clean root's.
rm -rf "$root/var/lib/hitpath" "$root/etc/hitpath" "$root/etc/default/hitpath"
exec chroot "$root" /bin/bash -eu
"""


def run_in_clean_root(script, directory, timeout=240):
    """Runs a script of bash in it. `directory` is /run/shared there. What it printed is returned."""
    layers = directory / "layers"
    layers.mkdir(exist_ok=True)
    unshare = ["unshare", "--mount", "--pid", "--fork", "--kill-child", "--propagation", "private"]
    done = subprocess.run(
        [*unshare, "bash", "-c", SETUP, "setup", str(layers), str(directory)],
        input=script,
        capture_output=True,
        text=True,
        timeout=timeout,
        env={"PATH": "/usr/local/sbin:/usr/local/bin:/usr/sbin:/usr/bin:/sbin:/bin", "LC_ALL": "C.UTF-8"},
    )
    if done.returncode != 0 and "mount: " in done.stderr:
        # Whether a container may do that is not for its packages to say.
        pytest.skip(f"needs overlay mounts: {done.stderr.strip()[-200:]}")
    if done.returncode != 0:
        raise CommandFailed(f"exit code {done.returncode}\n{done.stdout}\n{done.stderr}")
    return done.stdout
