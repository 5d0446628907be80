"""Requests one chat completion from an OpenAI-compatible model: `python -P -m leadhand.serve chat`.

Reads the request from standard input as a JSON object and writes JSON lines: `running` with an
estimate of the tokens so far, then `answer` with `usage`, or `failed` with the reason. `failed`
comes with `busy` if a retry may succeed, and with `final` if it cannot.
"""

from __future__ import annotations

import json
import sys
import time
from collections.abc import Iterator
from typing import TYPE_CHECKING, Any

from workers.processes import environment

if TYPE_CHECKING:
    import openai

_CHOSEN = ("temperature", "max_tokens")
#: Timeout of the connection, in seconds.
_CONNECT_S = 10.0
#: Seconds between two `running` lines.
_PROGRESS_S = 0.5
#: Characters per token, estimated.
_CHARACTERS_PER_TOKEN = 4
#: HTTP statuses of a server that is overloaded or cannot reach the model.
_BUSY = frozenset({408, 409, 425, 429})


def main() -> int:
    """Request the chat completion read as JSON from stdin; print its result or failure as JSON."""
    import openai  # an optional extra, needed only for agents that are models

    request = json.load(sys.stdin)
    try:
        _print_json(_complete(request))
    except openai.APIStatusError as error:
        _print_json(_status_failure(error))
    except openai.APITimeoutError:
        _print_json(
            {"failed": f"it sent nothing for {request['silence_s']:g} seconds", "busy": True}
        )
    except openai.APIConnectionError as error:
        why = error.__cause__ or error
        _print_json(
            {"failed": f"the connection to {request['base_url']} broke: {why}", "busy": True}
        )
    except (openai.OpenAIError, ValueError) as error:
        _print_json({"failed": f"{type(error).__name__}: {error}"})
    return 0


def _complete(request: dict[str, Any]) -> dict[str, Any]:
    import httpx2
    import openai

    received = _Received(request)
    chunks = _chunks(request)
    try:
        for chunk in chunks:
            received.take(chunk)
    except (openai.APIStatusError, openai.APIConnectionError):
        raise
    except (openai.APIError, httpx2.TransportError) as error:
        return received.truncated(str(error))
    except (ValueError, TypeError, AttributeError) as error:
        return received.truncated(f"the next chunk is not part of a completion ({error})")
    return received.result()


def _chunks(request: dict[str, Any]) -> Iterator[Any]:
    import openai

    key = environment.inherited().get(request["key_env"]) if request["key_env"] else None
    client = openai.OpenAI(
        api_key=key or "none",
        base_url=request["base_url"],
        max_retries=0,  # a retry here would block the worker; the step is retried instead
        timeout=openai.Timeout(request["silence_s"], connect=_CONNECT_S),
    )
    system = [{"role": "system", "content": request["system"]}] if request["system"] else []
    chosen = {name: request[name] for name in _CHOSEN if request[name] is not None}
    completions: Any = client.chat.completions  # the request was validated by its sender
    yield from completions.create(
        model=request["name"],
        messages=[*system, *request["messages"]],
        stream=True,
        stream_options={"include_usage": True},
        **chosen,
    )


class _Received:
    """Collects the chunks of a completion."""

    def __init__(self, request: dict[str, Any]) -> None:
        self._prompt_size = sum(len(message["content"]) for message in request["messages"])
        self._parts: list[str] = []
        self._finish: str | None = None
        self._usage: dict[str, Any] | None = None
        self._progress_at = 0.0

    def take(self, chunk: Any) -> None:
        if chunk.usage is not None:
            self._usage = chunk.usage.model_dump(exclude_none=True)
        for choice in chunk.choices[:1]:
            self._parts.append(choice.delta.content or "")
            self._finish = choice.finish_reason or self._finish
        if time.monotonic() >= self._progress_at:
            self._progress_at = time.monotonic() + _PROGRESS_S
            size = sum(map(len, self._parts))
            sizes = {"input_tokens": self._prompt_size, "output_tokens": size}
            tokens = {name: n // _CHARACTERS_PER_TOKEN for name, n in sizes.items()}
            _print_json({"running": tokens})

    def result(self) -> dict[str, Any]:
        """The completion with its usage, or the failure if it is empty or truncated."""
        usage = {"usage": self._usage} if self._usage is not None else {}
        text = "".join(self._parts)
        if self._finish is None:
            return self.truncated()
        if not text.strip():
            reason = f"its completion is empty (finish_reason {self._finish!r})"
            return {**usage, "failed": reason}
        return {**usage, "answer": text}

    def truncated(self, why: str = "") -> dict[str, Any]:
        """The failure of a completion that broke off, with the last of its text and the reason."""
        usage = {"usage": self._usage} if self._usage is not None else {}
        text = "".join(self._parts)[-200:]
        reason = f"its answer broke off after {text!r}" + (f": {why}" if why else "")
        return {**usage, "failed": reason, "busy": True}


def _status_failure(error: openai.APIStatusError) -> dict[str, Any]:
    reply: dict[str, Any] = {"failed": f"it returned HTTP {error.status_code}: {error.message}"}
    if error.status_code in _BUSY or error.status_code >= 500:
        reply["busy"] = True
        after_s = _seconds(error.response.headers.get("retry-after", ""))
        if after_s is not None:
            reply["after_s"] = after_s
    else:
        reply["final"] = True
    return reply


def _seconds(header: str) -> float | None:
    """The seconds of a Retry-After header; None for a date, which is not supported.

    >>> _seconds("2"), _seconds("Sun, 22 Nov 2026 03:00:00 GMT")
    (2.0, None)
    """
    try:
        seconds = float(header)
    except ValueError:
        return None
    return seconds if 0 <= seconds < float("inf") else None


def _print_json(fields: dict[str, Any]) -> None:
    sys.stdout.write(json.dumps(fields) + "\n")
    sys.stdout.flush()


if __name__ == "__main__":
    sys.exit(main())
