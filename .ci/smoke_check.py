"""What ``deadreckon check incident --json`` must say, installed from the wheel."""

from __future__ import annotations

import json
import sys
from pathlib import Path

incident = json.loads(Path(sys.argv[1]).read_text(encoding="utf-8"))["machines"]["incident"]
assert incident["complete"] is True
for name, rule in incident["rules"].items():
    assert rule["explored"] == "holds", name
    if rule["kind"] == "always":
        assert rule["bounded"]["verdict"] == "holds", name
        assert rule["proved"]["verdict"] == "proved", name
        assert set(rule["proved"]["solvers"]) == {"z3", "cvc5"}, name
assert len(incident["defects"]) >= 17
for name, defect in incident["defects"].items():
    assert defect["verdict"] == "refuted", name
print("wheel with solvers: ok")
