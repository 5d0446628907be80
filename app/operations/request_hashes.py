"""Hashes of submitted requests, by which a repeated Idempotency-Key is recognised."""

from __future__ import annotations

import hashlib

from leadhand.flows.documents import AnyDocument, FlowRun


def hash_document(document: AnyDocument) -> str:
    """The hash that belongs to the Idempotency-Key of a document.

    Of what the caller wrote: defaults that a later version adds must not change it.
    """
    return hashlib.sha256(document.model_dump_json(exclude_unset=True).encode()).hexdigest()


def hash_run(name: str, run: FlowRun) -> str:
    """The hash that belongs to the Idempotency-Key of a flow's run."""
    request = f"flow {name} {run.model_dump_json(exclude_unset=True)}"
    return hashlib.sha256(request.encode()).hexdigest()
