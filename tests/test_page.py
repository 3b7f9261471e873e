"""The page in a browser: what it shows, on a phone and a desk, for whom, and what it refuses."""

import json
import os
import pathlib
import re
import stat
import time

import pytest

from harness.algorithms import CBC_SHA1
from harness.audit import records, wait_for
from harness.browser import Browser, need_browser
from harness.gateway import Gateway, Here, binary
from harness.hosted import configured, hosted
from harness.netns import run
from harness.tunnel import Tunnel

PORT = 8080
TOKEN = "a-token-of-sufficient-length"
PICTURES = os.environ.get("HITPATH_PICTURES")
"""A folder for pictures of the page, to be looked at."""


@pytest.fixture
def page(topology, tmp_path):
    """A gateway between two hosts, with a tunnel, traffic and drops, whose page needs a token: `(gateway, gw, lan)`."""
    token = tmp_path / "token"
    token.write_text(TOKEN + "\n")
    token.chmod(0o600)
    keys = {"address": f"127.0.0.1:{PORT}", "token_file": "token", "socket": str(tmp_path / "page.sock")}
    audit = {"log": str(tmp_path / "audit.log")}
    gateway, gw, lan = hosted(topology, tmp_path, [Tunnel(CBC_SHA1, 4)], page=keys, audit=audit)
    with gateway:
        yield gateway, gw, lan


def test_it_shows_the_gateway_to_who_has_the_token(page, tmp_path):
    need_browser()
    gateway, gw, lan = page
    gateway.run("neigh", "add", "192.168.11.1", "lladdr", "02:00:00:00:00:09", "dev", "wan")
    flood = lan.start("ping", "-f", "-q", "192.168.13.1")
    refused = lan.start("ping", "-q", "-i", "0.05", "192.168.99.1")
    tunnel = lan.start("ping", "-q", "-i", "0.02", "192.168.12.7")
    try:
        with Browser(tmp_path, gw) as browser:
            browser.look(1440)
            browser.go(f"http://127.0.0.1:{PORT}/")
            browser.wait("!document.getElementById('sign-in').hidden")
            assert browser.run("document.getElementById('main').hidden")
            browser.fill("#token", "not-the-token-at-all")
            browser.wait("document.getElementById('sign-in-why').textContent.includes('not the token')")
            assert browser.run("sessionStorage.length") == 0
            browser.fill("#token", TOKEN)
            browser.wait("document.getElementById('status').textContent == 'live'")
            browser.wait("[...document.querySelectorAll('#graph .rate')].some((it) => it.textContent.includes('/s'))")
            time.sleep(7)
            stages = [stage["name"] for stage in json.loads(gateway.run("graph", "-j").stdout)]
            assert browser.run("[...document.querySelectorAll('#graph .stage')].map((it) => it.textContent)") == stages
            tiles = browser.text("#tiles")
            assert "Cache hits" in tiles and "cycles" in tiles, tiles
            assert "lan" in browser.text("#ports") and "up" in browser.text("#ports")
            assert "policy_no_match" in browser.text("#drops"), browser.text("#drops")
            # Few packets are encrypted, and each is counted, whatever round was timed.
            seal = "[...document.querySelectorAll('#graph .node')].find((it) => it.textContent.startsWith('seal:')).textContent"
            shown = re.search(r"seal: .*seal([0-9.]+)/s", browser.run(seal))
            assert shown and 25 < float(shown[1]) < 75, browser.run(seal)
            tunnels = browser.text("#tunnels")
            assert "→" in tunnels and "in use" in tunnels and "cbc(aes)" in tunnels, tunnels
            assert "main" in browser.text("#vrfs")
            received = browser.run("document.querySelector('.tile .value').textContent")
            assert float(received.replace("\u00a0", " ").split()[0]) > 0, received

            browser.fill("#packet", "icmp 192.168.13.5 > 192.168.12.7 type 8 code 0 in lan")
            browser.wait("document.querySelectorAll('#steps li').length > 3")
            assert browser.text("#steps li:last-child").split()[-1] == "sent-encrypted"
            browser.fill("#packet", "udp <img/src=x/onerror=alert(1)> > 10.0.0.1 in lan")
            browser.wait("document.getElementById('explain-why').textContent.length > 0")
            assert "<img/src=x/onerror=alert(1)" in browser.text("#explain-why")
            assert browser.run("document.images.length") == 0
            browser.fill("#packet", "icmp 192.168.13.5 > 192.168.12.7 type 8 code 0 in lan")
            browser.wait("document.querySelectorAll('#steps li').length > 3")

            # The wrong token, and the question that is none, were refused: browsers log that.
            complaints = [it for it in browser.complaints() if "status of 40" not in it]
            assert complaints == []
            assert all(url.startswith(f"http://127.0.0.1:{PORT}/") for url in browser.asked()), browser.asked()
            for dark in (False, True):
                for width, phone in ((1440, False), (390, True)):
                    browser.look(width, 844 if phone else 900, dark, phone)
                    time.sleep(2.5)
                    wide = browser.run("document.documentElement.scrollWidth")
                    assert wide <= width, f"{wide} pixels on a screen of {width}"
                    ground = browser.run("getComputedStyle(document.body).backgroundColor")
                    shade = sum(int(part) for part in ground[4:-1].split(",")) / 3
                    assert (shade < 64) == dark, ground
                    # Text can be told from what is behind it.
                    assert browser.run(CONTRAST) == [], "these are hard to read"
                    if PICTURES:
                        name = f"page-{width}-{'dark' if dark else 'light'}.png"
                        browser.screenshot(pathlib.Path(PICTURES) / name)
            # It is read only: what the browser could send changes nothing.
            before = gateway.run("save").stdout
            status = browser.run("fetch('/v1', {method: 'POST', body: '{\"do\":\"reload\"}'}).then((it) => it.status)")
            assert (status, gateway.run("save").stdout) == (404, before)
    finally:
        for process in (flood, refused, tunnel):
            process.terminate()
            process.communicate()


CONTRAST = """(() => {
  const parts = (text) => (text.match(/[0-9.]+/g) ?? []).map(Number);
  const light = (rgb) => {
    const [r, g, b] = rgb.map((it) => it / 255).map((it) => it <= 0.03928 ? it / 12.92 : ((it + 0.055) / 1.055) ** 2.4);
    return 0.2126 * r + 0.7152 * g + 0.0722 * b;
  };
  const behind = (node) => {
    for (let at = node; at; at = at.parentElement) {
      const found = parts(getComputedStyle(at).backgroundColor);
      if (found.length === 3 || found[3] > 0) return found.slice(0, 3);
    }
    return [255, 255, 255];
  };
  const found = new Set();
  for (const node of document.querySelectorAll("main *:not(svg *), header *")) {
    const own = [...node.childNodes].some((it) => it.nodeType === 3 && it.textContent.trim());
    if (!own || node.offsetParent === null) continue;
    const [one, other] = [light(parts(getComputedStyle(node).color)), light(behind(node))].sort((a, b) => b - a);
    if ((one + 0.05) / (other + 0.05) < 4.5) found.add(`${node.className}: ${node.textContent.slice(0, 20)}`);
  }
  return [...found];
})()"""


def test_what_is_asked_amiss_is_refused(page, tmp_path):
    gateway, gw, _ = page
    bearer = ("-H", f"Authorization: Bearer {TOKEN}")
    json_is = ("-H", "Content-Type: application/json")

    def said(path, *options):
        url = f"http://127.0.0.1:{PORT}{path}"
        return gw.run("curl", "-sS", "-i", "--path-as-is", *options, url).stdout

    def status(path, *options):
        return said(path, *options).split()[1]

    assert [status(path) for path in ("/", "/page.css", "/page.js", "/icon.svg")] == ["200"] * 4
    assert status("/state") == status("/state", "-H", f"Authorization: Bearer {TOKEN}x") == "401"
    assert status("/state", "-H", f"Authorization: Basic {TOKEN}") == "401"
    assert status(f"/state?token={TOKEN}") == "401"
    assert status("/state", *bearer) == "200"
    for path in ("/../gw.toml", "/%2e%2e/token", "//page.js", "/page.js/", "/state/..", "/token", "/metrics", "/v1"):
        assert status(path, *bearer) == "404", path
    for method in ("POST", "PUT", "DELETE", "PATCH"):
        assert status("/state", *bearer, "-X", method) == "405"
        assert status("/", *bearer, "-X", method) == "405"
    packet = json.dumps({"packet": "icmp 192.168.13.5 > 192.168.12.7 type 8 code 0 in lan"})
    assert status("/explain", "-d", packet) == status("/explain", *json_is, "-d", packet) == "401"
    assert status("/explain", *bearer, "-d", packet) == "415"
    assert status("/explain", *bearer, *json_is, "-d", packet) == "200"
    assert status("/explain", *bearer, *json_is, "-d", json.dumps({"packet": "x" * 5000})) == "413"
    assert "cannot be understood" in said("/explain", *bearer, *json_is, "-d", "{}")
    assert status("/state", *bearer, "-H", "Sec-Fetch-Site: cross-site") == "403"
    head = said("/").split("\r\n\r\n")[0].lower()
    for part in ("default-src 'none'", "frame-ancestors 'none'", "nosniff", "cache-control: no-store", "same-origin"):
        assert part in head, part
    assert "unsafe" not in head

    # At the socket no token is needed, and a name that only this machine has.
    local = tmp_path / "page.sock"
    assert stat.S_IMODE(local.stat().st_mode) == 0o600
    for host, wanted in (("localhost", "200"), ("127.0.0.1:8080", "200"), ("evil.example", "421")):
        told = run(["curl", "-sS", "-i", "--unix-socket", local, "-H", f"Host: {host}", "http://x/state"])
        assert told.stdout.split()[1] == wanted, host
    state = json.loads(run(["curl", "-sS", "--unix-socket", local, "http://localhost/state"]).stdout)
    ages = [sa["age_seconds"] for sa in state["sas"]]
    assert ages == [sa["age_seconds"] for sa in gateway.json("show", "sas")] or max(ages) < 60
    # No key, neither of SAs nor the token.
    keys = re.findall("0x([0-9a-f]{20,})", gateway.config_path.read_text())
    assert len(keys) == 4 and not any(key in json.dumps(state) for key in keys)


def test_who_guesses_the_token_waits_and_is_written_down_and_nobody_else_waits(page, tmp_path):
    gateway, gw, _ = page
    url = f"http://127.0.0.1:{PORT}/state"

    def ask(token):
        bearer = ("-H", f"Authorization: Bearer {token}")
        begin = time.monotonic()
        told = gw.run("curl", "-sS", "-o", "/dev/null", "-w", "%{http_code}", *bearer, url, timeout=30)
        return told.stdout, time.monotonic() - begin

    waited = [ask(f"a-guess-of-some-length-{number}") for number in range(5)]
    assert {status for status, _ in waited} == {"401"}
    assert sum(seconds for _, seconds in waited) > 3, waited
    # Others are guessing all the time.
    guesses = [gw.start("curl", "-sS", "-H", "Authorization: Bearer another-wrong-token", url) for _ in range(40)]
    status, seconds = ask(TOKEN)
    assert status == "200" and seconds < 2.5, seconds
    for guess in guesses:
        guess.communicate(timeout=30)
    gateway.run("vrf", "add", "after")
    refused = wait_for(tmp_path / "audit.log", 45, event="token-refused")
    assert {it["of"] for it in refused} == {"page"} and {it["reason"] for it in refused} == {"a wrong token"}
    assert all(it["address"].startswith("127.0.0.1:") for it in refused)
    # The page itself asks without one first.
    assert gw.run("curl", "-sS", "-o", "/dev/null", "-w", "%{http_code}", url).stdout == "401"
    gateway.run("vrf", "delete", "after")
    wait_for(tmp_path / "audit.log", 1, command="vrf delete after")
    text = (tmp_path / "audit.log").read_text()
    assert len(records(tmp_path / "audit.log", event="token-refused")) == len(refused)
    assert TOKEN not in text and "a-guess-of" not in text and "another-wrong-token" not in text


def test_slow_clients_make_room(page):
    _, gw, _ = page
    script = (
        "import socket, sys, time\n"
        f"idle = [socket.create_connection(('127.0.0.1', {PORT})) for _ in range(100)]\n"
        "slow = idle[:50]\n"
        "for one in slow: one.send(b'GET /state HTTP/1.1\\r\\nHost: x\\r\\n')\n"
        "print('there', flush=True); time.sleep(30)\n"
    )
    clients = gw.start("/usr/bin/python3", "-c", script)
    try:
        assert clients.stdout.readline() == "there\n"
        begin = time.monotonic()
        bearer = f"Authorization: Bearer {TOKEN}"
        for _ in range(5):
            url = f"http://127.0.0.1:{PORT}/state"
            told = gw.run("curl", "-sS", "-o", "/dev/null", "-w", "%{http_code}", "-H", bearer, url, timeout=30)
            assert told.stdout == "200"
        assert time.monotonic() - begin < 20
    finally:
        clients.terminate()
        clients.communicate()


def test_settings_that_would_show_it_to_everybody_are_refused(tmp_path):
    file = tmp_path / "gw.toml"
    for lines, why in (
        ('address = "127.0.0.1:8080"', "whoever reaches 127.0.0.1:8080 could look at the page"),
        ('token-file = "t"', "there is none"),
        ('socket = "page.sock"', "a path that begins with /"),
        ("socket-group = true", "and there is none"),
    ):
        file.write_text(f'[page]\n{lines}\n[[port]]\nname = "p"\nkind = "memory"\n')
        told = run([binary(), "check", file], check=False)
        assert told.returncode == 1 and why in told.stdout + told.stderr, told.stderr


def test_the_socket_goes_with_the_gateway_and_a_change_waits(tmp_path):
    path = tmp_path / "page.sock"
    gateway = Gateway(Here, "", tmp_path)
    page = {"socket": str(path), "socket_group": True}
    gateway.write(configured(gateway.socket, live=False, page=page))
    with gateway:
        assert stat.S_IMODE(path.stat().st_mode) == 0o660
        gateway.write(configured(gateway.socket, live=False, page={"socket": str(path)}))
        said = gateway.run("reload").stdout
        assert "! page socket-group true -> false (when the gateway is started again)" in said
    assert not path.exists()
