"""Names Python callables so that workers on any machine can import them."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence

from leadhand.documents import Checker, Doer

#: Who may judge, as people write it: a command, `agent: ...`, a function, or the whole model.
CheckerLike = str | Checker | Mapping[str, object] | Callable[..., object]
#: Who may work, as people write it: a command, a function, or the whole model.
DoerLike = str | Doer | Mapping[str, object] | Callable[..., object]

_WAY_OUT = "put it at the top level of a module that the workers can import"


def callable_name(function: Callable[..., object]) -> str:
    """The `module:function` under which workers find it. Raises ValueError where they cannot.

    >>> callable_name(callable_name)
    'leadhand.callables:callable_name'
    """
    module = getattr(function, "__module__", None)
    name = getattr(function, "__qualname__", None)
    if not isinstance(module, str) or not isinstance(name, str) or isinstance(function, type):
        raise ValueError(f"{function!r} is no function with a name; {_WAY_OUT}")
    if "<lambda>" in name:
        raise ValueError(f"a lambda has no name that workers could import; {_WAY_OUT}")
    if "<locals>" in name:
        inside = name.replace(".<locals>", "")
        raise ValueError(f"{inside!r} is a closure, which workers cannot import; {_WAY_OUT}")
    if module == "__main__":
        raise ValueError(f"{name!r} stands in the file that runs the workflow; {_WAY_OUT}")
    return f"{module}:{name}"


def as_checker(checker: CheckerLike) -> object:
    """What the documents take for a checker."""
    return {"callable": callable_name(checker)} if callable(checker) else checker


def as_checkers(checkers: CheckerLike | Sequence[CheckerLike]) -> list[object]:
    """One checker or several, as the documents take them."""
    if isinstance(checkers, Sequence) and not isinstance(checkers, str):
        return [as_checker(checker) for checker in checkers]
    return [as_checker(checkers)]


def as_doer(doer: DoerLike | None, agent: str | None) -> object:
    """What the documents take for a doer; None leaves it to the default agent."""
    if doer is not None and agent is not None:
        raise ValueError("give doer or agent, not both")
    if agent is not None:
        return {"agent": agent}
    if isinstance(doer, str):
        return {"command": doer}
    return {"callable": callable_name(doer)} if callable(doer) else doer
