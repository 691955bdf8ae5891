"""The loops of the compiled search: the same machine code for every machine, compiled once by numba and kept on disk.

Records lie in one array of words, ``size`` words each: the packed state after, the mark (parent << 32, flags, number of
the instance), the events, and what the search itself needs: the hash, later the slot in the owner's table.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import TypeVar, cast

import numpy as np
import numpy.typing as npt
from llvmlite import ir as llvm
from numba import njit, types

from .kept import keep
from .native import CUT, MISFIT, RECORD, WORD, instructions
from .packing import Words

F = TypeVar("F", bound=Callable[..., object])

AHEAD = 16
"""How many records ahead of its turn the slot of a state is fetched into the cache."""

LABEL = np.uint64((1 << 16) - 1)
MISFITS = np.uint64(MISFIT)
CUTS = np.uint64(CUT)

Numbers = npt.NDArray[np.int32]
Places = npt.NDArray[np.int64]
Indices = npt.NDArray[np.uint32]
Flags = npt.NDArray[np.uint8]


def compiled(function: F) -> F:
    """*function* in machine code that does not hold the interpreter's lock."""
    dispatcher = njit(nogil=True, boundscheck=False)(function)
    keep(dispatcher, function)
    return cast("F", dispatcher)


@instructions
def _call(
    _context: object, address: types.Type, state: types.Type, records: types.Type, pending: types.Type
) -> tuple[object, Callable[..., llvm.Value]]:
    """Call the C function at *address*."""

    def codegen(
        _context: object, builder: llvm.IRBuilder, _signature: object, values: Sequence[llvm.Value]
    ) -> llvm.Value:
        kind = llvm.FunctionType(WORD, (WORD, WORD, WORD))
        return builder.call(builder.inttoptr(values[0], kind.as_pointer()), values[1:])

    return types.int64(types.int64, types.int64, types.int64, types.int64), codegen


@instructions
def _fetch(_context: object, address: types.Type) -> tuple[object, Callable[..., llvm.Value]]:
    """Ask for the cache line at *address*; the answer is always 0."""

    def codegen(
        _context: object, builder: llvm.IRBuilder, _signature: object, values: Sequence[llvm.Value]
    ) -> llvm.Value:
        byte, flag = llvm.IntType(8).as_pointer(), llvm.IntType(32)
        kind = llvm.FunctionType(llvm.VoidType(), (byte, flag, flag, flag))
        prefetch = builder.module.declare_intrinsic("llvm.prefetch", [byte], kind)
        write, near, data = llvm.Constant(flag, 1), llvm.Constant(flag, 3), llvm.Constant(flag, 1)
        builder.call(prefetch, [builder.inttoptr(values[0], byte), write, near, data])
        return llvm.Constant(WORD, 0)

    return types.int64(types.int64), codegen


@compiled
def mixed(words: Words, at: int, count: int) -> np.uint64:
    """A hash of the state that begins at ``words[at]``."""
    found: np.uint64 = words[at]
    if count == 2:
        found ^= (words[at + 1] * np.uint64(0x9E3779B97F4A7C15)) ^ (words[at + 1] >> np.uint64(29))
    found ^= found >> np.uint64(32)
    found *= np.uint64(0xD6E8FEB86659FD93)
    found ^= found >> np.uint64(32)
    found *= np.uint64(0xD6E8FEB86659FD93)
    found ^= found >> np.uint64(32)
    return found


@compiled
def _first_of(events: np.uint64, pending: np.uint64, number: int, label: int, first: Places) -> np.uint64:
    """Note where each pending event was met; those that stay pending."""
    for bit in range(64):
        if events >> np.uint64(bit) & np.uint64(1):
            first[bit, 0] = number
            first[bit, 1] = label
            pending &= ~(np.uint64(1) << np.uint64(bit))
    return pending


@compiled
def expand(
    callbacks: Places,
    order: Words,
    count: int,
    numbers: tuple[int, int],
    records: Words,
    owned: Indices,
    fresh: Flags,
    ran: Flags,
    pending: np.uint64,
    first: Places,
    tally: Places,
) -> None:
    """Write the records of the states *numbers*, and to each owner's list those that are its own.

    ``tally`` becomes records, steps, cut steps, the first deadlock (or -1), the first state whose step does not fit (or
    -1) and its instance, then the length of each owner's list; it ends at a misfit.
    """
    size = count + RECORD
    owners = owned.shape[0]
    tally[:] = 0
    tally[3] = tally[4] = -1
    at = np.int64(order.ctypes.data)
    out = np.int64(records.ctypes.data)
    for number in range(numbers[0], numbers[1]):
        begun = tally[0]
        got = _call(callbacks[0], at + 8 * count * number, out + 8 * size * begun, np.int64(pending))
        if got == 0 and tally[3] < 0 and _call(callbacks[1], at + 8 * count * number, 0, 0) >= 0:
            tally[3] = number
        tally[2] += got >> 32
        tally[0] += got & 0xFFFFFFFF
        for record in range(begun, tally[0]):
            base = record * size
            mark = records[base + count]
            label = int(mark & LABEL)
            records[base + count] = mark | np.uint64(number) << np.uint64(32)
            events = records[base + count + 1] & pending
            if events:
                pending = _first_of(events, pending, number, label, first)
            fresh[record] = 0
            if mark & MISFITS:
                tally[4] = number
                tally[5] = label
                return
            if mark & CUTS:
                continue
            ran[label] = 1
            tally[1] += 1
            found = mixed(records, base, count)
            records[base + count + 2] = found
            owner = np.int64((found >> np.uint64(40)) % np.uint64(owners))
            owned[owner, tally[6 + owner]] = record
            tally[6 + owner] += 1


@compiled
def judged(callbacks: Places, order: Words, number: int, count: int) -> int:
    """The events of a state."""
    return _call(callbacks[1], np.int64(order.ctypes.data) + 8 * count * number, 0, 0)


@compiled
def insert(records: Words, owned: Indices, length: int, fresh: Flags, table: Words, mask: np.uint64, count: int) -> int:
    """Put the owned records into their owner's table; those that were not there are fresh, and their number is given."""
    size = count + RECORD
    made = 0
    line = np.uint64(8 * count)
    at = np.uint64(table.ctypes.data)
    for turn in range(length):
        if turn + AHEAD < length:
            later = records[owned[turn + AHEAD] * size + count + 2]
            _fetch(np.int64(at + (later & mask) * line))
        record = owned[turn]
        base = record * size
        slot = records[base + count + 2] & mask
        while True:
            place = slot * np.uint64(count)
            held = table[place]
            if held == 0:
                for word in range(count):
                    table[place + np.uint64(word)] = records[base + word]
                fresh[record] = 1
                made += 1
                break
            if held == records[base] and (count == 1 or table[place + np.uint64(1)] == records[base + 1]):
                break
            slot = (slot + np.uint64(1)) & mask
    return made


@compiled
def number(
    callbacks: Places,
    records: Words,
    length: int,
    fresh: Flags,
    order: Words,
    parent: Numbers,
    base: int,
    count: int,
    pending: np.uint64,
    first: Places,
) -> None:
    """Give the fresh records numbers from *base* on, in their order, and judge them."""
    size = count + RECORD
    at = np.int64(order.ctypes.data)
    for record in range(length):
        if fresh[record]:
            place = record * size
            for word in range(count):
                order[base * count + word] = records[place + word]
            parent[base] = np.int64(records[place + count] >> np.uint64(32))
            events = np.uint64(_call(callbacks[1], at + 8 * count * base, 0, 0)) & pending
            if events:
                pending = _first_of(events, pending, base, 0, first)
            base += 1


@compiled
def filled(order: Words, length: int, owner: int, owners: int, table: Words, mask: np.uint64, count: int) -> None:
    """Put those of the first states that *owner* owns into its *table*, which holds none of them."""
    for number in range(length):
        place = number * count
        found = mixed(order, place, count)
        if np.int64((found >> np.uint64(40)) % np.uint64(owners)) != owner:
            continue
        slot = found & mask
        while table[slot * np.uint64(count)]:
            slot = (slot + np.uint64(1)) & mask
        for word in range(count):
            table[slot * np.uint64(count) + np.uint64(word)] = order[place + word]


@compiled
def listed(order: Words, length: int, places: Numbers, mask: np.uint64, count: int) -> None:
    """Fill a table of numbers by state: ``places`` holds -1 where nothing is."""
    for at in range(length):
        slot = mixed(order, at * count, count) & mask
        while places[slot] >= 0:
            slot = (slot + np.uint64(1)) & mask
        places[slot] = at


@compiled
def targets(
    records: Words,
    length: int,
    order: Words,
    places: Numbers,
    mask: np.uint64,
    count: int,
    offsets: Places,
    found: Numbers,
    labels: Numbers,
) -> int:
    """The numbers of the states that the records lead to, their labels, and the count of each parent in ``offsets``."""
    size = count + RECORD
    made = 0
    for record in range(length):
        base = record * size
        mark = records[base + count]
        if mark & CUTS:
            continue
        slot = records[base + count + 2] & mask
        while True:
            known = places[slot]
            same = order[known * count] == records[base]
            if same and (count == 1 or order[known * count + 1] == records[base + 1]):
                break
            slot = (slot + np.uint64(1)) & mask
        offsets[np.int64(mark >> np.uint64(32)) + 1] += 1
        found[made] = known
        labels[made] = np.int64(mark & LABEL)
        made += 1
    return made
