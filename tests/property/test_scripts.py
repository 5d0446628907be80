"""The transitions as Redis takes them."""

from __future__ import annotations

import pytest
import redis

from app.store_library import VERBS, library, script, text_of

#: How many more names the foundation has room for, at least.
SPARE = 3


@pytest.mark.parametrize("verb", VERBS)
def test_a_script_has_names_to_spare(redis_client: redis.Redis, verb: str) -> None:
    """Lua takes 200 local names a function, and 60 that come from around it."""
    redis_client.script_load(script(verb, with_spare_names))


def test_the_library_has_names_to_spare(redis_client: redis.Redis) -> None:
    redis_client.function_load(library(with_spare_names).text(0))


def with_spare_names(file: str) -> str:
    spare = "".join(f"local spare_{number}\n" for number in range(SPARE))
    return spare + text_of(file) if file == "_begin" else text_of(file)
