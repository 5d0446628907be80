"""The environment of the calling process, and what of it a session gets (pure)."""

from __future__ import annotations

import re
from collections.abc import Iterator, Mapping, Sequence
from pathlib import Path, PurePosixPath
from typing import Any, NamedTuple

from leadhand.models.session_environment import MAX_NAMES, UMASK
from leadhand.models.views.fleet import AgentView

#: What the shell of a command decides for the bodies of embedded services.
_OF_SHELL = ("PATH", "VIRTUAL_ENV")
#: By the program of an agent: the variables in which its users keep keys and addresses.
_USUAL: Mapping[str, tuple[str, ...]] = {
    "claude": ("ANTHROPIC_API_KEY", "ANTHROPIC_AUTH_TOKEN", "ANTHROPIC_BASE_URL",
               "CLAUDE_CODE_OAUTH_TOKEN"),
    "codex": ("OPENAI_API_KEY", "CODEX_API_KEY", "OPENAI_BASE_URL"),
    "gemini": ("GEMINI_API_KEY", "GOOGLE_API_KEY"),
    "aider": ("ANTHROPIC_API_KEY", "OPENAI_API_KEY"),
    "opencode": ("ANTHROPIC_API_KEY", "OPENAI_API_KEY"),
}  # fmt: skip
_CREDENTIAL = re.compile(r"(?i)key|token|secret|passw|credential|auth|base_url")


class Here(NamedTuple):
    """The environment of this process, and what its user passes on."""

    values: Mapping[str, str] = {}
    #: The variables of `--env` and `--env-file`.
    passed: Mapping[str, str] = {}
    #: Whether the API and its worker are this user's own, on this machine.
    is_embedded: bool = False
    #: The Python of functions; None for the workers' own.
    python: str | None = None
    #: The folder whose definitions apply, for services on this machine.
    folder: Path | None = None
    #: The umask of this process, for services on this machine.
    umask: int | None = None

    def fields(
        self, given: Mapping[str, Any], env: Mapping[str, str] | None, agents: Sequence[AgentView]
    ) -> dict[str, Any]:
        """Return a new session's request fields `env`, `shell_env` and `python`, if not empty."""
        passed = {**(given.get("env") or {}), **self.passed, **(env or {})}
        shell = given.get("shell_env") or (self._shell(agents) if self.is_embedded else {})
        python = given.get("python") or self.python
        fields = {"env": passed, "shell_env": shell, "python": python}
        return {name: value for name, value in fields.items() if value}

    def asks_for_agents(self, *, is_body: bool) -> bool:
        """Whether a request that starts a session needs the list of the API's agents.

        The session of a body gives its children its own environment.
        """
        if self.is_embedded:
            return True
        usual = {name for names in _USUAL.values() for name in names}
        return not is_body and any(map(self.values.get, usual))

    def notices(
        self, given: Mapping[str, Any], passed: Mapping[str, str], agents: Sequence[AgentView]
    ) -> Iterator[str]:
        """Yield a sentence for each agent whose credentials are set here but not passed to it."""
        used = _named_agents(given)
        for agent in agents:
            if agent.name in used or (not used and agent.default and not _has_doer(given)):
                yield from self._notice(agent, passed)

    def _notice(self, agent: AgentView, passed: Mapping[str, str]) -> Iterator[str]:
        program = PurePosixPath(agent.command.split(" ")[0]).name
        usual = dict.fromkeys(_USUAL.get(program, ()))
        own = [name for name in agent.env if _CREDENTIAL.search(name)]
        wanted = usual if self.is_embedded else {**usual, **dict.fromkeys(own)}
        named = {*agent.env} if self.is_embedded else set[str]()
        found = [n for n in wanted if self.values.get(n) and n not in named and n not in passed]
        if not found:
            return
        names, options = " and ".join(found), " ".join(f"--env {name}" for name in found)
        verb = "is" if len(found) == 1 else "are"
        if self.is_embedded:
            yield (
                f"{names} {verb} set here, but agent {agent.name!r} does not get it; name it in env"
                f" of [agents.{agent.name}] in agents.toml, or pass it with {options}"
            )
        else:
            yield (
                f"{names} {verb} set here, but not passed: agent {agent.name!r} gets only what its"
                f" worker has; pass it with {options}"
            )

    def _shell(self, agents: Sequence[AgentView]) -> dict[str, str | None]:
        named = dict.fromkeys(name for agent in agents for name in (*agent.env, *agent.needs_env))
        names = [name for name in (*_OF_SHELL, *named) if not name.startswith("LEADHAND_")]
        values = {name: _as_text(name, self.values.get(name)) for name in names}
        names.sort(key=lambda name: values[name] is None)  # the set ones come first
        ours = {} if self.umask is None else {UMASK: f"{self.umask:03o}"}
        return ours | {name: values[name] for name in dict.fromkeys(names[: MAX_NAMES - len(ours)])}


def _as_text(name: str, value: str | None) -> str | None:
    r"""What can be sent of a variable's value, which need not be UTF-8; None if nothing can be.

    >>> _as_text("PATH", "/bin:/na\udce9:/opt"), _as_text("KEY", "\udce9")
    ('/bin:/opt', None)
    """
    if value is None or _is_text(value):
        return value
    if name != "PATH":
        return None
    return ":".join(filter(_is_text, value.split(":")))


def _is_text(value: str) -> bool:
    try:
        value.encode()
    except UnicodeEncodeError:
        return False
    return True


def _named_agents(given: object) -> set[str]:
    """The agents that a document names anywhere."""
    found: set[str] = set()
    if isinstance(given, Mapping):
        for name, value in given.items():
            if name in ("agent", "agentType") and isinstance(value, str):
                found.add(value)
            elif name == "agents" and isinstance(value, Mapping):
                found.update(filter(None, map(str, value.values())))
            elif name not in ("env", "shell_env"):
                found |= _named_agents(value)
    elif isinstance(given, list | tuple):
        for one in given:
            found |= _named_agents(one)
    return found


def _has_doer(given: Mapping[str, Any]) -> bool:
    """Whether a command or function works, so that no agent is needed."""
    return bool(given.get("doer")) or given.get("kind") == "graph"
