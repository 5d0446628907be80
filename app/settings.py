"""Settings of the server processes, read from LEADHAND_ environment variables."""

from __future__ import annotations

import os
import tempfile
from collections.abc import Iterator, Mapping
from pathlib import Path
from typing import Annotated, Literal
from urllib.parse import urlsplit

from pydantic import BaseModel, ConfigDict, Field, ValidationError

from app.errors import SettingInvalid
from app.redis_url import SCHEMES, normalize
from leadhand.models.documents import Budget
from leadhand.models.variables import misspelt

#: Upper limit of all retention times.
RETENTION_MAX_S = 10 * 365 * 24 * 3600


Host = Annotated[
    str, Field(pattern=r"^(\[[0-9a-f:]+\]|[a-z0-9]([a-z0-9.-]*[a-z0-9])?)(:[1-9][0-9]{0,4})?$")
]


class Settings(BaseModel):
    """All settings of a server process; the defaults suit a single machine."""

    model_config = ConfigDict(frozen=True)

    redis_url: str = ""
    #: The broker of Celery's messages; the Redis of LEADHAND_REDIS_URL unless set.
    broker_url: str = ""
    #: Prefix of all keys in Redis.
    prefix: str = Field(default="lh", pattern=r"^[a-z0-9_-]{1,32}$")
    #: Signs sessions, API tokens and step tokens; the same for all processes of a fleet.
    secret: str = ""
    #: A second secret that is accepted during a rotation.
    secret_other: str = ""
    #: The operator's bearer token for the API; empty refuses all calls.
    api_token: str = ""
    api_bind: str = "127.0.0.1:8765"
    #: Threads of one API process; 16 of them are never used for event streams.
    api_threads: int = Field(default=64, ge=24, le=2048)
    #: Number of API processes behind one port; each has these threads.
    api_processes: int = Field(default=1, ge=1, le=64)
    #: URL at which bodies reach the API.
    api_url: str = "http://127.0.0.1:8765"
    #: URL at which browsers reach the dashboard, if it is not the address of the API itself.
    public_url: str = Field(default="", pattern=r"^(https?://[^/?#@\s]+/?)?$")
    #: Further host names under which browsers reach it, as HOST or HOST:PORT.
    allowed_hosts: tuple[Host, ...] = ()
    place: str = Field(default="local", pattern=r"^[A-Za-z0-9][A-Za-z0-9_.-]{0,63}$")
    #: Allowed roots of working folders; empty allows any folder.
    roots: tuple[Path, ...] = ()
    agents_files: tuple[Path, ...] = ()
    #: What the embedded services also read in the folder of a session; nothing in a fleet.
    folder_definitions: tuple[Literal["agents", "flows", "tools"], ...] = ()
    #: The file with the user's approvals of the agents.toml and tools.toml of folders.
    approvals: Path | None = None
    #: The user's home folder, whose files are not those of a folder.
    user_home: Path | None = None
    #: Where programs are found.
    search_path: str = ""
    #: Folders of flow files; if two have a flow of the same name, the first folder wins.
    flows: tuple[Path, ...] = ()
    #: Folders of Python files whose functions are tools; the first folder wins.
    tools: tuple[Path, ...] = ()
    #: Folder for persistent files of this process, such as the id of its store; the user's state
    #: folder unless set.
    state_dir: Path | None = None
    state_home: Path = Path("~/.local/state")
    #: Folder for prompts and for outputs that are too long for Redis.
    spill: Path = Path(tempfile.gettempdir()) / f"leadhand-{os.getuid()}"
    #: Folder of the worktrees and copies for tasks of plans; in the state folder unless set.
    worktrees: Path | None = None
    #: The most bytes of a folder that is copied for a task.
    copy_max: int = Field(default=1_000_000_000, ge=0)
    #: Retention of a deleted session's spill files, in seconds since the last write.
    spill_keep_s: float = Field(default=7 * 24 * 3600, ge=60, le=RETENTION_MAX_S)
    #: Folder of the artifacts; in the state folder of the API unless set. A worker without it
    #: uploads them to the API.
    artifacts: Path | None = None
    #: The most bytes of one artifact, and of all together.
    artifact_max: int = Field(default=64 * 1024 * 1024, ge=1024)
    artifacts_max: int = Field(default=10 * 1024**3, ge=1024)
    default_agent: str | None = None
    #: Attempts of a flow's agent step, the first included.
    attempts: int = Field(default=5, ge=1, le=100)
    #: How long an attempt may go without a heartbeat.
    lease_s: float = Field(default=30.0, ge=0.5, le=3600)
    #: Attempts that one worker runs in parallel.
    #: The most attempts that a worker runs at once, each in a process of its own.
    concurrency: int = Field(default=4, ge=1, le=256)
    #: How many of these processes it keeps while there is less to do; unset for all of them.
    idle_processes: int | None = Field(default=None, ge=1, le=256)
    #: Hints that a session may have in one queue, and its steps that may wait for one limit.
    window: int = Field(default=16, ge=1, le=10_000)
    #: Retention of ended and stopped sessions, unless set for the status.
    retention_s: int = Field(default=30 * 24 * 3600, ge=60, le=RETENTION_MAX_S)
    retention_completed_s: int | None = Field(default=None, ge=60, le=RETENTION_MAX_S)
    retention_failed_s: int | None = Field(default=None, ge=60, le=RETENTION_MAX_S)
    retention_exited_s: int | None = Field(default=None, ge=60, le=RETENTION_MAX_S)
    retention_aborted_s: int | None = Field(default=None, ge=60, le=RETENTION_MAX_S)
    retention_stopped_s: int | None = Field(default=None, ge=60, le=RETENTION_MAX_S)
    #: Default budgets of a session; an exceeded one ends it with the reason `budget`.
    budget_iterations: int = Field(default=10_000, ge=1)
    budget_steps: int = Field(default=100_000, ge=1)
    budget_wall_s: float = Field(default=30 * 24 * 3600, gt=0, le=365 * 24 * 3600)
    budget_cost_usd: float = Field(default=1_000, gt=0, le=1_000_000)
    budget_tokens: int = Field(default=1_000_000_000, ge=1)
    #: How many runs of one stage, and of all stages, may end without acceptance; the reasons are
    #: `circuit_open` and `stop_limit`.
    budget_stage_stops: int = Field(default=5, ge=1, le=1_000_000)
    budget_stops: int = Field(default=15, ge=1, le=1_000_000)
    #: Limits of what bodies start: how deep sessions may be nested, the child sessions of one
    #: session, and the sessions of a whole tree.
    tree_depth: int = Field(default=5, ge=0, le=50)
    tree_children: int = Field(default=100, ge=0, le=10_000)
    tree_sessions: int = Field(default=1_000, ge=1, le=100_000)
    #: Folder for exports that are written before a session is deleted; empty writes none.
    export_dir: Path | None = None
    #: Trusted webhook receivers, as HOST or HOST:PORT: private IPs, http and any port are allowed.
    webhook_hosts: tuple[Host, ...] = ()
    #: Hosts that the HTTP requests and MCP servers of tools may reach, in the same form.
    tool_hosts: tuple[Host, ...] = ()
    #: Validity of a worker's inventory.
    inventory_s: float = Field(default=45.0, ge=1, le=3600)
    #: Grace period for running attempts after SIGTERM, before they are released.
    drain_s: float = Field(default=10.0, ge=0, le=3600)
    worker_name: str = ""
    #: Format of log lines: for people, or JSON for programs.
    log: Literal["plain", "json"] = "plain"
    #: Whether requests and steps are traced, and with which exporter.
    traces: Literal["off", "otlp"] = "off"
    #: This process ends with the supervisor of this pid; unset under an init system.
    supervisor_pid: int | None = None
    #: Whether only this host's worker and its predecessors have ever used the Redis.
    own_redis: bool = False
    #: The key with which an embedded API proves to commands that it is the one of this user.
    proof_key: str = ""

    @property
    def worktrees_root(self) -> Path:
        """Return the folder of all worktrees and copies."""
        return self.worktrees or (self.state_dir or self.state_home / "leadhand") / "worktrees"

    @property
    def artifacts_root(self) -> Path:
        """Return the folder of all artifacts."""
        return self.artifacts or (self.state_dir or self.state_home / "leadhand") / "artifacts"

    @property
    def secrets(self) -> tuple[str, ...]:
        """Return the secrets whose signatures are accepted; this process signs with the first."""
        return tuple(filter(None, (self.secret, self.secret_other)))

    @property
    def lease_ms(self) -> int:
        """Return the lease of an attempt in milliseconds."""
        return round(self.lease_s * 1000)

    @property
    def retentions(self) -> dict[str, str]:
        """Return the retention settings as fields of a new session."""
        times = {name: getattr(self, name) for name in _PLAIN if name.startswith("retention_")}
        return {name.removesuffix("_s"): str(s) for name, s in times.items() if s is not None}

    @property
    def budget(self) -> Budget:
        """Return the default budget of a session."""
        names = Budget.model_fields
        return Budget(**{name: getattr(self, f"budget_{name}") for name in names})

    @property
    def tree_limits(self) -> dict[str, int]:
        """Return the limits of a tree of sessions, by name."""
        return {
            "depth": self.tree_depth,
            "children": self.tree_children,
            "sessions": self.tree_sessions,
        }

    @classmethod
    def from_env(cls, env: Mapping[str, str] | None = None) -> Settings:
        """Read the settings from environment variables. Raises SettingInvalid if one is bad."""
        env = os.environ if env is None else env
        values: dict[str, object] = {
            field: env[name] for field, name in _PLAIN.items() if env.get(name)
        }
        for field, name in _PATHS.items():
            if env.get(name):
                values[field] = tuple(Path(p) for p in env[name].split(os.pathsep) if p)
        for field, name in _LISTS.items():
            if env.get(name):
                values[field] = tuple(h.strip() for h in env[name].split(",") if h.strip())
        if env.get("HOME"):
            values["user_home"] = env["HOME"]
        values["search_path"] = env.get("PATH", "")
        values["state_home"] = _state_home(env, needed="state_dir" not in values)
        values |= _redis_urls(values)
        try:
            return cls.model_validate(values)
        except ValidationError as error:
            first = error.errors(include_url=False)[0]
            name = {**_PLAIN, **_PATHS, **_LISTS}[str(first["loc"][0])]
            raise SettingInvalid(name, env.get(name, ""), first["msg"]) from None


def doubts(settings: Settings, env: Mapping[str, str] | None = None) -> Iterator[str]:
    """Yields a warning for each suspicious setting: a misspelt name, a short secret."""
    yield from misspelt(os.environ if env is None else env)
    for field, least in _LEAST.items():
        length = len(getattr(settings, field))
        if 0 < length < least:
            fix = f"use at least {least}, such as the output of `openssl rand -hex 32`"
            yield f"{_PLAIN[field]} has {length} characters and can be guessed; {fix}"


def _state_home(env: Mapping[str, str], *, needed: bool) -> Path:
    """XDG_STATE_HOME, or ~/.local/state. Raises SettingInvalid for a user without a home folder."""
    named = env.get("XDG_STATE_HOME") or os.path.expanduser("~/.local/state")  # noqa: PTH111 - see
    if named.startswith("~") and needed:  # what expanduser leaves as it is
        hint = "this user has no home folder; name a folder that only this user can write to"
        raise SettingInvalid("LEADHAND_STATE_DIR", "", hint)
    return Path(named)


#: How many characters a secret needs.
_LEAST = {"secret": 32, "secret_other": 32, "api_token": 16}


def _redis_urls(values: Mapping[str, object]) -> dict[str, str]:
    """The URLs of Redis and of the broker, normalized. Raises SettingInvalid."""
    url = str(values.get("redis_url", ""))
    _check_redis_url(url)
    found = {"redis_url": normalize(url, "LEADHAND_REDIS_URL")}
    broker = values.get("broker_url")
    found["broker_url"] = (
        found["redis_url"] if broker is None else normalize(str(broker), "LEADHAND_BROKER_URL")
    )
    return found


def _check_redis_url(url: str) -> None:
    """Raises SettingInvalid for a malformed Redis URL, without repeating its password."""
    scheme, found, rest = url.partition("://")
    if url and (scheme not in SCHEMES or not found or not rest):
        hint = "give redis://HOST:6379/0, rediss://HOST:6379/0 or unix:///PATH/redis.sock?db=0"
        raise SettingInvalid("LEADHAND_REDIS_URL", f"{scheme}://..." if found else "...", hint)
    if scheme == "unix" and not urlsplit(url).path:
        hint = "name the path of the socket: unix:///PATH/redis.sock?db=0"
        raise SettingInvalid("LEADHAND_REDIS_URL", "unix://...", hint)


_PLAIN = {
    "redis_url": "LEADHAND_REDIS_URL",
    "broker_url": "LEADHAND_BROKER_URL",
    "prefix": "LEADHAND_PREFIX",
    "secret": "LEADHAND_SECRET",
    "secret_other": "LEADHAND_SECRET_OTHER",
    "api_token": "LEADHAND_API_TOKEN",
    "api_bind": "LEADHAND_API_BIND",
    "api_threads": "LEADHAND_API_THREADS",
    "api_processes": "LEADHAND_API_PROCESSES",
    "api_url": "LEADHAND_API_URL",
    "public_url": "LEADHAND_PUBLIC_URL",
    "place": "LEADHAND_PLACE",
    "state_dir": "LEADHAND_STATE_DIR",
    "spill": "LEADHAND_SPILL",
    "worktrees": "LEADHAND_WORKTREES",
    "copy_max": "LEADHAND_COPY_MAX",
    "spill_keep_s": "LEADHAND_SPILL_KEEP_S",
    "artifacts": "LEADHAND_ARTIFACTS",
    "artifact_max": "LEADHAND_ARTIFACT_MAX",
    "artifacts_max": "LEADHAND_ARTIFACTS_MAX",
    "default_agent": "LEADHAND_DEFAULT_AGENT",
    "attempts": "LEADHAND_ATTEMPTS",
    "lease_s": "LEADHAND_LEASE_S",
    "concurrency": "LEADHAND_CONCURRENCY",
    "idle_processes": "LEADHAND_IDLE_PROCESSES",
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
    "tree_depth": "LEADHAND_TREE_DEPTH",
    "tree_children": "LEADHAND_TREE_CHILDREN",
    "tree_sessions": "LEADHAND_TREE_SESSIONS",
    "export_dir": "LEADHAND_EXPORT_DIR",
    "inventory_s": "LEADHAND_INVENTORY_S",
    "drain_s": "LEADHAND_DRAIN_S",
    "worker_name": "LEADHAND_WORKER_NAME",
    "log": "LEADHAND_LOG",
    "traces": "LEADHAND_TRACES",
    "supervisor_pid": "LEADHAND_SUPERVISOR_PID",
    "own_redis": "LEADHAND_OWN_REDIS",
    "approvals": "LEADHAND_APPROVALS",
    "proof_key": "LEADHAND_PROOF_KEY",
}
_LISTS = {
    "folder_definitions": "LEADHAND_FOLDER_DEFINITIONS",
    "webhook_hosts": "LEADHAND_WEBHOOK_HOSTS",
    "tool_hosts": "LEADHAND_TOOL_HOSTS",
    "allowed_hosts": "LEADHAND_ALLOWED_HOSTS",
}
_PATHS = {
    "roots": "LEADHAND_ROOTS",
    "agents_files": "LEADHAND_AGENTS",
    "flows": "LEADHAND_FLOWS",
    "tools": "LEADHAND_TOOLS",
}
