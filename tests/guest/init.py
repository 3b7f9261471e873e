#!/usr/bin/python3 -I
"""The first process of the guest: mounts what a system needs, then runs the commands that the tests send.

The guest's root is the host's, read-only, so that every tool the tests need is there. Commands come as one JSON
object a line on the second console (the first belongs to the kernel's messages), and each gets one line in answer.
Empty lines get none:

    {"run": ["ip", "link"], "input": "...", "timeout": 10}   ->  {"code": 0, "out": "...", "err": "..."}
    {"start": ["iperf3", "-s"]}                              ->  {"job": 1}
    {"finish": 1, "kill": false, "timeout": 10}              ->  {"code": 0, "out": "...", "err": "..."}
"""

import json
import os
import signal
import subprocess
import tempfile
import termios
import tty

CHANNEL = "/dev/tty1"
MODULES = ["ipv6", "xfrm_user", "esp4", "esp6", "authenc", "echainiv", "seqiv", "gcm", "cbc", "hmac", "drbg"]


def boot(modules):
    """Brings the system up far enough for networking and for loading kernel modules from the folder `modules`."""
    # /tmp stays the host's: this checkout may be below it.
    for kind, where in [("proc", "/proc"), ("sysfs", "/sys"), ("tmpfs", "/run")]:
        subprocess.run(["mount", "-t", kind, kind, where], check=True)
    os.environ["TMPDIR"] = "/run"
    # The kernel loads modules on its own for the algorithms of an SA, and knows no other folder than /lib/modules.
    loader = "/run/modprobe"
    with open(loader, "w") as script:
        script.write(f'#!/bin/sh\nexec /sbin/modprobe -d {modules} "$@"\n')
    os.chmod(loader, 0o755)
    with open("/proc/sys/kernel/modprobe", "w") as setting:
        setting.write(loader)
    subprocess.run([loader, "-a", *MODULES], check=True)
    subprocess.run(["ip", "link", "set", "lo", "up"], check=True)


class Jobs:
    """Programs that run beside the next commands."""

    def __init__(self):
        self.running = {}

    def start(self, command):
        out, err = tempfile.TemporaryFile("w+"), tempfile.TemporaryFile("w+")
        process = subprocess.Popen(command, stdin=subprocess.DEVNULL, stdout=out, stderr=err, start_new_session=True)
        self.running[process.pid] = (process, out, err)
        return {"job": process.pid}

    def finish(self, job, kill, timeout):
        process, out, err = self.running.pop(job)
        try:
            if kill:
                os.killpg(process.pid, signal.SIGTERM)
            process.wait(timeout)
        except (subprocess.TimeoutExpired, ProcessLookupError):
            process.kill()
            process.wait()
        texts = []
        for stream in (out, err):
            stream.seek(0)
            texts.append(stream.read())
            stream.close()
        return {"code": process.returncode, "out": texts[0], "err": texts[1]}


def run(command, stdin, timeout):
    """Runs one command to its end."""
    try:
        done = subprocess.run(command, input=stdin, capture_output=True, text=True, errors="replace", timeout=timeout)
    except subprocess.TimeoutExpired:
        return {"code": 124, "out": "", "err": f"no end after {timeout} s"}
    except OSError as error:
        return {"code": 127, "out": "", "err": str(error)}
    return {"code": done.returncode, "out": done.stdout, "err": done.stderr}


def answer(jobs, request):
    """What one request line leads to."""
    timeout = request.get("timeout", 10)
    if "start" in request:
        return jobs.start(request["start"])
    if "finish" in request:
        return jobs.finish(request["finish"], request.get("kill", False), timeout)
    return run(request["run"], request.get("input"), timeout)


def main():
    os.environ["PATH"] = "/usr/local/sbin:/usr/local/bin:/usr/sbin:/usr/bin:/sbin:/bin"
    boot(os.environ["modules"])  # The kernel hands what it does not know on its command line to the first process.
    jobs = Jobs()
    channel = os.open(CHANNEL, os.O_RDWR | os.O_NOCTTY)
    tty.setraw(channel, termios.TCSANOW)
    with os.fdopen(channel, "r+b", buffering=0) as stream, os.fdopen(os.dup(channel), "rb") as requests:
        stream.write(b'{"ready": true}\n')
        for line in requests:
            if line == b"\n":
                continue
            try:
                reply = answer(jobs, json.loads(line))
            except Exception as error:  # The tests must hear of it; a first process that ends takes the kernel with it.
                reply = {"code": 126, "out": "", "err": f"{type(error).__name__}: {error}"}
            text = json.dumps(reply).encode() + b"\n"
            while text:
                text = text[stream.write(text) :]


if __name__ == "__main__":
    main()
