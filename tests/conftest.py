"""What every test may ask for: a real server, emptied for each test that uses it."""

from __future__ import annotations

import os
from collections.abc import Generator, Iterator
from pathlib import Path

import kombu.pools
import pytest
import redis
from hypothesis import HealthCheck, settings

from leadhand.redis_server import RedisServer
from tests.real_agents import versions, why_missing


def pytest_terminal_summary(terminalreporter: pytest.TerminalReporter) -> None:
    """Say which real agents were run, or why none was."""
    ran = [
        report
        for word in ("passed", "failed")
        for report in terminalreporter.stats.get(word, [])
        if "test_real_agents" in report.nodeid
    ]
    if ran:
        terminalreporter.write_line(f"real agents: {versions()} were run in {len(ran)} tests")
    elif any("test_real_agents" in r.nodeid for r in terminalreporter.stats.get("skipped", [])):
        terminalreporter.write_line(f"real agents: none was run: {why_missing()}")


#: Coverage doubles what a test takes. These folders try the whole from the outside, and tests that
#: are marked `no_cover` the same lines a thousand times: other tests measure what they reach.
UNMEASURED = {"acceptance", "chaos", "contract", "deploy"}


def pytest_collection_modifyitems(items: list[pytest.Item]) -> None:
    """Leave those out of what is measured, and the planted faults."""
    for item in items:
        if item.path.parent.name in UNMEASURED or item.get_closest_marker("faults"):
            item.add_marker("no_cover")


@pytest.hookimpl(wrapper=True)
def pytest_runtest_protocol(item: pytest.Item) -> Generator[None, object, object]:
    """Let the processes of a test that is not measured not be measured either."""
    with pytest.MonkeyPatch.context() as patch:
        if item.get_closest_marker("no_cover"):
            for name in [name for name in os.environ if name.startswith("COVERAGE_")]:
                patch.delenv(name)
        return (yield)


#: A busy machine makes every example slow to draw, which says nothing of the test.
settings.register_profile(
    "busy machine", settings(), suppress_health_check=[HealthCheck.too_slow], deadline=None
)
settings.load_profile("busy machine")


@pytest.fixture(scope="session")
def redis_url(tmp_path_factory: pytest.TempPathFactory) -> Iterator[str]:
    """A server of this test process' own; what is in it belongs to whoever emptied it last."""
    with RedisServer(tmp_path_factory.mktemp("redis server") / ".leadhand") as server:
        yield server.url


@pytest.fixture
def store_url(redis_url: str) -> str:
    """The same server, with all of its databases empty; db 0 is the state's, db 1 the broker's."""
    return _emptied(redis_url)


@pytest.fixture(scope="module")
def module_store_url(redis_url: str) -> str:
    """The same for what a whole file shares: nothing of the file before it is left."""
    return _emptied(redis_url)


def _emptied(url: str) -> str:
    kombu.pools.reset()  # a connection of a test before may be broken: such pools are everybody's
    with redis.Redis.from_url(url) as client:
        client.flushall()
    return url


@pytest.fixture
def broker_url(store_url: str) -> str:
    return store_url.removesuffix("/0") + "/1"


@pytest.fixture
def redis_client(store_url: str) -> Iterator[redis.Redis]:
    """A client of the emptied server, answering text."""
    with redis.Redis.from_url(store_url, decode_responses=True) as client:
        yield client


@pytest.fixture
def home(tmp_path: Path) -> Path:
    """A state folder to be, in a folder with a space in its name."""
    folder = tmp_path / "working folder"
    folder.mkdir()
    return folder / ".leadhand"
