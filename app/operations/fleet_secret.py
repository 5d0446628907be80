"""Checks that all processes of a fleet have the same LEADHAND_SECRET, without storing it.

Redis stores a random salt and an HMAC of it with each accepted secret: one, or two during a
rotation. A process with another secret would fail every session that it touches.
"""

from __future__ import annotations

import hmac
import logging
import secrets
from collections.abc import Sequence

from pydantic import BaseModel, ConfigDict

from app.settings import Settings
from app.store.store import Store
from leadhand.errors import SecretDiffers

log = logging.getLogger(__name__)


class Proof(BaseModel):
    """Shows that a process knows the secrets, without revealing them."""

    model_config = ConfigDict(frozen=True)

    salt: str
    marks: tuple[str, ...]


def proof_of(accepted: Sequence[str], salt: str) -> Proof:
    """Computes a salted hash of each secret, by which processes compare their secrets.

    >>> proof_of(["a"], "salt") == proof_of(["a"], "salt")
    True
    >>> proof_of(["a"], "salt") == proof_of(["b"], "salt")
    False
    """
    text = f"leadhand fleet 1 {salt}".encode()
    marks = (hmac.digest(secret.encode(), text, "sha256").hex() for secret in accepted)
    return Proof(salt=salt, marks=tuple(marks))


def check_secret(store: Store, settings: Settings) -> None:
    """Raises SecretDiffers unless this process has the fleet's secrets; the first one sets them.

    A process must accept each secret with which another one signs now. Where it owns its Redis,
    other secrets replace those of the fleet.
    """
    fleet = store.fleet()
    first = proof_of(settings.secrets, secrets.token_hex(16))
    known = Proof.model_validate_json(fleet.first_proof(first.model_dump_json()))
    own = proof_of(settings.secrets, known.salt)
    if not all(
        _accepts(own.marks, marks) for marks in (known.marks, *_in_force(store, known.salt))
    ):
        if not settings.own_redis:
            raise SecretDiffers(store.keys.everywhere("secret"))
        log.warning("the secret has changed: earlier sessions cannot run")
        fleet.delete_used_secrets()
    if known != own:
        fleet.replace_proof(own.model_dump_json())
    _use(store, settings, own)


def renew_secrets(store: Store, settings: Settings) -> None:
    """Records in Redis that this process still uses its secrets; the record expires by itself."""
    text = store.fleet().proof()
    if text is not None:
        _use(store, settings, proof_of(settings.secrets, Proof.model_validate_json(text).salt))


def _use(store: Store, settings: Settings, own: Proof) -> None:
    until_ms = store.now_ms() + round(settings.inventory_s * 1000)
    store.fleet().use_secrets(" ".join((own.salt, *own.marks)), until_ms)


def _in_force(store: Store, salt: str) -> list[tuple[str, ...]]:
    """The marks of the secrets of each live process."""
    now_ms = store.now_ms()
    used = [
        text.split()
        for text, until in store.fleet().secrets_in_use().items()
        if int(until) > now_ms
    ]
    return [tuple(marks) for known, *marks in used if known == salt]


def _accepts(own: Sequence[str], other: Sequence[str]) -> bool:
    """Whether a process accepts the first secret of another one, with which that one signs.

    >>> _accepts(["new", "old"], ["old"]), _accepts(["new"], ["old", "new"])
    (True, False)
    """
    return other[0] in own if other else not own
