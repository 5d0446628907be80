"""Signs sessions and step tokens, and encrypts environments: all with keys that Redis never has.

Write access to Redis or the broker allows to claim steps and to change states. The program and the
place of a session are signed at create with LEADHAND_SECRET, which is never stored in Redis. A
worker verifies the signature before each body.

A step token reads `lhc1.<payload>.<signature>`: the payload is base64url JSON, the signature its
HMAC-SHA256. The token contains the attempt's fence, which the store compares, so it becomes invalid
with the end of the attempt. A work token is for the local steps of a session, whatever its status.
A session-long token has no address: it is valid while its session is
active, suspended while that is stopped, and invalid after its end.

An encrypted environment has the session's id as associated data: that of one session cannot be put
in the place of another one's. See decisions: security.
"""

from __future__ import annotations

import base64
import binascii
import hashlib
import hmac
import json
import secrets
from collections.abc import Mapping, Sequence
from contextlib import suppress
from functools import lru_cache
from typing import NamedTuple

from cryptography.exceptions import InvalidTag
from cryptography.hazmat.primitives.ciphers.aead import AESGCM
from cryptography.hazmat.primitives.hashes import SHA256
from cryptography.hazmat.primitives.kdf.hkdf import HKDF
from pydantic import JsonValue

from app.core.addresses import SessionRef
from app.core.environment import SessionEnvironment
from app.core.references import parse, references_in
from app.errors import CapabilityRefused, EnvironmentSealed

#: Prefix of the signed data, so that a signature of one kind is invalid for another.
_SESSION = "leadhand session 1"
#: The same, for the right of a session's bodies to bring commands of their own.
_COMMANDS = "leadhand commands 1"
#: The same, for the document that a session was submitted with.
_REQUEST = "leadhand request 1"
#: The inputs that decide what a step runs, and their fields that are commands or Python.
_WHO = ("doer", "checker")
_FREE = ("command", "callable", "rubric")
PREFIX = "lhc1."
#: Scopes of a token that outlives attempts: report to the parent, and read the own inbox.
SESSION_SCOPES = ("report", "inbox")
#: The scopes of a program that carries out the local steps of its session and uploads their long
#: results, and the address in its token, which no step can have.
WORK_SCOPES, WORK = ("work", "artifacts"), "@work"
#: Scopes of a doer or checker: read its own session, call exit, start child sessions, share locks
#: and values with its tree, report, and read its inbox.
BODY_SCOPES = ("read", "exit", "spawn", "share", *SESSION_SCOPES)
#: Scopes of a check that looks at the work before the first doer: it decides nothing.
LOOKING_SCOPES = ("read",)
#: Context of the derived key, and the first bytes of the associated data.
_CONTEXT = b"leadhand environment 1"
#: Prefix of the stored form.
_FORM = "1:"
_NONCE_BYTES = 12
_KEY_BYTES = 32


class Spec(NamedTuple):
    """The signed facts: they decide which commands run for a session, and where."""

    session: str
    root: str
    #: The hash of the program's document, which the signature thereby covers.
    program: str
    cwd: str
    place: str
    #: The mark of its environment; empty without one.
    environment: str = ""
    #: The mark of its folder's definitions; empty without any.
    definitions: str = ""


def sign(spec: Spec, *, secret: str) -> str:
    """Returns the signature of a session's program, folder and place, for the session's record."""
    return seal(_SESSION, _signed_values(spec), secret=secret)


def is_signed(spec: Spec, signature: str, *, secret: str) -> bool:
    """Whether the signature of a session was made with this secret; False without a secret."""
    return is_valid_seal(_SESSION, _signed_values(spec), signature, secret=secret)


def seal_commands(session: str, root: str, *, secret: str) -> str:
    """Returns a signature that allows the child sessions of a session to contain commands."""
    return seal(_COMMANDS, [session, root], secret=secret)


def is_command_seal(session: str, root: str, signature: str, *, secret: str) -> bool:
    """Whether a signature allows commands in the children of a session (see `seal_commands`)."""
    return is_valid_seal(_COMMANDS, [session, root], signature, secret=secret)


def seal_request(session: str, root: str, request: str, *, secret: str) -> str:
    """Returns a signature of a session's stored document, so that another session may use it."""
    return seal(_REQUEST, [session, root, _digest(request)], secret=secret)


def is_request_seal(session: str, root: str, request: str, signature: str, *, secret: str) -> bool:
    """Whether `signature` is a valid signature by `seal_request` of a session's document."""
    value: JsonValue = [session, root, _digest(request)]
    return is_valid_seal(_REQUEST, value, signature, secret=secret)


def _digest(text: str) -> str:
    return hashlib.sha256(text.encode()).hexdigest()


def _signed_values(spec: Spec) -> JsonValue:
    """The values of a signature; what a session does not have is left out, as before it existed."""
    if spec.definitions:
        return [*spec]
    return [*spec[:-1]] if spec.environment else [*spec[:-2]]


def program_id(document: str) -> str:
    """Returns the id of a program: the hash of its content.

    >>> program_id("{}")
    '44136fa355b3678a1146ad16f7e8649e'
    """
    return hashlib.sha256(document.encode()).hexdigest()[:32]


def seal(kind: str, value: JsonValue, *, secret: str) -> str:
    """Computes the HMAC-SHA256 of a kind and a JSON value."""
    text = json.dumps([kind, value], sort_keys=True, separators=(",", ":"))
    return hmac.digest(secret.encode(), text.encode(), "sha256").hex()


def is_valid_seal(kind: str, value: JsonValue, signature: str, *, secret: str) -> bool:
    """Whether a signature by `seal` of this kind and value is valid; False without a secret."""
    if not secret:
        return False
    return hmac.compare_digest(
        signature.encode(errors="replace"), seal(kind, value, secret=secret).encode()
    )


def command_from_outcome(inputs: Mapping[str, JsonValue]) -> str | None:
    """Returns the input through which an outcome could inject a command; None if none could.

    >>> command_from_outcome({"doer": {"command": "${plan.text}"}, "task": "${plan.text}"})
    'doer.command'
    >>> command_from_outcome({"checker": {"command": "true", "prompt": "${plan.text}"}})
    """
    for who in _WHO:
        given = inputs.get(who)
        if isinstance(given, str) and parse(given):
            return who
        for free in _FREE:
            text = given.get(free) if isinstance(given, dict) else None
            if any(references_in(text)):
                return f"{who}.{free}"
    return None


class Caller(NamedTuple):
    """The attempt that a token belongs to, or the session if it outlives attempts."""

    session: str
    address: str
    #: Of a session: the time in ms of its creation, or of its last resume after a failure.
    fence: int
    scopes: tuple[str, ...]

    @property
    def is_of_session(self) -> bool:
        """Whether the token is valid for the whole session, not only for one attempt."""
        return not self.address

    @classmethod
    def of_session(cls, session: str, since: int) -> Caller:
        """Return the caller that a session-long token identifies."""
        return cls(session, "", since, ("read", *SESSION_SCOPES))

    @property
    def is_of_work(self) -> bool:
        """Whether the token is for the local steps of its session."""
        return self.address == WORK

    @classmethod
    def of_work(cls, session: str, created: int) -> Caller:
        """Return the caller that a token for a session's local steps identifies."""
        return cls(session, WORK, created, WORK_SCOPES)


def mint(caller: Caller, *, secret: str) -> str:
    """Creates a signed token for the caller: an attempt of a step, or a whole session."""
    body = json.dumps([caller.session, caller.address, caller.fence, list(caller.scopes)])
    payload = base64.urlsafe_b64encode(body.encode()).decode().rstrip("=")
    return f"{PREFIX}{payload}.{_sign(payload, secret)}"


def verify_any(token: str, secrets: Sequence[str]) -> Caller:
    """Verifies a token with several secrets and returns its caller. Raises CapabilityRefused."""
    for secret in secrets[:-1]:
        with suppress(CapabilityRefused):
            return verify(token, secret=secret)
    return verify(token, secret=secrets[-1] if secrets else "")


def verify(token: str, *, secret: str) -> Caller:
    """Verifies a token's signature and returns its caller. Raises CapabilityRefused if invalid."""
    if not secret or not token.startswith(PREFIX):
        raise CapabilityRefused("it is not a token of this server")
    payload, _, signature = token[len(PREFIX) :].partition(".")
    if not hmac.compare_digest(signature.encode(), _sign(payload, secret).encode()):
        raise CapabilityRefused("its signature is invalid")
    body = base64.urlsafe_b64decode(payload + "=" * (-len(payload) % 4))
    session, address, fence, scopes = json.loads(body)
    return Caller(session, address, fence, tuple(scopes))


def _sign(payload: str, secret: str) -> str:
    return hmac.digest(secret.encode(), payload.encode(), "sha256").hex()


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
