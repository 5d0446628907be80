"""The embedded server against real processes: durable, closed to others, and never an orphan."""

from __future__ import annotations

from pathlib import Path

import pytest
import redis

from leadhand.redis_server import RedisServer


@pytest.fixture
def server(home: Path):
    server = RedisServer(home)
    server.start()
    yield server
    server.stop()


def test_server_answers_its_url(server: RedisServer):
    with redis.Redis.from_url(server.url) as client:
        assert client.ping()
