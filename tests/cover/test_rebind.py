"""A variant is the sound machine with other helpers, and the sound machine is never touched."""

from __future__ import annotations

from collections.abc import Callable

import pytest

from deadreckon.spec.errors import SpecError
from deadreckon.spec.language import Function, plain
from deadreckon.spec.rebind import Rebinder, global_names, helpers, reachable


def limit() -> int:
    return 3


def no_limit() -> int:
    return 99


def doubled_limit() -> int:
    return 2 * limit()


def spent(deaths: int) -> bool:
    return deaths >= limit()


def admit(deaths: int, *, grace: int = 0) -> int:
    """One more attempt."""
    return deaths if spent(deaths - grace) else max(deaths + 1, *(limit() - 3 for _ in (1, 2)))


def boot(deaths: int) -> int:
    return deaths + 1


def endless(deaths: int) -> int:
    return endless(deaths - 1)


def ping(deaths: int) -> int:
    return pong(deaths)


def pong(deaths: int) -> int:
    return ping(deaths)


def test_swap_reaches_helpers_of_helpers() -> None:
    """A swapped helper is used by every function below, however deep its call."""
    rebound = Rebinder({plain(limit): plain(no_limit)}).rebound(plain(admit))
    assert admit(3) == 3
    assert rebound(3) == 96
    assert rebound(99) == 99


def test_swap_leaves_the_sound_function_as_it_is() -> None:
    """The sound function object, its globals and its helpers are unmodified; the copy shares its code."""
    sound, before = plain(admit), dict(plain(admit).__globals__)
    rebound = Rebinder({plain(limit): plain(no_limit)}).rebound(sound)
    assert rebound is not sound
    assert rebound.__code__ is sound.__code__
    assert dict(sound.__globals__) == before
    assert sound.__globals__["spent"] is spent
    assert admit(3) == 3


def test_copy_keeps_what_describes_the_function() -> None:
    """A rebound function keeps its name, documentation, annotations and defaults."""
    sound = plain(admit)
    rebound = Rebinder({plain(limit): plain(no_limit)}).rebound(sound)
    for name in ("__name__", "__qualname__", "__module__", "__doc__", "__annotations__", "__kwdefaults__"):
        assert getattr(rebound, name) == getattr(sound, name)
    assert rebound(100, grace=50) == 101


def test_unchanged_function_is_the_same_object() -> None:
    """A function that reaches no swapped helper is returned as it is."""
    rebinder = Rebinder({plain(limit): plain(no_limit)})
    assert rebinder.rebound(plain(boot)) is boot
    assert Rebinder().rebound(plain(admit)) is admit


def test_rebound_function_is_made_once() -> None:
    """The same rebinder returns the same copy each time."""
    rebinder = Rebinder({plain(limit): plain(no_limit)})
    assert rebinder.rebound(plain(admit)) is rebinder.rebound(plain(admit))


def test_swap_of_the_function_itself() -> None:
    """A function that is itself swapped becomes its replacement."""
    assert Rebinder({plain(boot): plain(admit)}).rebound(plain(boot))(3) == 3


def test_replacement_may_call_what_it_replaces() -> None:
    """A replacement that calls the replaced helper gets the sound one."""
    rebound = Rebinder({plain(limit): plain(doubled_limit)}).rebound(plain(spent))
    assert [rebound(deaths) for deaths in (3, 5, 6)] == [False, False, True]


def test_names_are_replaced_everywhere_below() -> None:
    """A global or builtin replaced by name is replaced in the function and in its helpers."""
    rebound = Rebinder(names={"max": min}).rebound(plain(admit))
    assert rebound(1) == 0
    assert admit(1) == 2


def test_wrap_is_applied_to_called_helpers_alone() -> None:
    """Each call of a helper goes through the wrap; the outermost function does not."""
    called: list[str] = []

    def wrap(helper: Function) -> Callable[..., object]:
        def wrapped(*arguments: object) -> object:
            called.append(helper.__name__)
            return helper(*arguments)

        return wrapped

    assert Rebinder(wrap=wrap).rebound(plain(admit))(1) == 2
    assert called == ["spent", "limit", "limit", "limit"]


def test_helpers_are_found_in_nested_code() -> None:
    """Names inside generator expressions count, those of installed libraries and of builtins do not."""
    assert "limit" in set(global_names(admit.__code__))
    assert helpers(plain(admit)) == {"spent": plain(spent), "limit": plain(limit)}


def test_reachable_gives_each_function_once_callees_first() -> None:
    """Every function below is given once, after all that it calls."""
    assert list(reachable(plain(admit))) == [plain(limit), plain(spent), plain(admit)]


@pytest.mark.parametrize("function", [endless, ping])
def test_recursion_is_refused(function: Callable[[int], int]) -> None:
    """A helper that calls itself, directly or through others, is refused with what to write instead."""
    with pytest.raises(SpecError, match=f"{function.__name__} calls itself") as refusal:
        list(reachable(plain(function)))
    assert refusal.value.where == f"{__file__}:{function.__code__.co_firstlineno}"
    assert "loop over a range" in refusal.value.instead
