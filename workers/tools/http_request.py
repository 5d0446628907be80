"""Sends one HTTP request: `python -P -m leadhand.serve request`.

Reads the request from standard input as a JSON object and writes one: `status`, `text`, `is_json`
and `location` of the response, or `failed` with the reason, `may_retry` if the same request may
succeed later, and `is_broken` if there was no connection or it broke.
"""

from __future__ import annotations

import asyncio
import json
import sys
from collections.abc import Mapping
from typing import Any

import httpx2

from workers.processes import environment
from workers.registry.tool_entry import fill
from workers.tool_servers.egress import EgressRefused, HeaderRefused, guarded_client, public_text

#: The most bytes of a response.
RESPONSE_BYTES = 4 * 1024 * 1024


def main() -> int:
    """Send one HTTP request, read from standard input, and print the response."""
    request = json.load(sys.stdin)
    try:
        answer = asyncio.run(_send(request))
    except (EgressRefused, HeaderRefused) as error:
        answer = {"failed": str(error)}
    except httpx2.TimeoutException:
        seconds = f"{request['timeout_s']:g}"
        answer = {"failed": f"no response within {seconds} s", "timed_out": True, "may_retry": True}
    except httpx2.TransportError as error:
        answer = {"failed": public_text(error), "may_retry": True, "is_broken": True}
    except (httpx2.InvalidURL, httpx2.HTTPError, ValueError) as error:
        answer = {"failed": f"{type(error).__name__}: {error}"}
    sys.stdout.write(json.dumps(answer))
    return 0


async def _send(request: Mapping[str, Any]) -> dict[str, Any]:
    held = environment.inherited()
    headers = {
        name: fill(value, lambda variable: held.get(variable, "").strip())
        for name, value in request["headers"].items()
    }
    headers.setdefault("Idempotency-Key", request["key"])
    async with (
        guarded_client(request["hosts"], headers=headers, timeout_s=request["timeout_s"]) as client,
        client.stream(
            request["method"],
            _with_query(request["url"], request.get("query")),
            json=request.get("json"),
            data=request.get("form"),
        ) as response,
    ):
        content = bytearray()
        async for chunk in response.aiter_bytes():
            content += chunk
            if len(content) > RESPONSE_BYTES:
                return {"failed": f"the response has more than {RESPONSE_BYTES:,} bytes"}
        kind = response.headers.get("content-type", "").partition(";")[0].strip().lower()
        return {
            "status": response.status_code,
            "text": content.decode(response.encoding or "utf-8", "replace"),
            "is_json": kind == "application/json" or kind.endswith("+json"),
            "location": response.headers.get("location", ""),
        }


def _with_query(url: str, query: Mapping[str, Any] | None) -> httpx2.URL:
    found = httpx2.URL(url)
    return found.copy_merge_params(dict(query)) if query else found


if __name__ == "__main__":
    sys.exit(main())
