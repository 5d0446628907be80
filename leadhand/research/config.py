"""The configuration of a research agent: given, from the environment, or from a file."""

from __future__ import annotations

import json
import logging
from collections.abc import Mapping
from dataclasses import dataclass, fields, replace
from importlib import import_module
from pathlib import Path
from typing import Any

_LOG = logging.getLogger("leadhand.research")
#: What the variables begin with: LEADHAND_RESEARCH_MAX_RETRIES and so on.
PREFIX = "LEADHAND_RESEARCH_"
_TRUE, _FALSE = ("1", "true", "yes", "on"), ("0", "false", "no", "off")


@dataclass
class AgentConfig:
    """Configuration of a research agent."""

    #: Repetitions of a failed call, for steps without a `retry_count` of their own.
    max_retries: int = 3
    #: Seconds for the whole workflow. Time in which it is stopped does not count.
    timeout_seconds: float = 300.0
    #: Whether the state file is written after each step. Results are never lost: Leadhand has them.
    enable_checkpoints: bool = True
    log_level: str = "INFO"
    state_dir: str = ".polyhedra/agent"
    #: Steps that run at the same time. With 1 independent steps run in their order.
    max_parallel: int = 8
    #: Seconds before the first repetition of a failed call; doubled each time, up to a minute.
    retry_delay: float = 1.0
    #: Whether a reference without a value is an error; otherwise it is None, and logged.
    strict_references: bool = False

    @classmethod
    def from_mapping(cls, given: Mapping[str, Any], base: AgentConfig | None = None) -> AgentConfig:
        """Build a configuration from a mapping; invalid values are ignored with a warning.

        >>> AgentConfig.from_mapping({"max_retries": "5"}).max_retries
        5
        """
        known = {field.name: field.default for field in fields(cls)}
        found: dict[str, Any] = {}
        for name, value in given.items():
            if name not in known:
                _LOG.warning("unknown setting %r is ignored; known: %s", name, ", ".join(known))
                continue
            try:
                found[name] = _parsed(value, known[name])
            except ValueError as error:
                _LOG.warning("setting %r is ignored: it is %r; %s", name, value, error)
        return replace(base or cls(), **found)

    @classmethod
    def from_env(
        cls, environment: Mapping[str, str], base: AgentConfig | None = None
    ) -> AgentConfig:
        """Build a configuration from the LEADHAND_RESEARCH_ environment variables."""
        given = {
            name.removeprefix(PREFIX).lower(): value
            for name, value in environment.items()
            if name.startswith(PREFIX)
        }
        return cls.from_mapping(given, base)

    @classmethod
    def from_file(cls, path: str | Path) -> AgentConfig:
        """Read a configuration from a JSON or YAML file; an unreadable file gives the defaults.

        That is logged as a warning. YAML (`.yaml`, `.yml`) needs PyYAML.
        """
        path = Path(path)
        is_yaml = path.suffix.lower() in (".yaml", ".yml")
        try:
            text = path.read_text(encoding="utf-8")
            given = _from_yaml(text) if is_yaml else json.loads(text)
        except (OSError, ValueError) as error:
            _LOG.warning("configuration %s is ignored: %s", path, error)
            return cls()
        if not isinstance(given, dict):
            form = "a YAML mapping" if is_yaml else "a JSON object"
            _LOG.warning("configuration %s is ignored: give %s", path, form)
            return cls()
        return cls.from_mapping({str(name): value for name, value in given.items()})


def _from_yaml(text: str) -> Any:
    """The value of a YAML document. Raises ValueError, also without PyYAML."""
    try:
        yaml = import_module("yaml")
    except ImportError:
        raise ValueError("PyYAML is not installed; install it, or write the file as JSON") from None
    try:
        return yaml.safe_load(text)
    except yaml.YAMLError as error:
        raise ValueError(f"it is no YAML: {error}") from None


def _parsed(value: Any, default: Any) -> Any:
    """A value in the type of the default. Raises ValueError that says what to give."""
    if isinstance(default, bool):
        text = str(value).lower()
        if text not in (*_TRUE, *_FALSE):
            raise ValueError("give true or false")
        return text in _TRUE
    if isinstance(default, str):
        if not isinstance(value, str) or not value:
            raise ValueError("give a text")
        return value
    try:
        number = type(default)(value)
    except (TypeError, ValueError):
        raise ValueError("give a number") from None
    if isinstance(value, bool) or not 0 <= number < float("inf"):
        raise ValueError("give a number that is not negative")
    return number
