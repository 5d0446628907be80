# Generated from async_batch_calls.py by scripts/client.py: do not edit.
"""The operation of the synchronous client that submits many documents."""

from __future__ import annotations

from collections.abc import Sequence

from leadhand.client.batch import requests
from leadhand.client.connection import Connection
from leadhand.client.requests import Document
from leadhand.models.views.batch import BatchItemView, BatchView


class BatchCalls:
    """Submits many documents."""

    _connection: Connection

    def submit_many(
        self,
        documents: Sequence[Document],
        idempotency_keys: Sequence[str] | None = None,
        *,
        mode: requests.Mode = "all",
    ) -> list[BatchItemView]:
        """Start a session for each document, in order, with one request for each hundred.

        In the mode `all` a refused document refuses its whole request, and the requests before it
        stay; with `each` it is reported and the others start. The same keys with the same
        documents return the same sessions. A quota or label may refuse single items in both modes.
        """
        found: list[BatchItemView] = []
        for call in requests.submit_many(documents, idempotency_keys, mode):
            answer = self._connection.transport.send(call)
            found += BatchView.model_validate_json(answer.checked().content).items
        return found
