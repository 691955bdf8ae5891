"""The model of TLC's ``Recovery.tla`` in Deadreckon's language, state for state, with its four wrong protocols.

An isolate runs attempts at the turns of two incidents and may die at any step, losing its memory and every write that
is not synced. An attempt records itself in its incident's flight list before heavy work, waits for the sync, and takes
itself away afterwards. The next admission counts each other isolate that left entries once, and seals the incident at
the limit.

The sizes are machines, so the command takes them; R5 to R7 are the sizes that other checkers were measured with. The
wrong protocols are variants of each.

    deadreckon check bench/recovery.py:R5
    deadreckon defects bench/recovery.py:one single

====  ======================  ==========  ==========  =====
size  Max, K                      states       edges  depth
====  ======================  ==========  ==========  =====
one   3, 4; at one incident        1,234       2,519     18
R5    2, 3                        93,150     264,669     21
R6    4, 5                     1,513,060   4,556,180     33
R7    5, 8                    10,658,487  33,977,565     41
====  ======================  ==========  ==========  =====

How the two notions compare. *Distinct states* are the same thing. TLC's *generated* counts the initial state and each
successor of each action instance, seen before or not; our edges are the latter, so generated = edges + 1. TLC's *depth*
counts the states of the longest shortest path, ours its steps, so depth = ours + 1. In TLC's model the flight list is a
set of (isolate, slot); every admission drops the entries of other isolates, so it holds at most one entry of a slot,
and a tuple of owners (0: none, else the isolate + 1) is the same set.
"""

from __future__ import annotations

from enum import Enum

import attrs

from deadreckon.spec import Among, Machine, Variant, action, always, require, scope, sometimes, swap

SOURCE = "Recovery.tla, the model of the same protocol for TLC"


class Pc(Enum):
    """Where an attempt is."""

    IDLE = "idle"
    ADMIT = "admit"
    WORK = "work"
    CLEAR = "clear"
    DONE = "done"


@attrs.frozen
class Policy:
    """Deaths at which an incident is sealed, and how many crashes there may be."""

    limit: int
    crashes: int


def policy_is_valid(policy: Policy) -> bool:
    return policy.limit >= 1 and policy.crashes >= 0


@attrs.frozen
class Record:
    """One incident in storage."""

    count: int
    sealed: bool
    flight: tuple[int, ...]


@attrs.frozen
class Incident:
    """One incident: synced, as the isolate sees it, and its attempts."""

    disk: Record
    mem: Record
    pcs: tuple[Pc, ...]


@attrs.frozen
class State:
    """The isolate that lives, and the incidents."""

    iso: int
    incidents: tuple[Incident, ...]


@attrs.frozen
class Seen:
    """For one incident: isolates that died in heavy work; those, and those dead before a finish was synced."""

    died: int = 0
    may: int = 0


@attrs.frozen
class Ghost:
    """What really happened, for each incident."""

    incidents: tuple[Seen, ...] = (Seen(), Seen())


def fresh() -> Incident:
    """An incident without deaths or attempts."""
    empty = Record(0, False, (0, 0))
    return Incident(empty, empty, (Pc.IDLE, Pc.IDLE))


def initial() -> State:
    return State(0, (fresh(), fresh()))


# Helpers, some of which the variants replace.


def dead_isolates(flight: tuple[int, ...], iso: int) -> int:
    """How many other isolates left entries."""
    return sum(
        1 for index, owner in enumerate(flight) if owner != 0 and owner != iso + 1 and owner not in flight[:index]
    )


def found_dead(flight: tuple[int, ...], iso: int) -> int:
    """What an admission adds to the count."""
    return dead_isolates(flight, iso)


def kept(flight: tuple[int, ...], iso: int) -> tuple[int, ...]:
    """The entries that an admission keeps."""
    return tuple(owner if owner == iso + 1 else 0 for owner in flight)


def removed(flight: tuple[int, ...], slot: int) -> tuple[int, ...]:
    """The entries after a finish."""
    return (*flight[:slot], 0, *flight[slot + 1 :])


def ended(mem: Record, disk: Record) -> Pc:
    """Where an attempt is after its finish: done at once only if nothing is to be synced."""
    return Pc.DONE if mem == disk else Pc.CLEAR


def found_none(flight: tuple[int, ...], iso: int) -> int:
    """Counting is left to the failure path, whose writes are lost."""
    return 0


def found_each(flight: tuple[int, ...], iso: int) -> int:
    """Each entry that was left counts."""
    return sum(1 for owner in flight if owner != 0 and owner != iso + 1)


def kept_none(flight: tuple[int, ...], iso: int) -> tuple[int, ...]:
    """An admission replaces the one record."""
    return tuple(0 for _ in flight)


def removed_all(flight: tuple[int, ...], slot: int) -> tuple[int, ...]:
    """A finish removes the one record."""
    return tuple(0 for _ in flight)


def ended_at_once(mem: Record, disk: Record) -> Pc:
    """A finish does not wait for its removal to be synced."""
    return Pc.DONE


def put(state: State, at: int, incident: Incident) -> State:
    return attrs.evolve(state, incidents=(*state.incidents[:at], incident, *state.incidents[at + 1 :]))


def moved(pcs: tuple[Pc, ...], slot: int, pc: Pc) -> tuple[Pc, ...]:
    return (*pcs[:slot], pc, *pcs[slot + 1 :])


# Actions.


def admit(policy: Policy, state: State, incident: int, slot: int) -> State:
    """An attempt asks to run: it counts the dead, and enters or seals."""
    one = state.incidents[incident]
    require(one.pcs[slot] == Pc.IDLE, "A", "the slot is taken")
    require(not one.mem.sealed, "A", "the incident is sealed")
    count = min(one.mem.count + found_dead(one.mem.flight, state.iso), policy.limit)
    live = kept(one.mem.flight, state.iso)
    if count >= policy.limit:
        return put(state, incident, attrs.evolve(one, mem=Record(count, True, live)))
    entered = (*live[:slot], state.iso + 1, *live[slot + 1 :])
    mem = Record(count, False, entered)
    return put(state, incident, attrs.evolve(one, mem=mem, pcs=moved(one.pcs, slot, Pc.ADMIT)))


def waited(pc: Pc) -> Pc:
    """Where an attempt is once what it waited for is synced."""
    return Pc.WORK if pc == Pc.ADMIT else Pc.DONE if pc == Pc.CLEAR else pc


def synced(one: Incident) -> Incident:
    return Incident(one.mem, one.mem, tuple(waited(pc) for pc in one.pcs))


def flush(state: State) -> State:
    """The write buffer reaches storage; those who waited for it go on."""
    require(any(one.mem != one.disk for one in state.incidents), "A", "nothing is buffered")
    return attrs.evolve(state, incidents=tuple(synced(one) for one in state.incidents))


def finish(state: State, incident: int, slot: int) -> State:
    """An attempt takes its entry away."""
    one = state.incidents[incident]
    require(one.pcs[slot] == Pc.WORK, "A", "no attempt works in the slot")
    mem = attrs.evolve(one.mem, flight=removed(one.mem.flight, slot))
    return put(state, incident, attrs.evolve(one, mem=mem, pcs=moved(one.pcs, slot, ended(mem, one.disk))))


def lost(one: Incident) -> Incident:
    return Incident(one.disk, one.disk, tuple(Pc.DONE if pc == Pc.DONE else Pc.IDLE for pc in one.pcs))


def crash(policy: Policy, state: State) -> State:
    """The isolate dies; another wakes with what storage has."""
    require(state.iso < policy.crashes, "A", "enough have died")
    return State(state.iso + 1, tuple(lost(one) for one in state.incidents))


def mourned(one: Incident, seen: Seen) -> Seen:
    """What is really so after the isolate of *one* died."""
    worked = any(pc == Pc.WORK for pc in one.pcs)
    cleared = any(pc == Pc.CLEAR for pc in one.pcs)
    return Seen(seen.died + (1 if worked else 0), seen.may + (1 if worked or cleared else 0))


def observe(before: State, after: State, ghost: Ghost) -> Ghost:
    if after.iso == before.iso:
        return ghost
    pairs = zip(before.incidents, ghost.incidents, strict=True)
    return Ghost(tuple(mourned(one, seen) for one, seen in pairs))


# Rules. TLC's invariant is the conjunction of the first four; the lemmas make them inductive.


def runs(pc: Pc) -> bool:
    return pc == Pc.ADMIT or pc == Pc.WORK


def runs_nothing(one: Incident) -> bool:
    return not any(runs(pc) for pc in one.pcs)


def counted(record: Record, iso: int) -> int:
    return record.count + dead_isolates(record.flight, iso)


@always("NoLost", "every isolate that died in heavy work is counted, or will be", source=SOURCE)
def no_lost(state: State, ghost: Ghost) -> bool:
    pairs = zip(state.incidents, ghost.incidents, strict=True)
    return all(seen.died <= counted(one.disk, state.iso) for one, seen in pairs)


@always("NoPhantom", "nothing but such a death, or an unsynced finish, is counted", source=SOURCE)
def no_phantom(state: State, ghost: Ghost) -> bool:
    pairs = zip(state.incidents, ghost.incidents, strict=True)
    return all(counted(one.disk, state.iso) <= seen.may for one, seen in pairs)


@always("Bounded", "heavy work that kills its isolate runs at most limit times", source=SOURCE)
def bounded(policy: Policy, ghost: Ghost) -> bool:
    return all(seen.died <= policy.limit for seen in ghost.incidents)


@always("Sealed", "no attempt runs at a sealed incident", source=SOURCE)
def sealed(state: State) -> bool:
    return all(runs_nothing(one) or not one.mem.sealed for one in state.incidents)


def of_one(flight: tuple[int, ...]) -> bool:
    first, second = flight
    return first == 0 or second == 0 or first == second


@always("OneOwner", "the entries of a flight list are of one isolate", source=SOURCE, lemma=True)
def one_owner(state: State) -> bool:
    return all(of_one(one.disk.flight) and of_one(one.mem.flight) for one in state.incidents)


def below_limit(policy: Policy, record: Record) -> bool:
    if record.sealed:
        return record.count == policy.limit and not any(owner != 0 for owner in record.flight)
    return record.count < policy.limit


@always("AtLimit", "an incident is sealed at the limit, with nothing in flight", source=SOURCE, lemma=True)
def at_limit(policy: Policy, state: State) -> bool:
    return all(below_limit(policy, one.disk) and below_limit(policy, one.mem) for one in state.incidents)


def entered(pc: Pc, disk: int, mem: int, iso: int) -> bool:
    """Whether the entries of a slot are what its attempt has written and synced."""
    own = iso + 1
    if pc == Pc.WORK:
        return disk == own and mem == own
    if pc == Pc.CLEAR:
        return disk == own and mem == 0
    if pc == Pc.DONE:
        return disk == 0 and mem == 0
    return 0 <= disk < own and (mem == own if pc == Pc.ADMIT else 0 <= mem < own)


@always("InFlight", "an entry of the living isolate is there exactly while its attempt is", source=SOURCE, lemma=True)
def in_flight(state: State) -> bool:
    return state.iso >= 0 and all(
        entered(pc, disk, mem, state.iso)
        for one in state.incidents
        for pc, disk, mem in zip(one.pcs, one.disk.flight, one.mem.flight, strict=True)
    )


@always("Conserved", "what is buffered changes nothing in what is counted, or will be", source=SOURCE, lemma=True)
def conserved(state: State) -> bool:
    return all(counted(one.mem, state.iso) == counted(one.disk, state.iso) for one in state.incidents)


@sometimes("Seals", "an incident is sealed", source=SOURCE, beside=("NoLost", "NoPhantom", "Bounded", "Sealed"))
def seals(state: State) -> bool:
    return any(one.disk.sealed for one in state.incidents)


LEMMAS = (one_owner, at_limit, in_flight, conserved)


def on_its_way(pc: Pc) -> bool:
    return pc != Pc.IDLE and pc != Pc.DONE


def at_rest(state: State) -> bool:
    """No attempt waits or works."""
    return not any(on_its_way(pc) for one in state.incidents for pc in one.pcs)


SLOT = Among((0, 1))


VARIANTS = (
    Variant("single", "NoLost", "one record, not a list", (swap(kept, kept_none), swap(removed, removed_all))),
    Variant("late", "NoLost", "counting on the failure path", (swap(found_dead, found_none),)),
    Variant("nosync", "NoPhantom", "a finish does not wait for the sync", (swap(ended, ended_at_once),)),
    Variant("each", "NoPhantom", "each entry counts", (swap(found_dead, found_each),)),
)

SLOTS_THEN_INCIDENTS = (
    ("incidents[0].disk.flight", "incidents[0].mem.flight", "incidents[0].pcs"),
    ("incidents[1].disk.flight", "incidents[1].mem.flight", "incidents[1].pcs"),
    ("incidents", "ghost.incidents"),
)


def recovery(limit: int, crashes: int, *, incidents: tuple[int, ...] = (0, 1), symmetric: bool = False) -> Machine:
    """The machine of one size.

    Args:
        limit: deaths at which an incident is sealed (Max).
        crashes: how many isolates may die (K).
        incidents: those at which attempts are made; the state holds two.
        symmetric: whether the explorer keeps one state for all permutations of slots and incidents.
    """
    incident, slot = Among(incidents), Among((0, 1))
    return Machine(
        name=f"recovery-{limit}-{crashes}{'' if len(incidents) > 1 else '-one'}{'-symmetric' if symmetric else ''}",
        title="Every isolate that died in heavy work is counted once.",
        state=State,
        policy=Policy,
        policy_valid=policy_is_valid,
        initial=(initial,),
        ghost=Ghost,
        observe=observe,
        actions=(
            action(admit, incident=incident, slot=slot),
            action(flush),
            action(finish, incident=incident, slot=slot),
            action(crash),
        ),
        rules=(no_lost, no_phantom, bounded, sealed, *LEMMAS, seals),
        scopes=(scope("size", why="the crashes bound it", policy=Policy(limit, crashes)),),
        terminal=at_rest,
        interchangeable=SLOTS_THEN_INCIDENTS if symmetric else (),
        variants=VARIANTS,
    )


one = recovery(3, 4, incidents=(0,))
R5 = recovery(2, 3)
R6 = recovery(4, 5)
R7 = recovery(5, 8)
R5_SYMMETRIC = recovery(2, 3, symmetric=True)
