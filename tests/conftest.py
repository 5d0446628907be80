"""What every test may ask for: a real server, emptied for each test that uses it."""

from __future__ import annotations

import gc
import os
import shutil
import tempfile
from collections.abc import Callable, Generator, Iterator
from functools import cache
from pathlib import Path

import kombu.pools
import pytest
import redis
from hypothesis import HealthCheck, settings

from leadhand.local.redis_server import RedisServer
from tests import redis_users, servers
from tests.long_first import long_first
from tests.real_agents import versions, why_missing
from tests.redis_users import User


def pytest_addoption(parser: pytest.Parser) -> None:
    parser.addoption("--redis-server", help="run on this server program, not on the packaged one")
    parser.addoption("--acl", action="store_true", help="engines and services as users of a fleet")
    parser.addoption("--screenshots", metavar="DIR", help="write those of the dashboard here")


def pytest_configure(config: pytest.Config) -> None:
    """Pin the server for this process and for all that it starts."""
    if servers.is_pinned():  # by the process that started this worker of xdist
        return
    named = config.getoption("--redis-server")
    program = servers.identify(Path(named)) if named else servers.packaged()
    folder = servers.pin(program)
    config.add_cleanup(lambda: shutil.rmtree(folder))


def pytest_report_header() -> str:
    return f"server: {servers.describe(servers.chosen())}"


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


TESTS = Path(__file__).resolve().parent
#: Coverage doubles what a test takes. These folders try the whole from the outside, and tests that
#: are marked `no_cover` the same lines a thousand times: other tests measure what they reach.
UNMEASURED = (
    "acceptance", "chaos", "contract", "deploy", "fundamentals", "integration/client",
    "integration/embedded", "model", "unit/leadhand", "unit/project",
)  # fmt: skip


#: Tests that are marked slow: by file and name, of one parameter or of all.
NIGHTLY = frozenset((TESTS / "nightly.txt").read_text().splitlines())


def is_nightly(item: pytest.Item) -> bool:
    """Whether a test is left out of `make test`."""
    name = item.nodeid.removeprefix("tests/")
    return name in NIGHTLY or name.partition("[")[0] in NIGHTLY


@cache
def is_unmeasured(path: Path) -> bool:
    """Whether coverage leaves out the tests of this file."""
    folder = path.relative_to(TESTS).parent if path.is_relative_to(TESTS) else Path()
    return any(folder.is_relative_to(name) for name in UNMEASURED)


@pytest.hookimpl(wrapper=True, tryfirst=True)
def pytest_collection_modifyitems(items: list[pytest.Item]) -> Generator[None]:
    """Mark tests before -m selects them: unmeasured, nightly, those of servers. Then order them."""
    for item in items:
        if servers.is_marked(item.path):
            item.add_marker("server")
        if is_nightly(item):
            item.add_marker("slow")
        if is_unmeasured(item.path) or item.get_closest_marker("faults"):
            item.add_marker("no_cover")
    yield
    items[:] = long_first(items, int(os.environ.get("PYTEST_XDIST_WORKER_COUNT", "1")))


@pytest.hookimpl(wrapper=True)
def pytest_collection() -> Generator[None, object, object]:
    """Collect no garbage meanwhile, and afterwards only what the tests make.

    What is imported and collected stays to the end: each collection of garbage would walk it all.
    """
    gc.disable()
    try:
        return (yield)
    finally:
        gc.freeze()
        gc.enable()


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


@pytest.fixture(scope="session", autouse=True)
def user_state(tmp_path_factory: pytest.TempPathFactory) -> Iterator[None]:
    """Keep the state and the settings of the user who runs the tests out of every test."""
    with pytest.MonkeyPatch.context() as patch:
        patch.setenv("XDG_STATE_HOME", str(tmp_path_factory.mktemp("user state")))
        patch.setenv("XDG_CONFIG_HOME", str(tmp_path_factory.mktemp("user config")))
        patch.delenv("LEADHAND_HOME", raising=False)
        yield


@pytest.fixture(scope="session")
def redis_url(user_state: None, tmp_path_factory: pytest.TempPathFactory) -> Iterator[str]:
    """A server for this test process, for a user with all rights; fixtures empty it before use."""
    home = tmp_path_factory.mktemp("redis server") / ".leadhand"
    with RedisServer(home, program=servers.chosen()) as server:
        redis_users.define(server.url)
        yield server.url


@pytest.fixture(scope="session")
def as_user(request: pytest.FixtureRequest) -> Callable[[str, User], str]:
    """Returns the URL of the server for a user of a fleet; without --acl, for the one of all."""
    with_acl = bool(request.config.getoption("--acl"))
    return redis_users.as_user if with_acl else redis_users.in_database


@pytest.fixture
def store_url(redis_url: str, as_user: Callable[[str, User], str]) -> str:
    """The same server, with all of its databases empty, for the API of a fleet."""
    return as_user(_emptied(redis_url), "api")


@pytest.fixture(scope="module")
def module_store_url(redis_url: str, as_user: Callable[[str, User], str]) -> str:
    """The same server, emptied once per test module."""
    return as_user(_emptied(redis_url), "api")


#: Where API and workers that tests start remember their stores.
STATE = Path(tempfile.mkdtemp(prefix="leadhand-tests-"))
os.environ["LEADHAND_STATE_DIR"] = str(STATE)


def pytest_unconfigure() -> None:
    """Leave nothing in the temporary folder."""
    shutil.rmtree(STATE, ignore_errors=True)


def _emptied(url: str) -> str:
    default = Path(os.environ["XDG_STATE_HOME"], "leadhand", "fleet")
    for folder in (STATE, default):  # the next test's store is a new one
        for file in folder.glob("store-*"):
            file.unlink()
    kombu.pools.reset()  # a connection of a test before may be broken: such pools are everybody's
    with redis.Redis.from_url(url) as client:
        client.flushall()
    return url


@pytest.fixture
def broker_url(store_url: str, redis_url: str, as_user: Callable[[str, User], str]) -> str:
    """The same server's database of messages, for the broker's user."""
    return as_user(redis_url, "broker")


@pytest.fixture
def redis_client(store_url: str, redis_url: str) -> Iterator[redis.Redis]:
    """A client of the emptied server with all rights, answering text."""
    with redis.Redis.from_url(redis_url, decode_responses=True) as client:
        yield client


@pytest.fixture
def broker_client(broker_url: str, redis_url: str) -> Iterator[redis.Redis]:
    """A client of the emptied database of messages with all rights, answering text."""
    url = redis_users.in_database(redis_url, "broker")
    with redis.Redis.from_url(url, decode_responses=True) as client:
        yield client


@pytest.fixture
def home(tmp_path: Path) -> Path:
    """A state folder to be, in a folder with a space in its name."""
    folder = tmp_path / "working folder"
    folder.mkdir()
    return folder / ".leadhand"
