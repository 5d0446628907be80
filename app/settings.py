"""What the server's processes are told by their environment: the one place that reads it."""

from __future__ import annotations

import os
import tempfile
from collections.abc import Mapping
from pathlib import Path
from typing import Annotated, Literal

from pydantic import BaseModel, ConfigDict, Field, ValidationError

from app.errors import SettingInvalid
from leadhand.documents import Budget

#: Nothing is kept for ever.
RETENTION_MAX_S = 10 * 365 * 24 * 3600


Host = Annotated[
    str, Field(pattern=r"^(\[[0-9a-f:]+\]|[a-z0-9]([a-z0-9.-]*[a-z0-9])?)(:[1-9][0-9]{0,4})?$")
]


class Settings(BaseModel):
    """All settings of a server process, each with the default that suits one machine."""

    model_config = ConfigDict(frozen=True)

    redis_url: str = ""
    #: Where Celery's messages travel; Redis itself unless given.
    broker_url: str = ""
    #: What every key in Redis begins with.
    prefix: str = Field(default="lh", pattern=r"^[a-z0-9_-]{1,32}$")
    #: Signs what sessions run, API tokens and the capability tokens of bodies; all processes of
    #: a fleet have the same.
    secret: str = ""
    #: The bearer token that the API accepts; empty refuses everybody.
    api_token: str = ""
    api_bind: str = "127.0.0.1:8765"
    #: Calls that one API process answers at once; 16 of them are never event streams.
    api_threads: int = Field(default=64, ge=24, le=2048)
    #: Processes of the API behind its one address; each has these threads.
    api_processes: int = Field(default=1, ge=1, le=64)
    #: How bodies reach the API.
    api_url: str = "http://127.0.0.1:8765"
    place: str = Field(default="local", pattern=r"^[A-Za-z0-9][A-Za-z0-9_.-]{0,63}$")
    #: Working folders must lie beneath one of these; none given: anywhere.
    roots: tuple[Path, ...] = ()
    agents_files: tuple[Path, ...] = ()
    #: Folders of flows; where two have a flow of the same name, the first one's is meant.
    flows: tuple[Path, ...] = ()
    #: Folders of Python files whose functions are tools; the first one's file is meant.
    tools: tuple[Path, ...] = ()
    #: Where prompts and whole outputs are written.
    spill: Path = Path(tempfile.gettempdir()) / f"leadhand-{os.getuid()}"
    #: Seconds for which what a session left there stays, once it is gone, after the last write.
    spill_keep_s: float = Field(default=7 * 24 * 3600, ge=60, le=RETENTION_MAX_S)
    default_agent: str | None = None
    #: How often an instruction of a flow is given to its agent in all, before its step has failed.
    attempts: int = Field(default=5, ge=1, le=100)
    #: How long an attempt may go without a heartbeat.
    lease_s: float = Field(default=30.0, ge=0.5, le=3600)
    #: Attempts that one worker makes side by side.
    concurrency: int = Field(default=4, ge=1, le=256)
    #: How many hints one session may have out on one queue, and steps in line for one limit.
    window: int = Field(default=16, ge=1, le=10_000)
    #: How long a session is kept after it ended or was stopped, unless its status says otherwise.
    retention_s: int = Field(default=30 * 24 * 3600, ge=60, le=RETENTION_MAX_S)
    retention_completed_s: int | None = Field(default=None, ge=60, le=RETENTION_MAX_S)
    retention_failed_s: int | None = Field(default=None, ge=60, le=RETENTION_MAX_S)
    retention_exited_s: int | None = Field(default=None, ge=60, le=RETENTION_MAX_S)
    retention_aborted_s: int | None = Field(default=None, ge=60, le=RETENTION_MAX_S)
    retention_stopped_s: int | None = Field(default=None, ge=60, le=RETENTION_MAX_S)
    #: What a session may use that does not say so itself; each ends it with the reason `budget`.
    budget_iterations: int = Field(default=10_000, ge=1)
    budget_steps: int = Field(default=100_000, ge=1)
    budget_wall_s: float = Field(default=30 * 24 * 3600, gt=0, le=365 * 24 * 3600)
    budget_cost_usd: float = Field(default=1_000, gt=0, le=1_000_000)
    budget_tokens: int = Field(default=1_000_000_000, ge=1)
    #: How many runs of one stage, and of all together, may end without acceptance;
    #: `circuit_open` and `stop_limit`.
    budget_stage_stops: int = Field(default=5, ge=1, le=1_000_000)
    budget_stops: int = Field(default=15, ge=1, le=1_000_000)
    #: Where a session's export is written before it goes; none: it goes without.
    export_dir: Path | None = None
    #: Receivers of webhooks, as HOST or HOST:PORT, that may be private, spoken to over http and
    #: at any port.
    webhook_hosts: tuple[Host, ...] = ()
    #: How long a worker is believed to be there after it told of itself.
    inventory_s: float = Field(default=45.0, ge=1, le=3600)
    #: How long running attempts may go on after TERM, before they are handed back.
    drain_s: float = Field(default=10.0, ge=0, le=3600)
    worker_name: str = ""
    #: How lines of the log are written: for people, or for programs.
    log: Literal["plain", "json"] = "plain"
    #: Whether requests and steps are traced, and how spans are sent.
    traces: Literal["off", "otlp"] = "off"
    #: The process that this one must not outlive; none where an init system watches.
    supervisor_pid: int | None = None
    #: Whether its worker and those before it, all on this host, are all that ever used the Redis.
    own_redis: bool = False

    @property
    def lease_ms(self) -> int:
        return round(self.lease_s * 1000)

    @property
    def retentions(self) -> dict[str, str]:
        """How long a session is kept, as it takes it along from its creation."""
        kept = {name: self.model_dump()[name] for name in _PLAIN if name.startswith("retention_")}
        return {name.removesuffix("_s"): str(s) for name, s in kept.items() if s is not None}

    @property
    def budget(self) -> Budget:
        """What a session may use unless its document says otherwise."""
        names = Budget.model_fields
        return Budget(**{name: getattr(self, f"budget_{name}") for name in names})

    @classmethod
    def from_env(cls, env: Mapping[str, str] | None = None) -> Settings:
        """Read the environment. Raises SettingInvalid: the variable, its value, the way out."""
        env = os.environ if env is None else env
        given: dict[str, object] = {
            field: env[name] for field, name in _PLAIN.items() if env.get(name)
        }
        for field, name in _PATHS.items():
            if env.get(name):
                given[field] = tuple(Path(p) for p in env[name].split(os.pathsep) if p)
        if env.get(_HOSTS):
            given["webhook_hosts"] = tuple(h.strip() for h in env[_HOSTS].split(",") if h.strip())
        given.setdefault("broker_url", given.get("redis_url", ""))
        try:
            return cls.model_validate(given)
        except ValidationError as error:
            first = error.errors(include_url=False)[0]
            name = {**_PLAIN, **_PATHS, "webhook_hosts": _HOSTS}[str(first["loc"][0])]
            raise SettingInvalid(name, env.get(name, ""), first["msg"]) from None


_PLAIN = {
    "redis_url": "LEADHAND_REDIS_URL",
    "broker_url": "LEADHAND_BROKER_URL",
    "prefix": "LEADHAND_PREFIX",
    "secret": "LEADHAND_SECRET",
    "api_token": "LEADHAND_API_TOKEN",
    "api_bind": "LEADHAND_API_BIND",
    "api_threads": "LEADHAND_API_THREADS",
    "api_processes": "LEADHAND_API_PROCESSES",
    "api_url": "LEADHAND_API_URL",
    "place": "LEADHAND_PLACE",
    "spill": "LEADHAND_SPILL",
    "spill_keep_s": "LEADHAND_SPILL_KEEP_S",
    "default_agent": "LEADHAND_DEFAULT_AGENT",
    "attempts": "LEADHAND_ATTEMPTS",
    "lease_s": "LEADHAND_LEASE_S",
    "concurrency": "LEADHAND_CONCURRENCY",
    "window": "LEADHAND_WINDOW",
    "retention_s": "LEADHAND_RETENTION_S",
    "retention_completed_s": "LEADHAND_RETENTION_COMPLETED_S",
    "retention_failed_s": "LEADHAND_RETENTION_FAILED_S",
    "retention_exited_s": "LEADHAND_RETENTION_EXITED_S",
    "retention_aborted_s": "LEADHAND_RETENTION_ABORTED_S",
    "retention_stopped_s": "LEADHAND_RETENTION_STOPPED_S",
    "budget_iterations": "LEADHAND_BUDGET_ITERATIONS",
    "budget_steps": "LEADHAND_BUDGET_STEPS",
    "budget_wall_s": "LEADHAND_BUDGET_WALL_S",
    "budget_cost_usd": "LEADHAND_BUDGET_COST_USD",
    "budget_tokens": "LEADHAND_BUDGET_TOKENS",
    "budget_stage_stops": "LEADHAND_BUDGET_STAGE_STOPS",
    "budget_stops": "LEADHAND_BUDGET_STOPS",
    "export_dir": "LEADHAND_EXPORT_DIR",
    "inventory_s": "LEADHAND_INVENTORY_S",
    "drain_s": "LEADHAND_DRAIN_S",
    "worker_name": "LEADHAND_WORKER_NAME",
    "log": "LEADHAND_LOG",
    "traces": "LEADHAND_TRACES",
    "supervisor_pid": "LEADHAND_SUPERVISOR_PID",
    "own_redis": "LEADHAND_OWN_REDIS",
}
_HOSTS = "LEADHAND_WEBHOOK_HOSTS"
_PATHS = {
    "roots": "LEADHAND_ROOTS",
    "agents_files": "LEADHAND_AGENTS",
    "flows": "LEADHAND_FLOWS",
    "tools": "LEADHAND_TOOLS",
}
