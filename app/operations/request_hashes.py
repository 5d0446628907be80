"""Hashes of submitted requests, by which a repeated Idempotency-Key is recognised."""

from __future__ import annotations

import hashlib

from leadhand.flows.documents import AnyDocument, FlowRun


def hash_document(document: AnyDocument) -> str:
    """Returns the hash by which a repeated submit of a document is recognised.

    It covers only what the caller wrote: defaults that a later version adds must not change it.
    """
    return digest_of(document.model_dump_json(exclude_unset=True))


def hash_run(name: str, run: FlowRun) -> str:
    """Returns the hash by which a repeated run of a flow is recognised."""
    return digest_of(f"flow {name} {run.model_dump_json(exclude_unset=True)}")


def digest_of(text: str) -> str:
    """Returns the SHA-256 digest of a text, in hexadecimal."""
    return hashlib.sha256(text.encode()).hexdigest()
