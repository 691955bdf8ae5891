"""Machine code for a program: LLVM instructions, put into a C callback that numba compiles and caches.

The instructions come straight from the expressions; Python code for numba to analyse would take it ten times as long.
A callback is kept on disk by the digest that :func:`compiled` is given, so that a second start compiles nothing.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from functools import partial, reduce
from typing import cast

import attrs
from llvmlite import ir as llvm
from numba import types
from numba.core.ccallback import CFunc
from numba.extending import intrinsic

from deadreckon.spec import InternalError

from .. import expr as ir
from ..expr import Op
from .dataflow import Program, Values
from .kept import keep

WORD = llvm.IntType(64)
BIT = llvm.IntType(1)

CUT, MISFIT = 1 << 16, 1 << 17
"""Flags of a record beside the number of the instance: the step leaves the bounds; its state does not fit."""

RECORD = 3
"""Words of a record beside those of the state: mark, events, and one for the search."""

MAX_INSTANCES = 1 << 16

Emit = Callable[[llvm.IRBuilder, Sequence[llvm.Value]], llvm.Value]


class LlvmOps:
    """Operations as instructions at the end of a block; a step keeps to 64 bits (:meth:`Program.check_arithmetic`)."""

    def __init__(self, builder: llvm.IRBuilder) -> None:
        self.builder = builder

    def number(self, value: int) -> llvm.Value:
        """A constant number."""
        return llvm.Constant(WORD, value)

    def truth(self, value: bool) -> llvm.Value:
        """A constant truth."""
        return llvm.Constant(BIT, int(value))

    word = number

    def apply(self, op: Op, args: Sequence[llvm.Value]) -> llvm.Value:
        """An operator of the intermediate form."""
        build = self.builder
        match op:
            case Op.AND:
                return reduce(build.and_, args)
            case Op.OR:
                return reduce(build.or_, args)
            case Op.ITE:
                return build.select(*args)
            case Op.EQ | Op.LT | Op.LE:
                return build.icmp_signed({Op.EQ: "==", Op.LT: "<", Op.LE: "<="}[op], *args)
            case _:
                return {Op.ADD: build.add, Op.MUL: build.mul, Op.NEG: build.neg, Op.NOT: build.not_}[op](*args)

    def both(self, left: llvm.Value, right: llvm.Value) -> llvm.Value:
        """Bitwise and."""
        return self.builder.and_(left, right)

    def either(self, left: llvm.Value, right: llvm.Value) -> llvm.Value:
        """Bitwise or."""
        return self.builder.or_(left, right)

    def up(self, word: llvm.Value, bits: int) -> llvm.Value:
        """A shift to the left."""
        return self.builder.shl(word, self.word(bits)) if bits else word

    def down(self, word: llvm.Value, bits: int) -> llvm.Value:
        """A logical shift to the right."""
        return self.builder.lshr(word, self.word(bits)) if bits else word

    def as_number(self, word: llvm.Value, low: int) -> llvm.Value:
        """*low* + *word*."""
        return self.builder.add(word, self.number(low)) if low else word

    def as_truth(self, word: llvm.Value) -> llvm.Value:
        """Whether *word* is not 0."""
        return self.builder.icmp_unsigned("!=", word, self.word(0))

    def number_as_word(self, number: llvm.Value, low: int) -> llvm.Value:
        """*number* - *low*."""
        return self.builder.sub(number, self.number(low)) if low else number

    def truth_as_word(self, truth: llvm.Value) -> llvm.Value:
        """1 or 0."""
        return self.builder.zext(truth, WORD)

    def at_most(self, word: llvm.Value, greatest: int) -> llvm.Value:
        """An unsigned comparison: what is below 0 is too large."""
        return self.builder.icmp_unsigned("<=", word, self.word(greatest))

    def ordered(self, left: llvm.Value, right: llvm.Value) -> tuple[llvm.Value, llvm.Value]:
        """The lesser and the greater."""
        swap = self.builder.icmp_unsigned(">", left, right)
        return self.builder.select(swap, right, left), self.builder.select(swap, left, right)


_emitters: dict[str, Emit] = {}


def instructions(typing: Callable[..., tuple[object, Callable[..., llvm.Value]]]) -> Callable[..., int]:
    """A function for numba code: *typing* gives its signature, and what writes its instructions."""
    return cast("Callable[..., int]", intrinsic(prefer_literal=True)(typing))


@instructions
def _emitted(
    _context: object, key: types.StringLiteral, state: types.Type, records: types.Type, pending: types.Type
) -> tuple[object, Callable[..., llvm.Value]]:
    """In numba code: the instructions of the emitter registered under *key*."""
    emit = _emitters[key.literal_value]

    def codegen(
        _context: object, builder: llvm.IRBuilder, _signature: object, values: Sequence[llvm.Value]
    ) -> llvm.Value:
        return emit(builder, values[1:])

    return types.int64(key, state, records, pending), codegen


def _callback(key: str, emit: Emit) -> CFunc:
    """A C function of three words. It is kept by its code and by *key*, which is all that it closes over."""

    def run(state: int, records: int, pending: int) -> int:
        return _emitted(key, state, records, pending)

    found = CFunc(run, ((types.int64, types.int64, types.int64), types.int64), locals={}, options={})
    keep(found, run)
    _emitters[key] = emit
    try:
        found.compile()
    finally:
        del _emitters[key]
    return found


@attrs.frozen
class Callbacks:
    """Addresses of C functions over a packed state.

    ``expand(state, records, pending)`` writes a record for each step that is not cut, or that meets a pending rule: the
    words of the state after, the instance with its flags, and the events; it gives the number of records, and in the
    high half the number of cut steps. ``judge(state)`` gives the events of a state; bit 63 says that it may rest.
    """

    expand: int
    judge: int
    kept: tuple[CFunc, CFunc]


def compiled(program: Program, digest: str) -> Callbacks:
    """Compile *program*, or load what was compiled under this *digest*."""
    expand = _callback(f"expand {digest}", partial(_expand, program))
    judge = _callback(f"judge {digest}", partial(_judge, program))
    return Callbacks(_address(expand), _address(judge), (expand, judge))


def _address(callback: CFunc) -> int:
    if callback.address is None:
        raise InternalError("numba compiled a callback and does not say where it is")
    return callback.address


def _load(builder: llvm.IRBuilder, address: llvm.Value, words: int) -> list[llvm.Value]:
    pointer = builder.inttoptr(address, WORD.as_pointer())
    return [builder.load(builder.gep(pointer, [llvm.Constant(WORD, at)])) for at in range(words)]


def _judge(program: Program, builder: llvm.IRBuilder, args: Sequence[llvm.Value]) -> llvm.Value:
    values = Values(program, LlvmOps(builder), _load(builder, args[0], program.packing.words))
    terminal = program.grounded.triggers.get("terminal", ir.FALSE)
    rests = values.ops.up(values.ops.truth_as_word(values.of(terminal)), 63)
    return builder.or_(values.events([one for _, one in program.judged.of_state]), rests)


def _expand(program: Program, builder: llvm.IRBuilder, args: Sequence[llvm.Value]) -> llvm.Value:
    """One block an instance, entered where its guard holds; what guards share is computed before."""
    state, records, pending = args
    size = program.packing.words + RECORD
    values = Values(program, LlvmOps(builder), _load(builder, state, program.packing.words))
    guards = [values.of(instance.guard) for instance in program.grounded.instances]
    out = builder.alloca(WORD)
    cuts = builder.alloca(WORD)
    builder.store(records, out)
    builder.store(llvm.Constant(WORD, 0), cuts)
    for instance, guard in zip(program.grounded.instances, guards, strict=True):
        with builder.if_then(guard):
            after = values.inner().after(instance)
            events = builder.and_(after.events, pending)
            cut = builder.not_(after.within)
            builder.store(builder.add(builder.load(cuts), builder.zext(cut, WORD)), cuts)
            wanted = builder.or_(after.within, builder.icmp_unsigned("!=", events, llvm.Constant(WORD, 0)))
            with builder.if_then(wanted):
                misfit = builder.and_(after.within, builder.not_(after.fits))
                meta: llvm.Value = llvm.Constant(WORD, instance.index)
                meta = builder.or_(meta, builder.select(cut, llvm.Constant(WORD, CUT), llvm.Constant(WORD, 0)))
                meta = builder.or_(meta, builder.select(misfit, llvm.Constant(WORD, MISFIT), llvm.Constant(WORD, 0)))
                at = builder.load(out)
                pointer = builder.inttoptr(at, WORD.as_pointer())
                for place, value in enumerate((*after.words, meta, events)):
                    builder.store(value, builder.gep(pointer, [llvm.Constant(WORD, place)]))
                builder.store(builder.add(at, llvm.Constant(WORD, 8 * size)), out)
    written = builder.udiv(builder.sub(builder.load(out), records), llvm.Constant(WORD, 8 * size))
    return builder.or_(written, builder.shl(builder.load(cuts), llvm.Constant(WORD, 32)))
