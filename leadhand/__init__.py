"""What users import and type: the client, the builder and the command line."""

from __future__ import annotations

from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from leadhand.asks import SessionsWanted
    from leadhand.async_client import AsyncClient
    from leadhand.client import Client
    from leadhand.results import LoopResult, PhaseResult
    from leadhand.workflow import Phase, Workflow

__all__ = [
    "AsyncClient",
    "Client",
    "LoopResult",
    "Phase",
    "PhaseResult",
    "SessionsWanted",
    "Workflow",
]

_HOMES = {
    "AsyncClient": "leadhand.async_client",
    "Client": "leadhand.client",
    "LoopResult": "leadhand.results",
    "Phase": "leadhand.workflow",
    "PhaseResult": "leadhand.results",
    "SessionsWanted": "leadhand.asks",
    "Workflow": "leadhand.workflow",
}


def __getattr__(name: str) -> object:
    """Import a public name when it is first used, so that `import leadhand` costs nothing."""
    from importlib import import_module

    if name not in _HOMES:
        raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
    value: object = getattr(import_module(_HOMES[name]), name)
    globals()[name] = value
    return value


def __dir__() -> list[str]:
    return sorted([*globals(), *_HOMES])
