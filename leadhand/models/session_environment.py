"""Declares the LEADHAND_ variables, and the environment that a document passes to bodies.

From these declarations follow how a variable is read and refused, the tables of docs/settings.md,
which ones config.toml may set, what the embedded services inherit, and what looks misspelt.
"""

from __future__ import annotations

import os
import re
import tempfile
from collections.abc import Iterable, Iterator, Mapping
from difflib import get_close_matches
from pathlib import Path
from typing import Annotated, Any, Literal, NamedTuple, TypeVar

from pydantic import (
    AfterValidator,
    BaseModel,
    BeforeValidator,
    ConfigDict,
    Field,
    PlainSerializer,
    SerializationInfo,
    StringConstraints,
    ValidationError,
)
from pydantic.fields import FieldInfo

from leadhand.models.patterns import NAME, form_of
from leadhand.models.validation_messages import plain_message

#: The most variables of one environment, and the most bytes of their names and values together.
MAX_NAMES = 64
MAX_BYTES = 32 * 1024
#: Replaces a value wherever a document is shown, stored or logged.
HIDDEN = "(not shown)"
#: A serialization context that keeps the values: for the request to the API alone.
REVEALED: dict[str, bool] = {"values of env": True}
#: Names that change how a program starts; only an explicit `--env` passes them.
_EXPLICIT = frozenset({"PYTHONPATH", "PYTHONSTARTUP", "BASH_ENV", "NODE_OPTIONS"})
_EXPLICIT_PREFIXES = ("LEADHAND_", "LD_")
_NAME = re.compile(r"[A-Za-z_][A-Za-z0-9_]{0,199}")
M = TypeVar("M", bound=BaseModel)
PREFIX = "LEADHAND_"
#: The umask of the shell, in octal digits, among the values of `shell_env`.
UMASK = "LEADHAND_UMASK"
#: Upper limit of all retention times.
RETENTION_MAX_S = 10 * 365 * 24 * 3600
#: How alike two names must be, from 0 to 1.
_LIKENESS = 0.8


def is_explicit_only(name: str) -> bool:
    """Whether only an explicit option, and no file of variables, may pass a variable of this name.

    >>> is_explicit_only("LD_PRELOAD"), is_explicit_only("API_KEY")
    (True, False)
    """
    return name in _EXPLICIT or name.startswith(_EXPLICIT_PREFIXES)


def check_values(values: Mapping[str, str | None]) -> None:
    """Raises ValueError if variables have invalid names, values or sizes; it shows no value."""
    for name, value in values.items():
        if not _NAME.fullmatch(name):
            raise ValueError(f"{name[:80]!r} is no name of a variable; use letters, digits and _")
        if "\0" in (value or ""):
            raise ValueError(f"the value of {name} holds a zero character; leave that out")
        if value == HIDDEN:
            raise ValueError(f"the value of {name} is hidden in this copy of a document; give it")
    if len(values) > MAX_NAMES:
        raise ValueError(f"there are {len(values)} variables; pass at most {MAX_NAMES}")
    texts = (f"{name}{value or ''}" for name, value in values.items())
    size = sum(len(text.encode("utf-8", "replace")) for text in texts)
    if size > MAX_BYTES:
        raise ValueError(f"names and values have {size} bytes; pass at most {MAX_BYTES}")


def _checked(values: Mapping[str, str | None]) -> Mapping[str, str | None]:
    check_values(values)
    return values


def _hide(values: Mapping[str, str | None], info: SerializationInfo) -> dict[str, str | None]:
    if info.context is REVEALED:
        return {**values}
    return dict.fromkeys(values, HIDDEN)


def _absolute_path(path: str) -> str:
    if not path.startswith("/") or "\0" in path:
        raise ValueError("it is no absolute path; give that of the interpreter")
    return path


_Value = Annotated[str, StringConstraints(strip_whitespace=False)]
#: Variables by name. Values are not in the dump of a document, nor in its representation.
Values = Annotated[
    dict[str, _Value], AfterValidator(_checked), PlainSerializer(_hide, when_used="always")
]
#: The same; None for a variable that is not set.
ValuesOrUnset = Annotated[
    dict[str, _Value | None], AfterValidator(_checked), PlainSerializer(_hide, when_used="always")
]


class WithEnvironment(BaseModel):
    """The fields of a document, or of a run, that bring an environment."""

    #: Variables that every doer, checker and tool of the session gets. At most 64, and 32 KiB.
    #: Stored encrypted while the session can be resumed, and never shown.
    env: Values = Field(default={}, alias="env", repr=False)
    #: Only for embedded services: PATH, VIRTUAL_ENV and the variables that agents' entries name,
    #: as they are where the command runs; null for one that is not set there. LEADHAND_UMASK is the
    #: umask there, such as `022`.
    shell_env: ValuesOrUnset = Field(default={}, alias="shell_env", repr=False)
    #: The Python that runs its functions (not tools): an absolute path on the workers' machine, by
    #: default the worker's own.
    python: Annotated[str, AfterValidator(_absolute_path), Field(max_length=1000)] | None = None


#: The fields above.
FIELDS = frozenset(WithEnvironment.model_fields)


class About(NamedTuple):
    """What else is declared of a variable."""

    #: The default, as the documentation shows it; '' for the value itself.
    shown: str = ""
    #: Whether the supervisor of embedded services sets it, whatever the user's environment has.
    by_supervisor: bool = False
    #: Whether its value is not to be shown.
    secret: bool = False
    #: How many characters a secret needs.
    least: int = 0
    #: What a value looks like, if its type and limits do not say it.
    form: str = ""


def setting(
    default: Any, meaning: str, *, shown: str = "", by_supervisor: bool = False,
    secret: bool = False, least: int = 0, form: str = "", **limits: Any,
) -> Any:  # fmt: skip
    """Declares a variable: its default, what it means to a reader, and the limits of its value."""
    field: Any = Field(default=default, description=meaning, **limits)
    field.metadata.append(About(shown, by_supervisor, secret or bool(least), least, form))
    return field


def _split(mark: str) -> BeforeValidator:
    def split(value: object) -> object:
        if not isinstance(value, str):
            return value
        return tuple(part.strip() for part in value.split(mark) if part.strip())

    return BeforeValidator(split)


Host = Annotated[
    str, Field(pattern=r"^(\[[0-9a-f:]+\]|[a-z0-9]([a-z0-9.-]*[a-z0-9])?)(:[1-9][0-9]{0,4})?$")
]
Hosts = Annotated[tuple[Host, ...], _split(",")]
Paths = Annotated[tuple[Path, ...], _split(os.pathsep)]
Definitions = Annotated[tuple[Literal["agents", "flows", "tools"], ...], _split(",")]


# fmt: off
class ServerVariables(BaseModel):
    """What server processes read: API, workers and embedded services."""

    model_config = ConfigDict(frozen=True, defer_build=True)

    redis_url: str = setting("", "the Redis that holds the state: `redis://`, `rediss://` or "
        "`unix:///PATH/redis.sock?db=0`; needed by `leadhand api` and `leadhand worker`. "
        "Parameters: `db`, `username`, `password`, and those of "
        "[TLS](operations.md#tls-to-redis)", secret=True)
    broker_url: str = setting("", "the Redis for Celery's messages, with the same parameters; "
        "preferably a database of its own", shown="`LEADHAND_REDIS_URL`", secret=True)
    prefix: str = setting("lh", "the prefix of all keys in Redis",
        pattern=r"^[a-z0-9_-]{1,32}$",
        form="1 to 32 lower-case letters, digits, '_' and '-'")
    secret: str = setting("", "signs what sessions run, tokens and body tokens. It is the "
        "same for all processes of a fleet; a process with no secret or a different one does "
        "not start", least=32)
    secret_other: str = setting("", "a further secret whose signatures are accepted while the "
        "secret is [rotated](operations.md#rotate-the-secret)", least=32)
    api_token: str = setting("", "the bearer token that the API accepts; without it the API "
        "refuses all requests", least=16)
    api_bind: str = setting("127.0.0.1:8765", "the address on which the API listens",
        by_supervisor=True)
    api_threads: int = setting(64, "requests that one API process serves at once; all but 16 "
        "of them may be event streams", ge=24, le=2048)
    api_processes: int = setting(1, "API processes that share the address, each with that "
        "many threads", ge=1, le=64)
    api_url: str = setting("http://127.0.0.1:8765", "the address of the API as the workers "
        "reach it; passed to bodies", by_supervisor=True)
    public_url: str = setting("", "the address at which browsers reach the "
        "[dashboard](dashboard.md), if it is not that of the API; with `https` its cookie is "
        "sent over `https` only", pattern=r"^(https?://[^/?#@\s]+/?)?$",
        form="the URL of a host, such as https://leadhand.example.com")
    allowed_hosts: Hosts = setting((), "further names under which browsers reach it: `HOST` "
        "or `HOST:PORT`, separated by commas", form="HOST or HOST:PORT")
    place: str = setting("local", "the place of this worker, and of sessions without a place",
        pattern=NAME)
    roots: Paths = setting((), "folders, separated by `:`; working folders must be inside one "
        "of them", shown="anywhere", by_supervisor=True)
    agents: Paths = setting((), "files of agents, separated by `:`; an entry in a later file "
        "overrides earlier ones ([agents](agents.md))",
        shown="embedded: `~/.config/leadhand/agents.toml` and that of the folder; else none")
    folder_definitions: Definitions = setting(
        (), "what the services also read in the folder of a session, separated by commas: "
        "`agents`, `flows`, `tools`", by_supervisor=True)
    approvals: Path | None = setting(None, "the file with the approvals of `leadhand trust`, "
        "which the [files of a folder](agents.md) need",
        by_supervisor=True)
    flows: Paths = setting((), "folders of [flows](flows.md), separated by `:`. If two flows "
        "have one name, the first folder's is used; a flow finds its subflows in its own "
        "folder first. The `commands` and Markdown files of a flow are next to it. `leadhand "
        "flow check` searches these folders too. Only API processes need it",
        shown="embedded: `flows` of the folder; else none")
    tools: Paths = setting((), "folders of Python files, separated by `:`, whose functions "
        "are [tools](agents.md#tools); if two files have one name, the first folder's is "
        "used; a `tools.toml` in one says which [run inside the "
        "worker](tools.md#functions-inside-the-worker)", shown="embedded: `tools` of the "
        "folder; else none")
    state_dir: Path | None = setting(None, "the folder where this process keeps the [id of "
        "its store](operations.md#a-store-that-lost-its-data). It must outlive the process. "
        "If it is set and not writable, the process does not start; for the default there is "
        "a warning", shown="embedded: the state folder; else `leadhand/fleet` in "
        "`XDG_STATE_HOME` (`~/.local/state`)", by_supervisor=True)
    spill: Path = setting(Path(tempfile.gettempdir()) / f"leadhand-{os.getuid()}",
        "the folder for prompts and temporary files of attempts. It is created for this user "
        "alone (0700); a link and another user's folder are refused",
        shown="`leadhand-UID` in the folder for temporary files", by_supervisor=True)
    worktrees: Path | None = setting(None, "the folder for the worktrees and copies that "
        "tasks of plans and sessions with `worktree` work in; steps may work there whatever "
        "`LEADHAND_ROOTS` says. Several workers of one place must share it, as they share the "
        "folders", shown="`worktrees` in `LEADHAND_STATE_DIR`; embedded, and without it, in "
        "`leadhand` of `XDG_STATE_HOME` (`~/.local/state`)")
    copy_max: int = setting(1_000_000_000, "the most bytes of a folder that is copied for a task "
        "or a session", ge=0)
    spill_keep_s: float = setting(7 * 24 * 3600, "seconds that the files of a deleted session "
        "are kept there, counted from the start of its last attempt", ge=60, le=RETENTION_MAX_S)
    artifacts: Path | None = setting(None, "the folder of "
        "[artifacts](operations.md#artifacts). A worker without it uploads them to "
        "`LEADHAND_API_URL`", shown="API: `artifacts` in `LEADHAND_STATE_DIR`, or in "
        "`leadhand` of `XDG_STATE_HOME` (`~/.local/state`); workers: none", by_supervisor=True)
    artifact_max: int = setting(64 * 1024 * 1024, "the most bytes of one artifact", ge=1024)
    artifacts_max: int = setting(10 * 1024 ** 3, "the most bytes of all artifacts together",
        ge=1024)
    default_agent: str | None = setting(None, "the agent for documents without a doer")
    attempts: int = setting(5, "how often a flow asks an agent in total before the step fails",
        ge=1, le=100)
    lease_s: float = setting(30.0, "seconds that an attempt may go without a heartbeat; there "
        "are at least three heartbeats in that time", ge=0.5, le=3600)
    concurrency: int = setting(4, "attempts that one worker runs in parallel", ge=1, le=256,
        shown="4; embedded services 16")
    idle_processes: int | None = setting(None, "processes for attempts that a worker keeps "
        "while there is less to do; it starts the others on demand and ends them after 30 s",
        ge=1, le=256, shown="LEADHAND_CONCURRENCY; embedded services 4")
    window: int = setting(16, "unclaimed hints of one session per queue, and its steps in the "
        "line of a limited key", ge=1, le=10000)
    retention_s: int = setting(30 * 24 * 3600, "seconds that a session is kept after it ended "
        "or was stopped (30 days)", ge=60, le=RETENTION_MAX_S)
    retention_completed_s: int | None = setting(None, "the same in seconds, for completed "
        "sessions", ge=60, le=RETENTION_MAX_S, shown="`LEADHAND_RETENTION_S`")
    retention_failed_s: int | None = setting(None, "for failed ones", ge=60, le=RETENTION_MAX_S,
        shown="`LEADHAND_RETENTION_S`")
    retention_exited_s: int | None = setting(None, "for exited ones", ge=60, le=RETENTION_MAX_S,
        shown="`LEADHAND_RETENTION_S`")
    retention_aborted_s: int | None = setting(None, "for aborted ones", ge=60,
        le=RETENTION_MAX_S, shown="`LEADHAND_RETENTION_S`")
    retention_stopped_s: int | None = setting(None, "for stopped ones", ge=60,
        le=RETENTION_MAX_S, shown="`LEADHAND_RETENTION_S`")
    budget_iterations: int = setting(10000, "iterations of a session, if its document has no "
        "limit ([budgets](concepts.md#budgets))", ge=1)
    budget_steps: int = setting(100000, "the same for steps", ge=1)
    budget_wall_s: float = setting(30 * 24 * 3600, "the same for seconds, without stopped "
        "time (30 days)", gt=0, le=365 * 24 * 3600)
    budget_cost_usd: float = setting(1000, "the same for US dollars, as reported by its agents",
        gt=0, le=1000000)
    budget_tokens: int = setting(1000000000, "the same for tokens that its models read and "
        "write", ge=1)
    budget_stage_stops: int = setting(5, "runs of one phase that may end without acceptance "
        "([breakers](concepts.md#breakers))", ge=1, le=1000000)
    budget_stops: int = setting(15, "the same for all its phases together", ge=1, le=1000000)
    tree_depth: int = setting(5, "how deep a doer or checker may nest [child "
        "sessions](concepts.md#child-sessions); 0 allows none", ge=0, le=50)
    tree_children: int = setting(100, "child sessions of one session, for those that a body "
        "starts", ge=0, le=10000)
    tree_sessions: int = setting(1000, "sessions of a whole tree, its root included", ge=1,
        le=100000)
    export_dir: Path | None = setting(None, "the folder to which a session is "
        "[exported](operations.md#keep-what-goes) before its retention ends and it is deleted")
    webhook_hosts: Hosts = setting((), "receivers of webhooks that may be private, use http "
        "and any port: `HOST` or `HOST:PORT`, separated by commas ([webhooks](webhooks.md))",
        form="HOST or HOST:PORT")
    tool_hosts: Hosts = setting((), "hosts that [HTTP requests of "
        "tools](tools.md#http-requests) may reach at private addresses, by http and at any "
        "port: `HOST` or `HOST:PORT`, separated by commas", form="HOST or HOST:PORT")
    inventory_s: float = setting(45.0, "seconds for which a worker's report is valid; it "
        "reports several times in that period. A place without a valid report is gone", ge=1,
        le=3600)
    drain_s: float = setting(10.0, "seconds that running attempts may continue after TERM "
        "before they are handed back", ge=0, le=3600)
    worker_name: str = setting("", "the worker's name", shown="host and process id",
        by_supervisor=True)
    log: Literal["plain", "json"] = setting("plain", "the format of log lines: `plain` for "
        "people, `json` for programs")
    traces: Literal["off", "otlp"] = setting("off", "`otlp` sends traces by OpenTelemetry "
        "([operations](operations.md#watch)); needs `leadhand[otel]`")
    supervisor_pid: int | None = setting(None, "the process with which this one ends; set by "
        "the embedded supervisor", by_supervisor=True)
    own_redis: bool = setting(False, "1: only the services of one state folder use this "
        "Redis, so the attempts of a worker process that is gone are lost at once; set by the "
        "embedded supervisor", by_supervisor=True)
    proof_key: str = setting("", "the key with which the API proves that it is the user's "
        "own, before a command sends its token",
        by_supervisor=True, secret=True)


class ClientVariables(BaseModel):
    """What commands and the Python client read. Most of them are set inside a body."""

    model_config = ConfigDict(frozen=True, defer_build=True)

    url: str | None = setting(None, "the address of the API", shown="the user's own services",
        pattern=r"^https?://[^\s/?#]+", form="a URL such as http://127.0.0.1:8765")
    token: str | None = setting(None, "the bearer token to send", secret=True)
    session_token: str | None = setting(None, "the token that `inbox` and `hook` send instead, "
        "if it is set: it outlives the attempt", secret=True)
    session: str | None = setting(None, "the session of the calling body")
    step: str | None = setting(None, "its step's address")
    iteration: int | None = setting(None, "its iteration", ge=1)
    home: Path | None = setting(None, "the [state folder](concepts.md#the-embedded-stack) of the "
        "embedded services; `leadhand --home DIR` sets it for one command",
        shown="`leadhand/MACHINE/default` in `XDG_STATE_HOME`")
    linger: float = setting(1800.0, "seconds that the embedded services stay up after the last "
        "command, or after the end of the last session; also `linger` in `config.toml`",
        form="seconds", ge=0, le=365 * 24 * 3600)
    redis_server: Path | None = setting(None, "the server program that the embedded services "
        "start; a program that cannot open the folder's data is refused",
        shown="the packaged Valkey")
    redis_url: str | None = setting(None, "a Redis that the embedded services use instead of "
        "starting one", secret=True)
    place: str | None = setting(None, "the name of this host in the [stacks](stack.md) of its "
        "folders", shown="the name of the host", pattern=NAME)
    guard_global_max: int | None = setting(None, "failing stops of an agent's session after which "
        "its [guard](hooks.md#limits) gives up", shown="15", ge=1, le=100_000)
    guard_stage_max: int | None = setting(None, "failures of one gate after which it gives up",
        shown="by gate", ge=1, le=1000)
    guard_stale_timeout: float | None = setting(None, "seconds after which a hook without a sign "
        "of life is replaced", shown="300", form="seconds", ge=60, le=24 * 3600)
    debug: str | None = setting(None, "1 shows the traceback of an internal error")
# fmt: on


#: What Leadhand sets for the programs that it starts, and reads nowhere.
GIVEN = {
    "LEADHAND_KEY": "names the step in its session: the same in each attempt",
    "LEADHAND_PROMPT_FILE": "the file with the prompt",
    "LEADHAND_RESULT_FILE": "the file with the work that a checker or gate judges",
    "LEADHAND_LOCK": "the lock that `leadhand lock` holds for the program",
    "LEADHAND_LOCK_FENCE": "the number of its grant",
    "LEADHAND_TREE": "marks the processes of an attempt",
}


def variable(field: str) -> str:
    """Returns the name of the variable for a field.

    >>> variable("lease_s")
    'LEADHAND_LEASE_S'
    """
    return f"{PREFIX}{field.upper()}"


def about(field: FieldInfo) -> About:
    """Returns what else is declared of a variable."""
    return next(one for one in field.metadata if isinstance(one, About))


def given(model: type[BaseModel], env: Mapping[str, str]) -> dict[str, object]:
    """Returns the texts of a model's variables that an environment has, by field."""
    return {name: env[variable(name)] for name in model.model_fields if env.get(variable(name))}


def invalid(error: ValidationError, model: type[BaseModel]) -> tuple[str, str, str]:
    """Returns the variable that cannot be used, its value, '' for a secret, and the fix."""
    first = error.errors(include_url=False)[0]
    name = str(first["loc"][0])
    field = model.model_fields[name]
    value = "" if about(field).secret else str(first["input"])
    return variable(name), value, _fix(field, first)


def _fix(field: FieldInfo, error: Mapping[str, Any]) -> str:
    kind = str(field.annotation)
    form = about(field).form or form_of(error.get("ctx", {}).get("pattern"))
    if error["type"] == "literal_error":
        form = error["ctx"]["expected"]
    elif "int" in kind or "float" in kind:
        form = (form or f"a {'whole ' * ('int' in kind)}number") + limits(field)
    elif "bool" in kind:
        form = "1, or unset it"
    return f"give {form}" if form else plain_message(error["msg"])


def limits(field: FieldInfo) -> str:
    """Returns the limits of a number, such as ` from 1 to 64`; '' without any."""
    found = {
        name: getattr(one, name)
        for one in field.metadata
        for name in ("gt", "ge", "le")
        if getattr(one, name, None) is not None
    }
    low, high = found.get("ge"), found.get("le")
    if "gt" in found:
        return f" over {found['gt']}" + (f", at most {high}" if high is not None else "")
    if low is not None and high is not None:
        return f" from {low} to {high}"
    return "" if low is None else f" of at least {low}"


def names_of(model: type[BaseModel], *, by_supervisor: bool | None = None) -> frozenset[str]:
    """Returns the variables of a model: all, or those that the supervisor sets or leaves alone."""
    return frozenset(
        variable(name)
        for name, field in model.model_fields.items()
        if by_supervisor in (None, about(field).by_supervisor)
    )


def secrets_of(model: type[BaseModel]) -> frozenset[str]:
    """Returns the variables of a model whose values are not to be shown."""
    return frozenset(variable(n) for n, field in model.model_fields.items() if about(field).secret)


def misspelt(names: Iterable[str]) -> Iterator[str]:
    """Yields a sentence for each environment variable that looks like a misspelt setting.

    >>> list(misspelt(["LEADHAND_CONCURENCY", "LEADHAND_URL", "LEADHAND_DEPLOYED_BY", "PATH"]))
    ['LEADHAND_CONCURENCY is not a setting; did you mean LEADHAND_CONCURRENCY?']
    """
    known = {*names_of(ServerVariables), *names_of(ClientVariables), *GIVEN}
    for name in sorted(names):
        if not name.upper().startswith(PREFIX) or name in known:
            continue
        own = name.upper().removeprefix(PREFIX)
        near = get_close_matches(
            own, sorted(one.removeprefix(PREFIX) for one in known), n=1, cutoff=_LIKENESS
        )
        if near:
            yield f"{name} is not a setting; did you mean {PREFIX}{near[0]}?"
