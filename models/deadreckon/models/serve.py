"""Serve a driver over stdin and stdout, in the protocol of ``docs/conform.md``: the other end of :mod:`.foreign`.

For implementations in Python that live in another environment, or that should die with their process::

    serve(incident, MyDriver())
"""

from __future__ import annotations

import json
import sys
from collections.abc import Mapping
from typing import TextIO

from deadreckon.spec import CallerError, EnvironmentFault, Machine, Refused

from .driver import Driver, Lack, Unable, at_once, cannot, never_refuses
from .wire import Json, members, read_inputs, read_policy, written, written_state


def serve(machine: Machine, driver: Driver, requests: TextIO = sys.stdin, answers: TextIO = sys.stdout) -> None:
    """Answer *requests* until there are no more, or until "bye"; then close *driver*.

    What the driver raises beside :class:`~deadreckon.spec.Refused` is a refusal too, which names no rule; but an
    :class:`~deadreckon.spec.EnvironmentFault` ends the program.
    """
    try:
        for line in requests:
            request = members(json.loads(line))
            answer = {"id": request["id"], **_answer(machine, driver, request)}
            print(json.dumps(answer), file=answers, flush=True)
            if request["do"] == "bye":
                return
    finally:
        driver.close()


def _answer(machine: Machine, driver: Driver, request: Mapping[str, Json]) -> dict[str, Json]:
    match request["do"]:
        case "init":
            if request.get("machine") != machine.name:
                raise CallerError(f"this drives {machine.name}, not {request.get('machine')}")
            driver.reset(read_policy(machine, request.get("policy")))
            own, lacks, never = at_once(driver), cannot(driver), never_refuses(driver)
            return {"ok": True, "at_once": own, "cannot": list(map(_lack, lacks)), "never_refuses": never}
        case "act":
            action = str(request["action"])
            return _done(driver, action, read_inputs(machine, action, request.get("inputs", {})))
        case "observe":
            return {"state": written_state(driver.observe())}
        case _:
            return {"ok": True}


def _done(driver: Driver, action: str, inputs: Mapping[str, object]) -> dict[str, Json]:
    try:
        driver.do(action, **inputs)
    except Refused as refusal:
        return {"refused": True, "rule": refusal.rule, "why": refusal.why}
    except Unable as unable:
        return {"unable": True, "why": str(unable)}
    except EnvironmentFault:
        raise
    except Exception as failure:
        return {"refused": True, "why": f"it failed: {type(failure).__name__}: {failure}"}
    return {"ok": True}


def _lack(lack: Lack) -> Json:
    if isinstance(lack, str):
        return lack
    return {"action": lack[0], "inputs": {name: written(value) for name, value in lack[1].items()}}
