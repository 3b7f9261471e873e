"""Timeouts of connections, and timeout policies of zones, as docs/conntrack.md has them."""

import pathlib
import re
import time

import pytest
from harness.config import Config
from harness.gateway import Gateway
from test_namespaces import LEFT, RIGHT, attach
from test_nat import MAPPED, connections, replace

pytestmark = pytest.mark.namespaces

DOCUMENT = pathlib.Path(__file__).resolve().parent.parent / "docs" / "conntrack.md"

FLOWS = """
table=0,priority=1,arp actions=NORMAL
table=0,priority=9,udp,tp_dst=7005 actions=ct(commit,zone=5),NORMAL
table=0,priority=9,udp,tp_dst=7001 actions=ct(commit,zone=1),NORMAL
"""


def example():
    """The settings in the document."""
    (settings,) = re.findall(r"^```toml\n(.*?)^```", DOCUMENT.read_text(), re.M | re.S)
    return settings


def test_zones_have_the_timeouts_of_their_policy(topology, tmp_path):
    topology.namespace("gw")
    lan, lan_port = attach(topology, "lan", LEFT)
    wan, wan_port = attach(topology, "wan", RIGHT)
    config = Config(ports=[lan_port, wan_port])
    with Gateway(topology["gw"], config, tmp_path) as gateway:
        def said(settings):
            gateway.write(config.render(gateway.socket) + settings)
            return gateway.run("reload").stdout

        def timeouts():
            return {found["zone"]: (found.get("timeout_policy"), found["timeout"])
                    for found in connections(gateway, 2)}

        said(example())
        replace(gateway, FLOWS)
        usual, voice = gateway.json("conntrack", "-L", "timeout")
        assert (voice["name"], voice["zones"]) == ("voice", [5, 6]), voice
        assert (usual["timeouts"]["udp"], voice["timeouts"]["udp"]) == (30, 60)
        assert voice["timeouts"]["tcp-established"] == 86400, "what it does not say is as usual"
        shown = gateway.run("conntrack", "-L", "timeout").stdout
        assert re.search(r"^voice zones=5,6 generic=600 .*\budp=60 udp-stream=600$", shown, re.M), shown

        lan.run("/usr/bin/python3", "-c", MAPPED, LEFT[4][1], RIGHT[4][1], 7001, 7005)
        found = timeouts()
        assert found[1][0] is None and found[1][1] <= 30, found
        assert found[5][0] == "voice" and 30 < found[5][1] <= 60, found
        assert "timeout-policy=voice" in gateway.run("conntrack", "-L", "-w", "5").stdout

        # Connections that there are follow at once; one that is over its new deadline is gone.
        told = said(example().replace("udp = 60", "udp = 1200").replace("5, 6", "1"))
        assert "timeout-policy voice: zones 5, 6; udp 60, udp-stream 600 -> zones 1; udp 1200" in told, told
        found = timeouts()
        assert found[5][0] is None and found[5][1] <= 30, found
        assert found[1][0] == "voice" and 1000 < found[1][1] <= 1200, found
        time.sleep(1.1)
        said("[[conntrack.timeout-policy]]\nname = 'short'\nzones = [5]\ntimeouts = { udp = 1 }\n")
        (left,) = connections(gateway, 1)
        assert left["zone"] == 1 and "timeout_policy" not in left, left

        refused = gateway.run("flow", "add", "ip actions=ct(commit,timeout=voice)", check=False)
        assert "timeouts belong to zones" in refused.stderr and "timeout-policy" in refused.stderr
