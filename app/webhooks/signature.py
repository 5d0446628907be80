"""Signs the requests of webhooks, so that receivers can tell who sent them (pure)."""

from __future__ import annotations

import hashlib
import hmac


def signature(secret: str, body: bytes, *, at_s: int) -> str:
    """Computes the HMAC signature of a webhook's body and time.

    >>> signature("a secret of the receiver's", b"{}", at_s=1700000000)[:18]
    't=1700000000,v1=87'
    """
    signed = str(at_s).encode() + b"." + body
    return f"t={at_s},v1={hmac.new(secret.encode(), signed, hashlib.sha256).hexdigest()}"
