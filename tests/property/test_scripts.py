"""The scripts as Redis takes them."""

from __future__ import annotations

import pytest
import redis

from app.store import VERBS, source

#: How many more names the foundation has room for, at least.
SPARE = 3


@pytest.mark.parametrize("verb", VERBS)
def test_a_script_has_names_to_spare(redis_client: redis.Redis, verb: str) -> None:
    """Lua takes 200 local names a function, and 60 that come from around it."""
    spare = "".join(f"local spare_{number}\n" for number in range(SPARE))
    redis_client.script_load(spare + source(verb))
