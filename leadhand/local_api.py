"""Asks an embedded stack's own API the few things that its supervisor must know."""

from __future__ import annotations

import http.client
import json

#: A session that is one of these wants its stack to live; one that waits may have a timer.
WANTS_LIFE = ("active", "waiting", "stopping", "exiting", "aborting")


class LocalApi:
    """One API on loopback. Every question raises OSError where there is no answer to it."""

    def __init__(self, port: int, token: str, *, timeout_s: float = 5.0) -> None:
        self._port = port
        self._headers = {"Authorization": f"Bearer {token}", "Accept": "application/json"}
        self._timeout_s = timeout_s

    def is_ready(self) -> bool:
        return self._get("/readyz")[0] == http.client.OK

    def has_worker(self, name: str) -> bool:
        """True once a worker of that name, or of that name at some host, has told of itself."""
        names = [str(item.get("name", "")) for item in self._items("/v1/workers")]
        return any(found == name or found.startswith(f"{name}@") for found in names)

    def has_live_session(self) -> bool:
        return any(self._items(f"/v1/sessions?status={word}&limit=1") for word in WANTS_LIFE)

    def _items(self, path: str) -> list[dict[str, object]]:
        status, body = self._get(path)
        try:
            items = json.loads(body)["items"] if status == http.client.OK else None
        except (ValueError, TypeError, KeyError):
            items = None
        if not isinstance(items, list):
            raise ConnectionError(f"GET {path} answered {status}")
        return items

    def _get(self, path: str) -> tuple[int, bytes]:
        connection = http.client.HTTPConnection("127.0.0.1", self._port, timeout=self._timeout_s)
        try:
            connection.request("GET", path, headers=self._headers)
            answer = connection.getresponse()
            return answer.status, answer.read()
        except http.client.HTTPException as error:
            raise ConnectionError(str(error) or type(error).__name__) from error
        finally:
            connection.close()
