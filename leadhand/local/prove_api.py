"""Asks the API on a port for its proof, before any token is sent there."""

from __future__ import annotations

import http.client
import secrets

from leadhand.models.api_proof import NONCE_HEADER, PROOF_HEADER, is_proof

_TIMEOUT_S = 5.0


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
