"""Command lines that iproute2's users type, each really run by `ip` in a namespace and by hitpath.

tests/iproute2/lines.txt says of each what becomes of it: the same, something else that has its reason, or a refusal
that names what is refused. The run verifies that, by the state of both before and after, or by what is shown."""

import collections
import pathlib
import re
import shlex

import pytest

from harness.iproute2 import KERNEL_CANNOT, Pair, without_the_chosen

LINES = pathlib.Path(__file__).parent / "iproute2" / "lines.txt"
DOCUMENT = pathlib.Path(__file__).parent.parent / "docs" / "iproute2.md"

Line = collections.namedtuple("Line", "kind ip before line reason number")
"""`ip` is what iproute2 does: `done` or `fails`. It stands where the kernel of this machine cannot run the line."""


def read():
    """The sections of the file: where its lines are from, what is given, and the lines."""
    sections = []
    for number, text in enumerate(LINES.read_text().splitlines(), 1):
        if text.startswith("= "):
            sections.append((text[2:], [], []))
        elif text.startswith("given "):
            sections[-1][1].append(text.removeprefix("given "))
        elif text and not text.startswith("#"):
            kind, ip, commands, *reason = (part.strip() for part in text.split(" | "))
            *before, line = commands.split(" ; ")
            sections[-1][2].append(Line(kind, ip, before, line, " | ".join(reason), number))
    return sections


SECTIONS = read()
KINDS = ("same", "other", "refused")
OBJECTS = [
    ("address", "address"),
    ("route", "route"),
    ("rule", "rule"),
    ("neighbour", "neighbour"),
    ("neighbor", "neighbour"),
    ("link", "link"),
]
UNTOLD = {"add", "del", "delete", "set", "show", "list", "get", "flush", "replace", "s", "p", "a"}
"""Words that every refusal of such a command has: naming them names nothing."""
SHOWS = ("show", "list", "ls", "lst", "get")


def shown_kind(words):
    """What a line shows, if it shows something that both sides have in the same terms."""
    plain = [word for word in words if not word.startswith("-")]
    if not plain:
        return None
    if "xfrm".startswith(plain[0]):
        kinds = [kind for kind in ("state", "policy") if len(plain) > 1 and kind.startswith(plain[1])]
        verb = plain[2] if len(plain) > 2 else "list"
        return kinds[0] if kinds and any(show.startswith(verb) for show in SHOWS) else None
    kinds = [kind for name, kind in OBJECTS if name.startswith(plain[0])]
    verb = plain[1] if len(plain) > 1 else "show"
    return kinds[0] if kinds and any(show.startswith(verb) for show in SHOWS) else None


def without_priority(facts, words):
    """Rules without the priority that was chosen for them, where the line says none."""
    if {"priority", "prio", "pref", "preference", "order"} & set(words):
        return facts
    rules = {fact for fact in facts if fact[0] == "rule"}
    bare = {(*rule[:2], frozenset(pair for pair in rule[2] if pair[0] != "priority")) for rule in rules}
    return facts - rules | bare


def judge(pair, line):
    """What becomes of the line in both: its kind, whether the kernel could run it, and what to say of it."""
    words = shlex.split(line.line)
    cannot = pair.cannot
    for step in line.before:
        cannot |= pair.both(step)
    known = pair.known if not line.before else None
    before = known or (pair.linux.state(), pair.hitpath.state())
    theirs, ours = pair.linux.run(words), pair.hitpath.run(words)
    after = pair.linux.state(), pair.hitpath.state()
    changed = bool(before != after or line.before)
    pair.known = after
    told = f"ip: {theirs.returncode} {theirs.stderr.strip()}; hitpath: {ours.returncode} {ours.stderr.strip()}"
    cannot |= bool(theirs.returncode != 0 and KERNEL_CANNOT.search(theirs.stderr))
    theirs_done = line.ip == "done" if cannot else theirs.returncode == 0
    if ours.returncode != 0:
        # All or nothing, and never silent.
        assert before[1] == after[1] and ours.stderr.strip(), told
        if not theirs_done:
            return "same", cannot, changed, told
        beyond_object = [word for word in words if not word.startswith("-")][1:] or words
        said = ours.stderr.split(" (")[0]
        # An object that is not here is what is wrong itself.
        all_words = words if "is not here" in said else beyond_object
        named = [word for word in all_words if word not in UNTOLD and word in said]
        assert named, f"no word of the line is in the refusal: {told}"
        return "refused", cannot, changed, told
    if not theirs_done:
        return "other", cannot, changed, told
    if cannot:
        return line.kind, cannot, changed, told
    # What shows something with any of iproute2's options has all in its JSON.
    kind = shown_kind(words)
    if kind:
        plain = [word for word in words if word in ("-4", "-6") or not word.startswith("-")]
        sides = [without_the_chosen(side.records(kind, plain), plain) for side in (pair.linux, pair.hitpath)]
    elif before == after and theirs.stdout + ours.stdout:
        sides = [" ".join(done.stdout.split()) for done in (theirs, ours)]
    else:
        sides = [
            (without_priority(then - now, words), without_priority(now - then, words))
            for then, now in zip(before, after, strict=True)
        ]
    is_same = sides[0] == sides[1]
    return ("same" if is_same else "other"), cannot, changed, f"{told}\n  ip {sides[0]}\n  hitpath {sides[1]}"


COUNTED = collections.Counter()


@pytest.mark.parametrize("number", range(len(SECTIONS)), ids=[re.sub(r"\W+", "-", s[0]) for s in SECTIONS])
def test_lines_do_what_is_said_of_them(root, number, tmp_path):
    _, given, lines = SECTIONS[number]
    wrong, pair, pairs = [], None, 0
    try:
        for line in lines:
            if pair is None:
                pair = Pair(tmp_path / str(pairs), given)
                pairs += 1
            kind, cannot, changed, told = judge(pair, line)
            if kind != line.kind:
                wrong.append(f"{LINES.name}:{line.number}: {line.line}: {kind} and not {line.kind}: {told}")
            COUNTED["not run by this kernel" if cannot else "run by both"] += 1
            if changed:
                pair.end()
                pair = None
    finally:
        if pair:
            pair.end()
    assert not wrong, "\n".join(wrong)


def test_what_is_different_has_its_reason():
    lines = [line for _, _, lines in SECTIONS for line in lines]
    assert len(lines) >= 210
    for line in lines:
        assert line.kind in KINDS and line.ip in ("done", "fails"), line
        assert bool(line.reason) == (line.kind != "same"), line
    assert len({(s[0], line.line, *line.before) for s in SECTIONS for line in s[2]}) == len(lines)


def test_the_document_has_the_counts():
    counts = collections.Counter(line.kind for _, _, lines in SECTIONS for line in lines)
    said = f"{sum(counts.values())} lines: {counts['same']} the same, {counts['other']} with another outcome"
    assert f"{said}, {counts['refused']} refused" in " ".join(DOCUMENT.read_text().split())


def test_how_many_the_kernel_could_run():
    # Said rather than demanded: a kernel with VRFs, VLANs and ESP runs all.
    if sum(COUNTED.values()) == 0:
        pytest.skip("no line was run")
    print(f"{COUNTED['run by both']} lines were run by both, {COUNTED['not run by this kernel']} by hitpath alone")
    assert COUNTED["run by both"] > COUNTED["not run by this kernel"]
