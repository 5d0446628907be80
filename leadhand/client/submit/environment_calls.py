# Generated from async_environment_calls.py by scripts/client.py: do not edit.
"""The environment that the synchronous client sends with a new session."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

from leadhand.client import requests as calls
from leadhand.client.connection import Connection
from leadhand.client.origin import STEP_TOKEN
from leadhand.errors import Refused
from leadhand.models.views import AgentView

#: Sentences that this process has said; each is said once.
_SAID: set[str] = set()


class EnvironmentCalls:
    """Adds the environment of the calling process to requests that start sessions."""

    _connection: Connection

    def _with_environment(
        self, fields: Mapping[str, Any], env: Mapping[str, str] | None
    ) -> dict[str, Any]:
        """The fields of a request, with `env`, and for embedded services with `shell_env`."""
        return (self._all_with_environment([fields], env))[0]

    def _all_with_environment(
        self, requests: Sequence[Mapping[str, Any]], env: Mapping[str, str] | None
    ) -> list[dict[str, Any]]:
        """The fields of several requests, as of `_with_environment`."""
        reach = self._connection.transport.reach
        here = reach.here
        is_body = reach.token.startswith(STEP_TOKEN)
        agents = self._agents_there() if here.asks_for_agents(is_body=is_body) else []
        found = []
        for fields in requests:
            more = here.fields(fields, env, agents)
            found.append({**fields, **more})
            for text in here.notices(fields, more.get("env", {}), agents):
                if reach.say is not None and text not in _SAID:
                    _SAID.add(text)
                    reach.say(text)
        return found

    def _agents_there(self) -> list[AgentView]:
        ask = calls.agents()
        try:
            return ask.read(self._connection.transport.send(ask.call))
        except Refused:  # the token may not read them
            return []
