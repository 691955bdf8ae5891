"""Print the shell commands of one section of the README: ``python .ci/readme.py tests``."""

from __future__ import annotations

import re
import sys
from pathlib import Path


def commands(section: str, readme: Path = Path(__file__).parents[1] / "README.md") -> str:
    """The ``sh`` block that follows the marker ``<!-- section -->``.

    Raises:
        SystemExit: when the README has no such block.
    """
    found = re.search(
        rf"<!-- {re.escape(section)} -->\s*```sh\n(.*?)```", readme.read_text(encoding="utf-8"), re.DOTALL
    )
    if found is None:
        raise SystemExit(f"{readme} has no sh block after <!-- {section} -->")
    return found[1]


if __name__ == "__main__":
    print(commands(sys.argv[1]), end="")
