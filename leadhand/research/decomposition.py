"""Makes a workflow of a command in words: a plug-in, and one that needs no model."""

from __future__ import annotations

import inspect
import json
import re
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from typing import Any, Protocol

from leadhand.research.errors import WorkflowValidationError
from leadhand.research.models import Workflow, WorkflowStep

Tools = Mapping[str, Callable[..., Any]]

#: What separates the steps of a command.
_BETWEEN = re.compile(
    r"\s*(?:[;\n]|,?\s+and\s+then\s+|,?\s+then\s+|\.\s+(?:then\s+)?|,\s+and\s+|,\s*)\s*",
    re.IGNORECASE,
)
_NUMBER = re.compile(r"^\s*(?:\d+[.)]|[-*])\s+", re.MULTILINE)
_GIVEN = re.compile(r"\b([A-Za-z_]\w*)=(\"[^\"]*\"|'[^']*'|\S+)")
_QUOTED = re.compile(r"\"([^\"]*)\"|'([^']*)'")
_WORD = re.compile(r"[^\W_]+")
#: Words that say nothing about an argument.
_FILLERS = frozenset(
    (
        *("a", "an", "the", "for", "about", "of", "on", "to", "from", "into", "in", "with", "by"),
        *("it", "them", "this", "these", "result", "results", "and", "please"),
    )
)


class Decomposer(Protocol):
    """Makes a workflow of a command."""

    async def decompose(self, command: str, tools: Tools) -> Workflow:
        """Convert a command in words to a workflow that uses these tools.

        Raises WorkflowValidationError if it finds none.
        """


@dataclass(frozen=True)
class KeywordDecomposer:
    """Splits a command at `then`, commas and lines, and finds the tool of each part by its words.

    The first argument of a tool that is not named (`limit=5`) is what is left of the part's words,
    or the result of the step before it. The same command always makes the same workflow.
    """

    name: str = "command"

    async def decompose(self, command: str, tools: Tools) -> Workflow:
        """Split a command into parts, match each to a tool by its words, and return the workflow.

        Raises WorkflowValidationError.
        """
        steps: list[WorkflowStep] = []
        problems: list[str] = []
        for part in filter(None, map(_clean, _split(command))):
            tool = _tool_of(part, tools)
            if tool is None:
                known = ", ".join(sorted(tools)) or "none"
                problems.append(f"no tool fits {part!r}; begin it with a word of one: {known}")
                continue
            before = steps[-1].name if steps else None
            arguments = _arguments(part, tool, tools[tool], before)
            depends = [before] if before is not None else []
            steps.append(
                WorkflowStep(
                    name=_free_name(tool, steps),
                    tool=tool,
                    arguments=arguments,
                    description=part,
                    depends_on=depends,
                )
            )
        if not steps and not problems:
            problems.append("the command is empty; say what to do")
        if problems:
            raise WorkflowValidationError(*problems)
        return Workflow(self.name, command, steps, metadata={"command": command})


def _split(command: str) -> list[str]:
    """The parts of a command; what is in quotation marks stays together.

    >>> _split('search "a, b" then fetch, and summarise')
    ['search "a, b"', 'fetch', 'summarise']
    """
    kept: list[str] = []

    def hide(found: re.Match[str]) -> str:
        kept.append(found[0])
        return f"\x00{len(kept) - 1}\x00"

    hidden = _NUMBER.sub("\n", _QUOTED.sub(hide, command))
    shown = re.compile(r"\x00(\d+)\x00")
    return [shown.sub(lambda at: kept[int(at[1])], part) for part in _BETWEEN.split(hidden)]


def _clean(part: str) -> str:
    return part.strip().rstrip(".")


def _stem(word: str) -> str:
    """The beginning by which forms of a word are compared: summaries, summarise."""
    return word.lower()[:6].rstrip("es") or word.lower()


def _tool_of(part: str, tools: Tools) -> str | None:
    """The tool whose name has most words in common with a part; the first word counts most."""
    words = [_stem(word) for word in _WORD.findall(_QUOTED.sub("", part))]
    best: tuple[int, str] | None = None
    for tool in sorted(tools):
        own = [_stem(word) for word in _WORD.findall(tool.replace("_", " "))]
        score = sum(3 if word in words[:1] else 1 for word in own if word in words)
        if score and (best is None or score > best[0]):
            best = (score, tool)
    return None if best is None else best[1]


def _arguments(
    part: str, name: str, tool: Callable[..., Any], before: str | None
) -> dict[str, Any]:
    parameters = [
        one
        for one in inspect.signature(tool).parameters.values()
        if one.kind in (one.POSITIONAL_OR_KEYWORD, one.KEYWORD_ONLY)
    ]
    named = {found[0]: _value(found[1]) for found in _GIVEN.findall(part)}
    known = {one.name for one in parameters}
    found = {key: value for key, value in named.items() if key in known}
    left = [one for one in parameters if one.name not in found]
    text = _text_of(_GIVEN.sub("", part), name)
    wanted = [one for one in left if one.default is one.empty] or left[:1]
    values: list[Any] = [text] if text else []
    if before is not None:
        values.append("${" + f'steps["{before}"]' + "}")
    found.update({one.name: value for one, value in zip(wanted, values, strict=False)})
    return found


def _text_of(part: str, tool: str) -> str:
    """What a part says besides the name of its tool."""
    quoted = _QUOTED.search(part)
    if quoted is not None:
        return quoted[1] or quoted[2] or ""
    own = {_stem(word) for word in _WORD.findall(tool.replace("_", " "))}
    words = [word for word in part.split() if _stem(word.strip(".,:;")) not in own]
    while words and words[0].lower() in _FILLERS:
        words.pop(0)
    while words and words[-1].lower() in _FILLERS:
        words.pop()
    return " ".join(words)


def _value(text: str) -> Any:
    if text[:1] in "\"'":
        return text[1:-1]
    try:
        return json.loads(text)
    except ValueError:
        return text


def _free_name(tool: str, steps: list[WorkflowStep]) -> str:
    taken = {step.name for step in steps}
    name, number = tool, 2
    while name in taken:
        name, number = f"{tool}-{number}", number + 1
    return name
