"""A second interpreter of graph documents, in a few lines of plain Python: it knows no engine.

The acts say how each call goes: its errors, one after the other, and what it then returns.
"""

from __future__ import annotations

import json
import re
import zlib
from typing import Any

_REFERENCE = re.compile(r"(?<!\$)\$\{([^}?]+?)(?: \?\? ([^}]*))?\}")
_KEY = re.compile(r'\["([^"]+)"\]|\[(\d+)\]|\.?([\w-]+)')


class _Skipped(Exception):
    pass


def returned(act: dict[str, Any], arguments: Any) -> dict[str, Any]:
    """What a call returns, which depends on all of its arguments."""
    seen = zlib.crc32(json.dumps(arguments, sort_keys=True).encode())
    return {**act["value"], "got": seen}


def needs_of(step: dict[str, Any]) -> set[str]:
    """The steps for which a step waits."""
    held = json.dumps([step.get("arguments"), step.get("when"), step.get("for_each")])
    found = _REFERENCE.findall(held.replace('\\"', '"'))
    roots = [[a or b or c for a, b, c in _KEY.findall(path)] for path, _ in found]
    named = {keys[1] if keys[0] == "steps" else keys[0] for keys in roots}
    return set(step.get("depends_on", [])) | named - {"inputs", "item", "index"}


def interpret(graph: dict[str, Any], acts: dict[str, Any]) -> tuple[dict[str, Any], set[str]]:
    """The result of each step that runs, and the critical steps that fail."""
    words: dict[str, list[str] | None] = {}
    values: dict[str, Any] = {"inputs": graph["inputs"]}
    fatal: set[str] = set()
    waiting = {step["name"]: step for step in graph["steps"]}
    while ready := [s for s in waiting.values() if needs_of(s) <= words.keys()]:
        for step in ready:
            name, acts_of = waiting.pop(step["name"])["name"], acts[step["name"]]
            ends = _run(step, acts_of, words, values)
            values[name] = [value for _, value in ends] if "for_each" in step else ends[0][1]
            if step.get("critical", True) and "failed" in [word for word, _ in ends]:
                fatal.add(name)
            else:
                words[name] = [word for word, _ in ends]
    kept = {name: values[name] for name, found in words.items() if found != ["skipped"]
            or isinstance(values[name], list)}  # fmt: skip
    return kept, fatal


def _run(step: Any, acts: Any, words: Any, values: Any) -> list[tuple[str, Any]]:
    each, when = step.get("for_each"), step.get("when", "")
    if each is None:
        return [_call(step, acts[0], words, values)]
    is_known = isinstance(each, list) or each.startswith("${inputs")
    of_all = "" if "item" in when or "index" in when else when
    once = not is_known or of_all or step.get("join", "ended") != "ended"
    try:
        if once and not _wanted(step, of_all, words, values):
            return []
        each = _fill(each, words, values)
    except _Skipped:
        return []
    scopes = ({**values, "item": item, "index": n} for n, item in enumerate(each, 1))
    return [_call(step, acts[n % len(acts)], words, scope) for n, scope in enumerate(scopes)]


def _wanted(step: Any, when: str, words: Any, values: Any) -> bool:
    ended = [words[name] for name in needs_of(step)]
    succeeded = {"ended": True, "all": all(set(one) <= {"succeeded"} for one in ended),
                 "any": any(not one or "succeeded" in one for one in ended)}  # fmt: skip
    met = not when or bool(_fill(when.removeprefix("not "), words, values)) != ("not " in when)
    return succeeded[step.get("join", "ended")] and met


def _call(step: Any, act: Any, words: Any, values: Any) -> tuple[str, Any]:
    try:
        if act.get("skip") or not _wanted(step, step.get("when", ""), words, values):
            return "skipped", None
        value = returned(act, _fill(step["arguments"], words, values))
    except _Skipped:
        return "skipped", None
    fails = [*act["errors"], *(["declined"] * 99 if act["value"].get("success") is False else [])]
    last = next((n for n, error in enumerate(fails) if n >= step.get("retries", 0)
                 or (step.get("retry_on") and error not in step["retry_on"])), None)  # fmt: skip
    return ("succeeded", value) if last is None else ("failed", {"error": fails[last]})


def _fill(value: Any, words: Any, values: Any) -> Any:
    if isinstance(value, dict):
        return {key: _fill(one, words, values) for key, one in value.items()}
    if isinstance(value, list):
        return [_fill(one, words, values) for one in value]
    if not isinstance(value, str):
        return value
    whole = _REFERENCE.fullmatch(value)
    if whole:
        return _value(whole, words, values)
    text = _REFERENCE.sub(lambda found: _text(_value(found, words, values)), value)
    return text.replace("$${", "${")


def _value(found: re.Match[str], words: Any, values: Any) -> Any:
    name, *keys = [a or b or c for a, b, c in _KEY.findall(found[1])]
    if name == "steps":
        name, *keys = keys
    value, default = values[name], found[2] and json.loads(found[2])
    if words.get(name) == ["skipped"] and not isinstance(value, list):
        if found[2] is None:
            raise _Skipped
        return default
    if (
        found[2] is not None
        and words.get(name) == ["failed"]
        and not isinstance(value, list)
        and keys[:1] != ["error"]
    ):
        return default
    for key in keys:
        at = isinstance(value, list) and int(key) < len(value)
        value = value[int(key)] if at else value.get(key) if isinstance(value, dict) else None
    return default if value is None and found[2] is not None else value


def _text(value: Any) -> str:
    return value if isinstance(value, str) else json.dumps(value)
