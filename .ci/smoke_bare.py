"""The wheel without extras: the reference implementation works, and nothing that checks is needed."""

from __future__ import annotations

import asyncio
import importlib.util
import tempfile
from pathlib import Path

from deadreckon.impl import Recovery, SqliteStore


async def main() -> None:
    """One attempt on a real file."""
    with tempfile.TemporaryDirectory() as folder:
        async with SqliteStore(Path(folder) / "service.db") as store, Recovery(store) as recovery:
            async with recovery.attempt("turn-1"):
                pass
            assert not await recovery.unfinished()


assert importlib.util.find_spec("z3") is None, "the bare install brings no solver"
asyncio.run(main())
print("bare wheel: ok")
