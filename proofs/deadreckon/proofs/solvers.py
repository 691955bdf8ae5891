"""The two solvers, each behind one call: an SMT-LIB 2 script in, an answer out."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from enum import Enum

from deadreckon.spec import EnvironmentFault

try:
    import cvc5
    import z3
except ImportError as missing:
    raise EnvironmentFault(
        f"proofs need the solvers ({missing.name} is not installed): pip install 'deadreckon[check]'"
    ) from missing


class Answer(Enum):
    """What a solver says of a script; anything but the first two counts as unknown."""

    UNSAT = "unsat"
    SAT = "sat"
    UNKNOWN = "unknown"


def _answer(text: str) -> Answer:
    return Answer(text) if text in ("sat", "unsat") else Answer.UNKNOWN


def ask_z3(script: str, seconds: float) -> Answer:
    """Z3's answer within *seconds*; unknown when it can't read the script."""
    solver = z3.Solver()
    solver.set("timeout", max(1, int(seconds * 1000)))
    try:
        solver.from_string(script)
    except z3.Z3Exception:
        return Answer.UNKNOWN
    return _answer(str(solver.check()))


def ask_cvc5(script: str, seconds: float) -> Answer:
    """cvc5's answer within *seconds*; unknown when it can't read the script."""
    solver = cvc5.Solver()
    solver.setOption("tlimit-per", str(max(1, int(seconds * 1000))))
    parser = cvc5.InputParser(solver)
    parser.setStringInput(cvc5.InputLanguage.SMT_LIB_2_6, f"(set-logic ALL)\n{script}(check-sat)\n", "obligation")
    said = ""
    while True:
        try:
            command = parser.nextCommand()
        except RuntimeError:  # cvc5's parser has no narrower one
            return Answer.UNKNOWN
        if command.isNull():
            return _answer(said.strip())
        said = command.invoke(solver, parser.getSymbolManager())


SOLVERS: Mapping[str, Callable[[str, float], Answer]] = {"z3": ask_z3, "cvc5": ask_cvc5}
