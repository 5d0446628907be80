"""The environment that a document passes to the bodies of its session."""

from __future__ import annotations

import re
from collections.abc import Mapping
from typing import Annotated

from pydantic import (
    AfterValidator,
    BaseModel,
    Field,
    PlainSerializer,
    SerializationInfo,
    StringConstraints,
)

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
    #: as they are where the command runs; null for one that is not set there.
    shell_env: ValuesOrUnset = Field(default={}, alias="shell_env", repr=False)
    #: The Python that runs its functions (not tools): an absolute path on the workers' machine, by
    #: default the worker's own.
    python: Annotated[str, AfterValidator(_absolute_path), Field(max_length=1000)] | None = None


#: The fields above.
FIELDS = frozenset(WithEnvironment.model_fields)
