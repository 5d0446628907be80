"""Converts Python functions to `module:function` names, which workers on any host can import."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence

from leadhand.models.documents import Checker, Doer

#: A checker as users write it: a command, `agent: ...`, a function, or the fields of the model.
CheckerLike = str | Checker | Mapping[str, object] | Callable[..., object]
#: A doer as users write it: a command, a function, or the fields of the model.
DoerLike = str | Doer | Mapping[str, object] | Callable[..., object]

_HINT = "put it at the top level of a module that the workers can import"


def callable_name(function: Callable[..., object]) -> str:
    """Returns a function's `module:function` name. Raises ValueError if it cannot be imported.

    >>> callable_name(callable_name)
    'leadhand.callables:callable_name'
    """
    module = getattr(function, "__module__", None)
    name = getattr(function, "__qualname__", None)
    if not isinstance(module, str) or not isinstance(name, str) or isinstance(function, type):
        raise ValueError(f"{function!r} is not a function with a name; {_HINT}")
    if "<lambda>" in name:
        raise ValueError(f"workers cannot import a lambda; {_HINT}")
    if "<locals>" in name:
        inside = name.replace(".<locals>", "")
        raise ValueError(f"{inside!r} is a closure, which workers cannot import; {_HINT}")
    if module == "__main__":
        raise ValueError(f"{name!r} is in the file that runs the workflow; {_HINT}")
    return f"{module}:{name}"


def as_checker(checker: CheckerLike) -> object:
    """Converts a function to `{"callable": its name}`; returns a command or checker unchanged."""
    return {"callable": callable_name(checker)} if callable(checker) else checker


def as_checkers(checkers: CheckerLike | Sequence[CheckerLike]) -> list[object]:
    """Converts one or several commands, functions or checkers to a list that documents accept."""
    if isinstance(checkers, Sequence) and not isinstance(checkers, str):
        return [as_checker(checker) for checker in checkers]
    return [as_checker(checkers)]


def as_doer(doer: DoerLike | None, agent: str | None) -> object:
    """Converts a command, function or agent name to a document's doer. ValueError for two."""
    if doer is not None and agent is not None:
        raise ValueError("give doer or agent, not both")
    if agent is not None:
        return {"agent": agent}
    if isinstance(doer, str):
        return {"command": doer}
    return {"callable": callable_name(doer)} if callable(doer) else doer
