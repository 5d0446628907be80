"""How an embedded API proves to a command that it is the one which the user's supervisor started.

Another user of the machine may hold the port. So a command that finds the API's address sends a
random nonce first, and its token only to a server that knows the key of this start. Pure.
"""

from __future__ import annotations

import hmac
import re

#: The header of a request with a nonce, and that of its response with the proof.
NONCE_HEADER, PROOF_HEADER = "Leadhand-Nonce", "Leadhand-Proof"
#: A nonce, and a proof.
_NONCE = re.compile(r"[0-9a-f]{32,64}")


def is_nonce(text: str) -> bool:
    """Whether a text is a nonce: 32 to 64 lower-case hex digits."""
    return _NONCE.fullmatch(text) is not None


def proof_of(key: str, port: int, nonce: str) -> str:
    """The HMAC of a port and a nonce with a key, as hex digits: an API proves itself with it.

    It holds for one port: a server on another one cannot pass on the proof of the real API.

    >>> proof_of("k", 1, "00" * 16) == proof_of("k", 2, "00" * 16)
    False
    """
    message = f"leadhand api proof 1:{port}:{nonce}".encode()
    return hmac.new(key.encode(), message, "sha256").hexdigest()


def is_proof(given: str, key: str, port: int, nonce: str) -> bool:
    """Whether a text is the proof for this key, port and nonce; compares in constant time."""
    return hmac.compare_digest(given.encode(), proof_of(key, port, nonce).encode())
