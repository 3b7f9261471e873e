"""Captures that others have made: those that tcpdump is tested with, from Debian's source package."""

import ipaddress
import itertools
import os
import pathlib
import struct
import subprocess
import tarfile

CACHE = pathlib.Path(__file__).resolve().parent.parent.parent / ".cache" / "sources"
KEYRING = "/usr/share/keyrings/debian-archive-keyring.gpg"
ETHERNET, RAW, LINUX_COOKED = 1, (12, 14, 101), 113


def source(package, version, suite):
    """The upstream archive of a Debian source package, fetched once. Or why it is not there."""
    directory = CACHE / package
    found = sorted(directory.glob(f"{package}_{version}.orig.tar.*z"))
    if found:
        return found[0], None
    for part in ("lists/partial", "sources"):
        (CACHE / part).mkdir(parents=True, exist_ok=True)
    directory.mkdir(exist_ok=True)
    listed = CACHE / "sources" / f"{suite}.sources"
    listed.write_text(
        f"Types: deb-src\nURIs: http://deb.debian.org/debian\nSuites: {suite}\nComponents: main\n"
        f"Signed-By: {KEYRING}\n"
    )
    options = [
        *("-qq", "-o", f"Dir::Etc::sourcelist={listed}", "-o", "Dir::Etc::sourceparts=/dev/null"),
        *("-o", f"Dir::State::lists={CACHE / 'lists'}", "-o", "APT::Sandbox::User=root"),
    ]
    for words in (["update"], ["source", "--download-only", "--tar-only", package]):
        done = subprocess.run(
            ["apt-get", *options, *words], cwd=directory, capture_output=True, text=True,
            env=os.environ | {"LC_ALL": "C"}, timeout=300,
        )
        if done.returncode:
            said = (done.stderr.strip().splitlines() or ["no message"])[-1]
            return None, f"the Debian source package {package}: apt-get {words[0]}: {said}"
    found = sorted(directory.glob(f"{package}_{version}.orig.tar.*z"))
    return (found[0], None) if found else (None, f"{package} {version} in Debian's {suite}")


def tcpdump(directory):
    """The captures of tcpdump's tests as `{name: path}`, or why they are not there."""
    archive, why = source("tcpdump", "4.99.3", "bookworm")
    if why:
        return None, why
    with tarfile.open(archive) as opened:
        for member in opened:
            if member.isfile() and member.name.endswith(".pcap") and "/tests/" in member.name:
                name = member.name.rsplit("/", 1)[1]
                (pathlib.Path(directory) / name).write_bytes(opened.extractfile(member).read())
    return {path.name: path for path in sorted(pathlib.Path(directory).glob("*.pcap"))}, None


def packets(path, most):
    """The IP packets of a capture, as octets, `most` at most."""
    link, frames = read(path.read_bytes())
    came = []
    for data in itertools.islice(frames, most):
        if link == ETHERNET:
            ether_type, data = data[12:14], data[14:]
        elif link == LINUX_COOKED:
            ether_type, data = data[14:16], data[16:]
        elif link in RAW:
            ether_type = {4: b"\x08\x00", 6: b"\x86\xdd"}.get(data[0] >> 4 if data else 0)
        else:
            return []
        if ether_type in (b"\x08\x00", b"\x86\xdd") and ends(data) and len(data) <= 1500:
            came.append(data)
    return came


def read(octets):
    """Link type and frames of a capture in pcap's format; what is cut at its end is left out."""
    order = {b"\xd4\xc3\xb2\xa1": "<", b"\x4d\x3c\xb2\xa1": "<"}.get(octets[:4], ">")
    if len(octets) < 24 or octets[:4] not in (
        b"\xd4\xc3\xb2\xa1", b"\x4d\x3c\xb2\xa1", b"\xa1\xb2\xc3\xd4", b"\xa1\xb2\x3c\x4d"
    ):
        return 0, []
    frames, at = [], 24
    while at + 16 <= len(octets):
        (length,) = struct.unpack_from(f"{order}I", octets, at + 8)
        if at + 16 + length > len(octets):
            break
        frames.append(octets[at + 16 : at + 16 + length])
        at += 16 + length
    return struct.unpack_from(f"{order}I", octets, 20)[0] & 0xFFFF, frames


def ends(packet):
    """Source and destination of an IP packet, or None if there are none."""
    version = packet[0] >> 4 if packet else 0
    places = {4: (12, 16, 20), 6: (8, 24, 40)}.get(version)
    if not places or len(packet) < places[2]:
        return None
    return tuple(ipaddress.ip_address(packet[at:to]) for at, to in zip(places, places[1:]))


def is_forwarded(address):
    """Whether routers forward packets from and to this address."""
    return not (
        address.is_multicast or address.is_loopback or address.is_unspecified or address.is_link_local
        or address.is_reserved and address.version == 4
        or address.version == 4 and address in ipaddress.ip_network("0.0.0.0/8")
    )


def sides(script):
    """Which end of each packet is at the left: `(side, packet)`. Who speaks first is at the left.

    Packets between two of one side, and those that no router forwards, are left out: no address of
    theirs is unicast beyond a link, or their hop limit ends.
    """
    of, made = {}, []
    other = {"left": "right", "right": "left"}
    for packet in script:
        source, destination = ends(packet)
        hops = packet[8] if source.version == 4 else packet[7]
        if hops < 2 or source == destination or not (is_forwarded(source) and is_forwarded(destination)):
            continue
        if source not in of:
            of[source] = other[of[destination]] if destination in of else "left"
        of.setdefault(destination, other[of[source]])
        if of[source] != of[destination]:
            made.append((of[source], packet))
    return of, made
