"""A browser without a screen, driven over its DevTools pipe: no port is opened for it."""

import base64
import json
import os
import select
import shutil
import subprocess
import time

from harness.failure import CommandFailed
from harness.needs import need

PATIENCE = 30
"""Seconds for one answer, on a busy machine."""


def need_browser():
    """Needs Chromium."""
    need(shutil.which("chromium"), "needs chromium")


class Browser:
    """Chromium with one tab, as a context manager; `arguments` of `chromium` besides the usual."""

    def __init__(self, directory, namespace=None):
        self._profile, self._namespace = directory / "profile", namespace
        self._number, self._session, self.events = 0, None, []

    def __enter__(self):
        # The browser reads from descriptor 3 and writes to 4.
        to_browser, to_us = os.pipe(), os.pipe()
        self._write, self._read, self._rest = to_browser[1], to_us[0], b""
        command = ["chromium", "--headless=new", "--no-sandbox", "--disable-gpu", "--disable-dev-shm-usage"]
        command += ["--no-first-run", "--disable-background-networking", "--disable-component-update"]
        command += ["--remote-debugging-pipe", f"--user-data-dir={self._profile}", "about:blank"]
        if self._namespace:
            command = ["ip", "netns", "exec", self._namespace.name, *command]
        shell = f'exec "$@" 3<&{to_browser[0]} 4>&{to_us[1]}'
        self.process = subprocess.Popen(
            ["bash", "-c", shell, "bash", *command],
            pass_fds=(to_browser[0], to_us[1]),
            stdin=subprocess.DEVNULL,
            stdout=subprocess.DEVNULL,
            stderr=subprocess.DEVNULL,
            start_new_session=True,
        )
        os.close(to_browser[0])
        os.close(to_us[1])
        target = self.ask("Target.createTarget", url="about:blank")["targetId"]
        self._session = self.ask("Target.attachToTarget", targetId=target, flatten=True)["sessionId"]
        for domain in ("Page", "Runtime", "Network", "Log"):
            self.ask(f"{domain}.enable")
        return self

    def __exit__(self, *_):
        try:
            self._session = None
            self.ask("Browser.close")
            self.process.wait(10)
        except (CommandFailed, OSError, subprocess.TimeoutExpired):
            self.process.kill()
            self.process.wait()
        os.close(self._write)
        os.close(self._read)

    def ask(self, method, **parameters):
        """One command of the protocol, and its result."""
        self._number += 1
        message = {"id": self._number, "method": method, "params": parameters}
        if self._session:
            message["sessionId"] = self._session
        os.write(self._write, json.dumps(message).encode() + b"\0")
        end = time.monotonic() + PATIENCE
        while True:
            answer = self._next(end, method)
            if answer.get("id") != self._number:
                self.events.append(answer)
                continue
            if "error" in answer:
                raise CommandFailed(f"{method}: {answer['error']}")
            return answer["result"]

    def _next(self, end, what):
        while b"\0" not in self._rest:
            ready, _, _ = select.select([self._read], [], [], max(0, end - time.monotonic()))
            part = os.read(self._read, 1 << 16) if ready else b""
            if not part:
                raise CommandFailed(f"the browser does not answer {what}")
            self._rest += part
        message, self._rest = self._rest.split(b"\0", 1)
        return json.loads(message)

    def look(self, width, height=900, dark=False, phone=False):
        """The size of the window, and whether its user likes it dark."""
        scheme = {"name": "prefers-color-scheme", "value": "dark" if dark else "light"}
        self.ask("Emulation.setEmulatedMedia", features=[scheme])
        size = {"width": width, "height": height, "deviceScaleFactor": 2 if phone else 1, "mobile": phone}
        self.ask("Emulation.setDeviceMetricsOverride", **size)

    def go(self, url):
        """Opens a page. What it has said of itself before is forgotten."""
        self.events.clear()
        went = self.ask("Page.navigate", url=url)
        if "errorText" in went:
            raise CommandFailed(f"{url}: {went['errorText']}")
        self.wait(f"document.readyState == 'complete' && location.href == {json.dumps(url)}")

    def run(self, script):
        """The value of an expression in the page."""
        done = self.ask("Runtime.evaluate", expression=script, returnByValue=True, awaitPromise=True)
        if "exceptionDetails" in done:
            raise CommandFailed(f"{script}: {done['exceptionDetails']}")
        return done["result"].get("value")

    def wait(self, script, seconds=PATIENCE):
        """Waits until an expression in the page is true, and returns its value."""
        end = time.monotonic() + seconds
        while not (value := self.run(script)):
            if time.monotonic() > end:
                raise CommandFailed(f"never true: {script}\n")
            time.sleep(0.1)
        return value

    def text(self, selector):
        """What is to be read in a part of the page."""
        return self.run(f"document.querySelector({json.dumps(selector)})?.innerText")

    def fill(self, selector, value):
        """Types into a field, and sends its form."""
        self.run(f"document.querySelector({json.dumps(selector)}).value = {json.dumps(value)}")
        self.run(f"document.querySelector({json.dumps(selector)}).form.requestSubmit()")

    def screenshot(self, path, whole=True):
        """A picture of the page."""
        shot = self.ask("Page.captureScreenshot", format="png", captureBeyondViewport=whole)
        path.write_bytes(base64.b64decode(shot["data"]))

    def complaints(self):
        """What the page or the browser has found wrong, and what was asked of others."""
        self.run("1")
        found = []
        for event in self.events:
            what, of = event.get("method"), event.get("params", {})
            if what == "Runtime.exceptionThrown":
                found.append(str(of["exceptionDetails"]))
            elif what == "Log.entryAdded" and of["entry"]["level"] == "error":
                found.append(of["entry"]["text"])
            elif what == "Runtime.consoleAPICalled" and of["type"] in ("error", "warning"):
                found.append(str(of["args"]))
        return found

    def asked(self):
        """The addresses that the page has asked."""
        self.run("1")
        sent = [event for event in self.events if event.get("method") == "Network.requestWillBeSent"]
        return {event["params"]["request"]["url"] for event in sent}
