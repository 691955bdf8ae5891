"""The ``deadreckon`` command."""

from __future__ import annotations

import sys

__all__ = ["main"]

PACKAGES = frozenset({"click", "rich"})


def main() -> None:
    """Run the command; what it needs beyond ``deadreckon`` itself is imported here, and its absence is said."""
    try:
        from .commands import command
    except ModuleNotFoundError as missing:
        if (missing.name or "").partition(".")[0] not in PACKAGES:
            raise
        print(
            "deadreckon: the command needs the packages of deadreckon[check]: pip install 'deadreckon[check]'",
            file=sys.stderr,
        )
        sys.exit(2)
    except KeyboardInterrupt:
        print("deadreckon: interrupted", file=sys.stderr)
        sys.exit(2)
    command(prog_name="deadreckon")
