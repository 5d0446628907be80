"""The operation of the asynchronous client that submits many documents."""

from __future__ import annotations

from collections.abc import Mapping, Sequence

from leadhand.client.batch import requests
from leadhand.client.requests import Document
from leadhand.client.submit.async_environment_calls import AsyncEnvironmentCalls
from leadhand.client.submit.requests import fields_of
from leadhand.errors import LeadhandError
from leadhand.models.views.batch import BatchItemView, BatchView


class AsyncBatchCalls(AsyncEnvironmentCalls):
    """Submits many documents."""

    async def submit_many(
        self,
        documents: Sequence[Document],
        idempotency_keys: Sequence[str] | None = None,
        *,
        mode: requests.Mode = "all",
        env: Mapping[str, str] | None = None,
    ) -> list[BatchItemView]:
        """Start a session per document, 100 to a request; returns a session or problem for each.

        In the mode `all` a refused document refuses its whole request, and the requests before it
        stay; with `each` it is reported and the others start. The same keys with the same
        documents return the same sessions. A quota or label may refuse single items in both modes.
        Raises BatchStopped if a request fails after others had started sessions.
        """
        found: list[BatchItemView] = []
        items = await self._all_with_environment([fields_of(one) for one in documents], env)
        keys = requests.keys_of(items, idempotency_keys)
        for call in requests.submit_many(items, keys, mode):
            try:
                sent = await self._connection.transport.send(call)
                answer = sent.checked()
            except LeadhandError as error:
                if not found:
                    raise
                raise requests.batch_stopped(error, found, keys) from error
            view = BatchView.model_validate_json(answer.content)
            found += requests.numbered_items(view.items, len(found))
        return found
