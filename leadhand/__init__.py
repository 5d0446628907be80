"""Leadhand's Python client, workflow builder and command line."""

from __future__ import annotations

from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from leadhand.client.client import AsyncClient, Client
    from leadhand.contract import generate_contract
    from leadhand.contract.sessions import SessionsWanted
    from leadhand.graph import Graph, GraphResult
    from leadhand.results import LoopResult, PhaseResult
    from leadhand.state import load_exit_reason, poll, save_exit_reason
    from leadhand.workflow import Phase, Workflow

__all__ = [
    "AsyncClient",
    "Client",
    "Graph",
    "GraphResult",
    "LoopResult",
    "Phase",
    "PhaseResult",
    "SessionsWanted",
    "Workflow",
    "generate_contract",
    "load_exit_reason",
    "poll",
    "save_exit_reason",
]

_HOMES = {
    "AsyncClient": "leadhand.client.client",
    "Client": "leadhand.client.client",
    "Graph": "leadhand.graph",
    "GraphResult": "leadhand.graph",
    "LoopResult": "leadhand.results",
    "Phase": "leadhand.workflow",
    "PhaseResult": "leadhand.results",
    "SessionsWanted": "leadhand.contract.sessions",
    "Workflow": "leadhand.workflow",
    "generate_contract": "leadhand.contract",
    "load_exit_reason": "leadhand.state",
    "poll": "leadhand.state",
    "save_exit_reason": "leadhand.state",
}


def __getattr__(name: str) -> object:
    """Import a public name when it is first used, so that `import leadhand` costs nothing."""
    import sys
    from importlib import import_module

    if name not in _HOMES:
        # With both, a traceback ends with the name that is meant.
        text = f"module {__name__!r} has no attribute {name!r}"
        raise AttributeError(text, name=name, obj=sys.modules[__name__])
    value: object = getattr(import_module(_HOMES[name]), name)
    globals()[name] = value
    return value


def __dir__() -> list[str]:
    return sorted([*globals(), *_HOMES])
