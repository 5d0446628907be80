"""The LEADHAND_ variables of the environment, and the ones that look misspelt. Pure."""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from difflib import get_close_matches

_PREFIX = "LEADHAND_"
#: What clients and bodies read.
CLIENT = frozenset({
    "URL", "TOKEN", "SESSION", "STEP", "ITERATION", "HOME", "REDIS_URL", "KEY", "PROMPT_FILE",
    "RESULT_FILE",
    "DEBUG", "REDIS_SERVER", "TREE", "SESSION_TOKEN", "LOCK", "LOCK_FENCE",
    "GUARD_GLOBAL_MAX", "GUARD_STAGE_MAX", "GUARD_STALE_TIMEOUT", "LINGER",
})  # fmt: skip
#: What server processes read.
SERVER = frozenset({
    "REDIS_URL", "BROKER_URL", "PREFIX", "SECRET", "SECRET_OTHER", "API_TOKEN", "API_BIND",
    "API_THREADS", "API_PROCESSES", "API_URL", "PUBLIC_URL", "ALLOWED_HOSTS",
    "PLACE", "STATE_DIR", "SPILL", "SPILL_KEEP_S",
    "DEFAULT_AGENT", "ATTEMPTS", "LEASE_S", "CONCURRENCY", "IDLE_PROCESSES", "WINDOW",
    "RETENTION_S",
    "RETENTION_COMPLETED_S", "RETENTION_FAILED_S", "RETENTION_EXITED_S", "RETENTION_ABORTED_S",
    "RETENTION_STOPPED_S", "BUDGET_ITERATIONS", "BUDGET_STEPS", "BUDGET_WALL_S",
    "BUDGET_COST_USD", "BUDGET_TOKENS", "BUDGET_STAGE_STOPS", "BUDGET_STOPS", "EXPORT_DIR",
    "INVENTORY_S", "DRAIN_S", "WORKER_NAME", "LOG", "TRACES", "SUPERVISOR_PID", "OWN_REDIS",
    "PROOF_KEY", "FOLDER_DEFINITIONS", "APPROVALS", "WEBHOOK_HOSTS", "TOOL_HOSTS",
    "ROOTS",
    "AGENTS", "FLOWS", "TOOLS",
    "TREE_DEPTH", "TREE_CHILDREN", "TREE_SESSIONS", "WORKTREES", "COPY_MAX",
    "ARTIFACTS", "ARTIFACT_MAX", "ARTIFACTS_MAX",
})  # fmt: skip
#: How alike two names must be, from 0 to 1.
_LIKENESS = 0.8


def misspelt(names: Iterable[str]) -> Iterator[str]:
    """Yields a sentence for each environment variable that looks like a misspelt setting.

    >>> list(misspelt(["LEADHAND_CONCURENCY", "LEADHAND_URL", "LEADHAND_DEPLOYED_BY", "PATH"]))
    ['LEADHAND_CONCURENCY is not a setting; did you mean LEADHAND_CONCURRENCY?']
    """
    known = CLIENT | SERVER
    for name in sorted(names):
        own = name.removeprefix(_PREFIX)
        if not name.upper().startswith(_PREFIX) or own in known:
            continue
        own = name.upper().removeprefix(_PREFIX)
        near = get_close_matches(own, sorted(known), n=1, cutoff=_LIKENESS)
        if near:
            yield f"{name} is not a setting; did you mean {_PREFIX}{near[0]}?"
