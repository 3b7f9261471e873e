"""The cases of the Linux kernel's selftests: what became of each, held against the table in docs/testing.md."""

import dataclasses
import pathlib
import re

TABLE = pathlib.Path(__file__).resolve().parent.parent.parent / "docs" / "testing.md"


@dataclasses.dataclass(eq=False)
class Script:
    """A script of `tools/testing/selftests/net`, of the version in docs/testing.md, and how many cases it counts."""

    name: str
    cases: int
    not_asked_for: dict
    """What part of the script -> how many of its cases hitpath has no use for. docs/testing.md has the reasons."""

    def demand_all_counted(self, passed, failed=0):
        """Every case of the script is one that passes, one that fails or one not asked for; the table says so."""
        left_out = sum(self.not_asked_for.values())
        assert passed + failed + left_out == self.cases, (passed, failed, left_out, self.cases)
        text = TABLE.read_text()
        assert f"| `{self.name}` | {self.cases} | {passed} | {failed} | {left_out} |" in text
        section = text.split(f"\n### {self.name}\n", 1)[1].split("\n#", 1)[0]
        rows = re.findall(r"^\| (.+?) \| (\d+) \| .+ \|$", section, re.MULTILINE)
        assert {part: int(count) for part, count in rows} == self.not_asked_for
