"""Queries an embedded stack's API for its supervisor: readiness, worker, live sessions."""

from __future__ import annotations

import http.client
import json
import secrets

from leadhand.errors import StoreUnknown
from leadhand.models.api_proof import NONCE_HEADER, PROOF_HEADER, is_proof

_TIMEOUT_S = 5.0
#: Statuses of sessions that keep the stack running; a waiting one may have a timer.
WANTS_LIFE = ("active", "waiting", "stopping", "exiting", "aborting")
#: Sessions that are looked at if the newest is a guard. A full page of guards counts as work.
PAGE = 100


def proves_itself(port: int, key: str) -> bool:
    """Asks the server on a loopback port for a proof; returns whether it knows the key.

    Raises OSError if none accepts connections or its response cannot be read.
    """
    nonce = secrets.token_hex(16)
    connection = http.client.HTTPConnection("127.0.0.1", port, timeout=_TIMEOUT_S)
    try:
        connection.request("GET", "/healthz", headers={NONCE_HEADER: nonce})
        given = connection.getresponse().headers.get(PROOF_HEADER, "")
    except http.client.HTTPException as error:
        raise ConnectionError(str(error) or type(error).__name__) from error
    finally:
        connection.close()
    return is_proof(given, key, port, nonce)


class LocalApi:
    """One API on loopback. Every method raises OSError if the API does not respond."""

    def __init__(
        self, port: int, token: str, *, proof_key: str = "", timeout_s: float = 5.0
    ) -> None:
        self._port = port
        self._proof_key = proof_key
        self._headers = {"Authorization": f"Bearer {token}", "Accept": "application/json"}
        self._timeout_s = timeout_s

    def is_ready(self) -> bool:
        """Whether the API reports that it is ready. Raises OSError if it does not respond."""
        return self._get("/readyz")[0] == http.client.OK

    def refuses_store(self) -> bool:
        """Whether the API reports that Redis holds other data than it expects."""
        status, body = self._get("/readyz")
        return status == http.client.SERVICE_UNAVAILABLE and StoreUnknown.kind.uri.encode() in body

    def has_worker(self, name: str) -> bool:
        """Whether the API lists a live worker of that name, also with a suffix `@...`."""
        names = [str(item.get("name", "")) for item in self._items("/v1/workers")]
        return any(found == name or found.startswith(f"{name}@") for found in names)

    def has_live_session(self) -> bool:
        """Whether any session is active or changing its status.

        Guards do not count: they wait for an agent whose next stop starts the services again.
        """
        query = "&".join(f"status={status}" for status in WANTS_LIFE)
        first = self._items(f"/v1/sessions?{query}&limit=1")
        if not first or first[0].get("kind") != "guard":
            return bool(first)
        items = self._items(f"/v1/sessions?{query}&limit={PAGE}")
        return len(items) == PAGE or any(item.get("kind") != "guard" for item in items)

    def _items(self, path: str) -> list[dict[str, object]]:
        status, body = self._get(path)
        try:
            items = json.loads(body)["items"] if status == http.client.OK else None
        except (ValueError, TypeError, KeyError):
            items = None
        if not isinstance(items, list):
            raise ConnectionError(f"GET {path} returned HTTP {status}")
        return items

    def _get(self, path: str) -> tuple[int, bytes]:
        if self._proof_key and not proves_itself(self._port, self._proof_key):
            raise ConnectionError(f"port {self._port} is held by another program")
        connection = http.client.HTTPConnection("127.0.0.1", self._port, timeout=self._timeout_s)
        try:
            connection.request("GET", path, headers=self._headers)
            answer = connection.getresponse()
            return answer.status, answer.read()
        except http.client.HTTPException as error:
            raise ConnectionError(str(error) or type(error).__name__) from error
        finally:
            connection.close()
