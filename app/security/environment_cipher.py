"""Encrypts the environments of sessions, which Redis stores (AES-GCM; the key is never there).

The session's id is associated data: the environment of one session cannot be put in the place of
another one's. See decision 65.
"""

from __future__ import annotations

import base64
import binascii
import hashlib
import json
import secrets
from functools import lru_cache

from cryptography.exceptions import InvalidTag
from cryptography.hazmat.primitives.ciphers.aead import AESGCM
from cryptography.hazmat.primitives.hashes import SHA256
from cryptography.hazmat.primitives.kdf.hkdf import HKDF

from app.domain.environment.session import SessionEnvironment
from app.domain.ids import SessionRef
from app.errors import EnvironmentSealed
from app.security.session_signatures import seal

#: Context of the derived key, and the first bytes of the associated data.
_CONTEXT = b"leadhand environment 1"
#: Prefix of the stored form.
_FORM = "1:"
_NONCE_BYTES = 12
_KEY_BYTES = 32


def encrypt(environment: SessionEnvironment, ref: SessionRef, *, secret: str) -> str:
    """Encrypts a session's environment to text for storage. `secret` must not be empty.

    It is LEADHAND_SECRET.
    """
    nonce = secrets.token_bytes(_NONCE_BYTES)
    text = json.dumps(environment._asdict()).encode()
    sealed = AESGCM(_key(secret)).encrypt(nonce, text, _associated(ref))
    return _FORM + base64.b64encode(nonce + sealed).decode()


def decrypt(stored: str, ref: SessionRef, *, accepted: tuple[str, ...]) -> SessionEnvironment:
    """Decrypts a stored environment. Raises EnvironmentSealed if none of the secrets opens it."""
    try:
        raw = base64.b64decode(stored.removeprefix(_FORM), validate=True)
    except binascii.Error:
        raise EnvironmentSealed(ref.id) from None
    for secret in accepted:
        try:
            text = AESGCM(_key(secret)).decrypt(
                raw[:_NONCE_BYTES], raw[_NONCE_BYTES:], _associated(ref)
            )
        except (InvalidTag, ValueError):
            continue
        return SessionEnvironment(**json.loads(text))
    raise EnvironmentSealed(ref.id)


def mark_of(stored: str) -> str:
    """Returns the digest of an encrypted environment, for the session's signature; '' for ''.

    >>> mark_of(""), len(mark_of("1:AAAA"))
    ('', 32)
    """
    return hashlib.sha256(stored.encode()).hexdigest()[:32] if stored else ""


def comparison(environment: SessionEnvironment, *, secret: str) -> str:
    """Returns a MAC of an environment's values, to recognise repeated requests; '' for none."""
    if not environment.passed:
        return ""
    return seal(_CONTEXT.decode(), dict(environment.passed), secret=secret)


def _associated(ref: SessionRef) -> bytes:
    return b"\0".join((_CONTEXT, ref.root.encode(), ref.id.encode()))


@lru_cache(maxsize=4)
def _key(secret: str) -> bytes:
    return HKDF(algorithm=SHA256(), length=_KEY_BYTES, salt=None, info=_CONTEXT).derive(
        secret.encode()
    )
