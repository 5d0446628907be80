"""Asks an OpenAI-compatible model once: `python -P -m workers.agents.chat`.

The question is a JSON object on standard input. What comes is told in JSON lines: `running` with
the tokens so far, which are guessed, then `answer` with `usage`, or `failed` with the reason, and
with `busy` where another time may be better, or `final` where none is.
"""

from __future__ import annotations

import json
import sys
import time
from collections.abc import Iterator
from typing import TYPE_CHECKING, Any

from workers import environment

if TYPE_CHECKING:
    import openai

_CHOSEN = ("temperature", "max_tokens")
#: How long a connection may take to be made.
_CONNECT_S = 10.0
#: Seconds between two words about the tokens so far.
_TELL_S = 0.5
#: Characters that make a token, about.
_CHARACTERS = 4
#: What a server answers that is overloaded, or that lost its way to the model.
_BUSY = frozenset({408, 409, 425, 429})


def main() -> int:
    """Ask, and tell what came of it."""
    import openai  # an extra: whoever asks no model does without it

    asked = json.load(sys.stdin)
    try:
        _tell(_answer(asked))
    except openai.APIStatusError as error:
        _tell(_refused(error))
    except openai.APITimeoutError:
        _tell({"failed": f"no word came for {asked['silence_s']:g} seconds", "busy": True})
    except openai.APIConnectionError as error:
        why = error.__cause__ or error
        _tell({"failed": f"the connection to {asked['base_url']} broke: {why}", "busy": True})
    except (openai.OpenAIError, ValueError) as error:
        _tell({"failed": f"{type(error).__name__}: {error}"})
    return 0


def _answer(asked: dict[str, Any]) -> dict[str, Any]:
    import httpx2
    import openai

    heard = _Heard(asked)
    chunks = _chunks(asked)
    try:
        for chunk in chunks:
            heard.take(chunk)
    except (openai.APIStatusError, openai.APIConnectionError):
        raise
    except (openai.APIError, httpx2.TransportError) as error:
        return heard.broke_off(str(error))
    except (ValueError, TypeError, AttributeError) as error:
        return heard.broke_off(f"what came then is no piece of an answer ({error})")
    return heard.told()


def _chunks(asked: dict[str, Any]) -> Iterator[Any]:
    import openai

    key = environment.inherited().get(asked["key_env"]) if asked["key_env"] else None
    client = openai.OpenAI(
        api_key=key or "none",
        base_url=asked["base_url"],
        max_retries=0,  # the worker would be held meanwhile; the step comes again instead
        timeout=openai.Timeout(asked["silence_s"], connect=_CONNECT_S),
    )
    system = [{"role": "system", "content": asked["system"]}] if asked["system"] else []
    chosen = {name: asked[name] for name in _CHOSEN if asked[name] is not None}
    completions: Any = client.chat.completions  # what is sent was checked where it was written
    yield from completions.create(
        model=asked["name"],
        messages=[*system, *asked["messages"]],
        stream=True,
        stream_options={"include_usage": True},
        **chosen,
    )


class _Heard:
    """The answer, piece by piece."""

    def __init__(self, asked: dict[str, Any]) -> None:
        self._given = sum(len(message["content"]) for message in asked["messages"])
        self._parts: list[str] = []
        self._finish: str | None = None
        self._usage: dict[str, Any] | None = None
        self._tell_at = 0.0

    def take(self, chunk: Any) -> None:
        if chunk.usage is not None:
            self._usage = chunk.usage.model_dump(exclude_none=True)
        for choice in chunk.choices[:1]:
            self._parts.append(choice.delta.content or "")
            self._finish = choice.finish_reason or self._finish
        if time.monotonic() >= self._tell_at:
            self._tell_at = time.monotonic() + _TELL_S
            said = sum(map(len, self._parts))
            tokens = {"input_tokens": self._given, "output_tokens": said}
            _tell({"running": {name: n // _CHARACTERS for name, n in tokens.items()}})

    def told(self) -> dict[str, Any]:
        """The answer, or what it lacks."""
        usage = {"usage": self._usage} if self._usage is not None else {}
        text = "".join(self._parts)
        if self._finish is None:
            return self.broke_off()
        if not text.strip():
            return {**usage, "failed": f"it said nothing (finish_reason {self._finish!r})"}
        return {**usage, "answer": text}

    def broke_off(self, why: str = "") -> dict[str, Any]:
        """What there is of the answer, and why there is no more."""
        usage = {"usage": self._usage} if self._usage is not None else {}
        text = "".join(self._parts)[-200:]
        told = f"its answer broke off after {text!r}" + (f": {why}" if why else "")
        return {**usage, "failed": told, "busy": True}


def _refused(error: openai.APIStatusError) -> dict[str, Any]:
    told: dict[str, Any] = {"failed": f"it answered {error.status_code}: {error.message}"}
    if error.status_code in _BUSY or error.status_code >= 500:
        told["busy"] = True
        after_s = _seconds(error.response.headers.get("retry-after", ""))
        if after_s is not None:
            told["after_s"] = after_s
    else:
        told["final"] = True
    return told


def _seconds(told: str) -> float | None:
    """What Retry-After asks for; a date is not worth the trouble.

    >>> _seconds("2"), _seconds("Sun, 22 Nov 2026 03:00:00 GMT")
    (2.0, None)
    """
    try:
        seconds = float(told)
    except ValueError:
        return None
    return seconds if 0 <= seconds < float("inf") else None


def _tell(fields: dict[str, Any]) -> None:
    sys.stdout.write(json.dumps(fields) + "\n")
    sys.stdout.flush()


if __name__ == "__main__":
    sys.exit(main())
