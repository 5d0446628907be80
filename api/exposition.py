"""Prometheus' text format, version 0.0.4. Pure."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping
from typing import Literal, NamedTuple

MEDIA_TYPE = "text/plain; version=0.0.4; charset=utf-8"


class Sample(NamedTuple):
    """One number, and what it is of."""

    value: float
    labels: Mapping[str, str] = {}


class Family(NamedTuple):
    """All numbers of one name, read when they are asked for; a counter never falls."""

    name: str
    what: str
    samples: tuple[Sample, ...]
    kind: Literal["gauge", "counter"] = "gauge"


def exposed(families: Iterable[Family]) -> str:
    r"""The text of all families.

    >>> print(exposed([Family("up", "Whether.", (Sample(1, {"to": "a \\"}),))]), end="")
    # HELP up Whether.
    # TYPE up gauge
    up{to="a \\"} 1
    """
    return "".join(f"{line}\n" for family in families for line in _lines(family))


def _lines(family: Family) -> Iterator[str]:
    yield f"# HELP {family.name} {family.what}"
    yield f"# TYPE {family.name} {family.kind}"
    for value, labels in family.samples:
        named = ",".join(f'{name}="{_escaped(text)}"' for name, text in labels.items())
        yield f"{family.name}{{{named}}} {value:.15g}" if named else f"{family.name} {value:.15g}"


def _escaped(text: str) -> str:
    return text.replace("\\", r"\\").replace('"', r"\"").replace("\n", r"\n")
