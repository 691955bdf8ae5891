"""``python -m deadreckon.cli``."""

from __future__ import annotations

from . import main

if __name__ == "__main__":  # worker processes import this module too
    main()
