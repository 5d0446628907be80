"""Hashes of submitted requests, by which a repeated Idempotency-Key is recognised."""

from __future__ import annotations

import hashlib

from app.domain.environment.session import environment_of
from app.security.environment_cipher import comparison
from leadhand.flows.documents import AnyDocument, FlowRun
from leadhand.models.session_environment import FIELDS, WithEnvironment


def hash_document(document: AnyDocument, secret: str) -> str:
    """Returns the hash by which a repeated submit of a document is recognised.

    It covers only what the caller wrote: defaults that a later version adds must not change it.
    The values of its environment count by their MAC.
    """
    return digest_of(_text(document) + hash_environment(document, secret))


def hash_run(name: str, run: FlowRun, secret: str) -> str:
    """Returns the hash by which a repeated run of a flow is recognised."""
    return digest_of(f"flow {name} {_text(run)}{hash_environment(run, secret)}")


def hash_environment(given: WithEnvironment, secret: str) -> str:
    """Returns a keyed hash (MAC) of the variables that a request passes; '' for none.

    Those of the shell may differ.
    """
    return comparison(environment_of(given), secret=secret)


def _text(given: WithEnvironment) -> str:
    return given.model_dump_json(exclude_unset=True, exclude={*FIELDS})


def digest_of(text: str) -> str:
    """Returns the SHA-256 digest of a text, in hexadecimal."""
    return hashlib.sha256(text.encode()).hexdigest()
