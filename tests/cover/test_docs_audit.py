"""The page about audits: its example violates what it says, its map is one, its table has every type."""

from __future__ import annotations

import re
from pathlib import Path

from click.testing import CliRunner

from deadreckon.cli.commands import command
from deadreckon.models.audit import VOCABULARIES
from deadreckon.models.audit.mapping import read_map
from deadreckon.models.audit.words import Place

PAGE = (Path(__file__).parents[2] / "docs" / "audit.md").read_text(encoding="utf-8")


def block(marker: str, language: str) -> str:
    """The code block after ``<!-- marker -->``."""
    found = re.search(rf"<!-- {marker} -->\s*```{language}\n(.*?)```", PAGE, re.DOTALL)
    assert found is not None
    return found[1]


def test_the_example_is_what_is_printed(tmp_path: Path) -> None:
    """Each line of the output stands in the page, dots apart."""
    (tmp_path / "log.jsonl").write_text(block("example", "json"), encoding="utf-8")
    ended = CliRunner().invoke(command, ["audit", str(tmp_path / "log.jsonl")], env={"COLUMNS": "200"})
    assert ended.exit_code == 1
    output = re.search(r"```text\n(.*?)```", PAGE, re.DOTALL)
    assert output is not None
    for line in output[1].replace("log.jsonl", str(tmp_path / "log.jsonl")).splitlines():
        assert line.removesuffix("...") in ended.stdout


def test_the_map_is_one(tmp_path: Path) -> None:
    """The map of the page makes the lines that it says."""
    (tmp_path / "map.toml").write_text(block("map", "toml"), encoding="utf-8")
    parked = {"time": 2, "event": {"name": "gate.parked", "kind": "human"}, "id": "a", "until": 62, "calls": [1, 2]}
    assert list(read_map(str(tmp_path / "map.toml")).lines(parked)) == [
        {"at": 2_000, "type": "hold.requested", "hold": "a", "deadline_at": 62_000, "requests": 2}
    ]


def test_every_type_is_in_the_table() -> None:
    """No vocabulary reads a type that the page doesn't have."""
    types = {type_ for words in VOCABULARIES for type_ in words(lambda rejected: None, Place()).readers}
    assert [type_ for type_ in sorted(types) if f"`{type_}`" not in PAGE] == []


def test_the_readme_audits_a_log() -> None:
    """The command of the README runs as it stands, from the root of the repository."""
    root = Path(__file__).parents[2]
    found = re.search(r"<!-- audit -->\s*```sh\n(.*?)```", (root / "README.md").read_text(encoding="utf-8"), re.DOTALL)
    assert found is not None
    _, *words = found[1].split()
    ended = CliRunner().invoke(command, [words[0], str(root / words[1])])
    assert (ended.exit_code, ended.stderr) == (0, "")
