"""The transitions as Redis takes them."""

from __future__ import annotations

import pytest
import redis

from app.store.script_library import VERBS, Verb, library, script, text_of


@pytest.mark.parametrize("verb", VERBS)
def test_a_server_takes_each_script(redis_client: redis.Redis, verb: Verb) -> None:
    redis_client.script_load(script(verb))


def test_a_server_takes_the_library(redis_client: redis.Redis) -> None:
    def another_version(file: str) -> str:
        return f"-- not loaded yet\n{text_of(file)}"

    redis_client.function_load(library(another_version).text(0))


@pytest.mark.parametrize("part", ["nothing", "leases"])
def test_a_part_of_a_session_that_does_not_exist_is_an_error(
    redis_client: redis.Redis, part: str
) -> None:
    text = script("limit").replace("tx.shared.limits", f"tx.keys.{part}", 1)
    with pytest.raises(redis.ResponseError, match=f"no key has the part {part}"):
        redis_client.eval(text, 3, "s:", "p", "g:", "1", '{"key": "k"}', "", "")
