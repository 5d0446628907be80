"""What the embedded services are told: the environment that the API and the worker start with."""

from __future__ import annotations

from collections.abc import Mapping
from pathlib import Path
from typing import NamedTuple

from leadhand.modules import only_ours

#: What a body or a client was told is about another stack, or another session.
_FOREIGN = {
    "LEADHAND_URL",
    "LEADHAND_TOKEN",
    "LEADHAND_SESSION",
    "LEADHAND_STEP",
    "LEADHAND_ITERATION",
    "LEADHAND_KEY",
    "LEADHAND_PROMPT_FILE",
    "LEADHAND_HOME",
    "LEADHAND_ROOTS",
    "LEADHAND_OWN_REDIS",
}
#: What would change how the servers themselves run, meant for some other program of the user's.
_MEANT_FOR_OTHERS = ("CELERY_", "FLASK_", "FLOWER_", "GUNICORN_", "WEB_CONCURRENCY")


class Stack(NamedTuple):
    """What belongs to one state folder and stays the same while its supervisor lives."""

    home: Path
    redis_url: str
    broker_url: str
    secret: str
    api_token: str
    api_port: int
    supervisor_pid: int
    agents_files: tuple[Path, ...] = ()
    #: Where flows are looked for.
    flows: tuple[Path, ...] = ()
    #: Where tools are looked for.
    tools: tuple[Path, ...] = ()
    #: Whether the Redis is this folder's own: its stacks, one after the other, are all who use it.
    own_redis: bool = False

    @property
    def api_url(self) -> str:
        return f"http://127.0.0.1:{self.api_port}"

    @property
    def worker_name(self) -> str:
        """Differs from start to start, so that a dead worker's entry is not taken for ours."""
        return f"embedded-{self.supervisor_pid}"


def service_environment(stack: Stack, base: Mapping[str, str]) -> dict[str, str]:
    """The starter's environment, with the settings of this stack in place of others'."""
    kept = {
        name: value
        for name, value in only_ours(base).items()
        if name not in _FOREIGN and not name.startswith(_MEANT_FOR_OTHERS)
    }
    agents = ":".join(map(str, stack.agents_files))
    ours = {
        "LEADHAND_REDIS_URL": stack.redis_url,
        "LEADHAND_BROKER_URL": stack.broker_url,
        "LEADHAND_SECRET": stack.secret,
        "LEADHAND_API_TOKEN": stack.api_token,
        "LEADHAND_API_BIND": f"127.0.0.1:{stack.api_port}",
        "LEADHAND_API_URL": stack.api_url,
        "LEADHAND_PLACE": base.get("LEADHAND_PLACE") or "local",
        "LEADHAND_SPILL": str(stack.home / "spill"),
        "LEADHAND_AGENTS": base.get("LEADHAND_AGENTS") or agents,
        "LEADHAND_FLOWS": base.get("LEADHAND_FLOWS") or ":".join(map(str, stack.flows)),
        "LEADHAND_TOOLS": base.get("LEADHAND_TOOLS") or ":".join(map(str, stack.tools)),
        "LEADHAND_WORKER_NAME": stack.worker_name,
        "LEADHAND_SUPERVISOR_PID": str(stack.supervisor_pid),
    }
    return kept | ours | ({"LEADHAND_OWN_REDIS": "1"} if stack.own_redis else {})


def broker_of(redis_url: str) -> str:
    """The database beside the state's, on the embedded server.

    >>> broker_of("redis://:secret@127.0.0.1:7000/0")
    'redis://:secret@127.0.0.1:7000/1'
    """
    return redis_url.removesuffix("/0") + "/1"
