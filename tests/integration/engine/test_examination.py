"""A Redis that cannot be used is named at start and by doctor: rights, kind and settings."""

from __future__ import annotations

import json
import subprocess
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from functools import partial
from pathlib import Path
from typing import Any

import pytest
import redis
from kombu import Connection, Consumer

from api import create_app
from app.engine import Engine
from app.settings import Settings
from leadhand.cli.doctor import _store
from leadhand.cli.mcp_check import Finding
from leadhand.errors import StoreUnfit
from leadhand.local.processes import free_port
from leadhand.models.views.fleet import StoreView
from tasks.bootstrap import examine, make_engine
from tasks.celery_app import make_celery
from tasks.periodic import Examiner
from tests import redis_users, servers
from tests.acceptance.project import Project
from tests.integration.embedded.test_redis_addresses import started
from tests.waiting import wait_until


def engine_at(store: str, broker: str) -> Engine:
    engine, celery = make_engine(Settings(redis_url=store, broker_url=broker, secret="s"))
    celery.close()
    return engine


def why_unfit(engine: Engine) -> str:
    with pytest.raises(StoreUnfit) as caught:
        examine(engine, scans=True)
    return str(caught.value)


@pytest.fixture
def engine(redis_client: redis.Redis, redis_url: str) -> Iterator[Engine]:
    """An engine with the users of a fleet, whose rights a test may change."""
    users = redis_users.as_user(redis_url, "api"), redis_users.as_user(redis_url, "broker")
    engine = engine_at(*users)
    yield engine
    engine.store.close()
    redis_users.define(redis_url)


@contextmanager
def own_server(folder: Path, *options: str) -> Iterator[str]:
    """The URL of a server with these options."""
    port = free_port()
    program = [str(servers.chosen().path), "--port", str(port), "--save", "", *options]
    process = subprocess.Popen(program, cwd=folder, stdout=subprocess.DEVNULL)
    url = f"redis://127.0.0.1:{port}/0"
    try:
        with redis.Redis.from_url(url) as client:
            wait_until(lambda: answers(client), timeout=20)
        yield url
    finally:
        process.kill()
        process.wait()


def answers(client: redis.Redis) -> bool:
    try:
        return bool(client.ping())
    except redis.ConnectionError:
        return False


@pytest.mark.parametrize(
    ("user", "rules", "named"),
    [
        ("broker", ["-@pubsub"], "may not run PUBLISH, SUBSCRIBE;"),
        ("broker", ["resetchannels"], "commands with the channel /1.celery.pidbox*"),
        ("broker", ["resetkeys"], "commands with the key _kombu.leadhand.*"),
        ("api", ["-@transaction"], "may not run WATCH, UNWATCH, MULTI;"),
        ("api", ["-fcall", "-evalsha"], "may not run FCALL, EVALSHA;"),
        ("api", ["-@write"], "may not run SET, GETEX, PERSIST, EXPIRE"),
        ("api", ["-scan"], "may not run SCAN;"),
        ("api", ["-info"], "may not run INFO;"),
        ("api", ["resetkeys", "~other:*"], "commands with the key lh:*"),
    ],
)
def test_a_missing_right_is_named(
    engine: Engine, redis_client: redis.Redis, user: str, rules: list[str], named: str
) -> None:
    examine(engine, scans=True)  # the users of deploy/ have all rights
    redis_client.execute_command("ACL", "SETUSER", user, *rules)
    why = why_unfit(engine)
    setting = "LEADHAND_BROKER_URL" if user == "broker" else "LEADHAND_REDIS_URL"
    assert named in why
    assert setting in why
    assert "users.acl" in why
    assert redis_client.keys("*") == []


def test_a_right_that_is_taken_away_later_is_a_trouble(
    engine: Engine, redis_client: redis.Redis
) -> None:
    look = Examiner(engine)._look
    look()
    assert engine.troubles.current() == []
    redis_client.execute_command("ACL", "SETUSER", "broker", "-@pubsub")
    look()
    [trouble] = engine.troubles.current()
    assert "may not run PUBLISH, SUBSCRIBE" in trouble
    redis_client.execute_command("ACL", "SETUSER", "broker", "+@pubsub")
    look()
    assert engine.troubles.current() == []


def test_consumers_of_the_channels_ignore_an_examination(
    engine: Engine, broker_url: str, caplog: pytest.LogCaptureFixture
) -> None:
    received: list[object] = []
    with make_celery(Settings(broker_url=broker_url)) as celery, celery.connection() as link:
        channel = link.default_channel
        control: Any = celery.control  # its stubs lack the mailbox
        note = control.mailbox.Node("one", channel=channel).listen(
            callback=lambda body, _message: received.append(body)
        )
        events = celery.events.Receiver(channel, handlers={"*": received.append})
        [heard] = events.get_consumers(partial(Consumer, channel), channel)
        heard.consume()
        drained(link)  # it subscribes
        examine(engine)
        drained(link)
        assert received == []
        celery.control.broadcast("ping")
        wait_until(lambda: drained(link) and received != [])
        note.cancel()
        heard.cancel()
    logged = [record for record in caplog.records if record.name.startswith(("celery", "kombu"))]
    assert [record.getMessage() for record in logged if record.levelname != "DEBUG"] == []


def drained(link: Connection) -> bool:
    """Receives what there is."""
    with suppress(TimeoutError):
        link.drain_events(timeout=0.3)
    return True


@pytest.mark.parametrize(
    ("options", "named"),
    [
        (["--maxmemory-policy", "allkeys-lru"], "its maxmemory-policy is allkeys-lru"),
        (["--replicaof", "127.0.0.1", "1"], "it is a read-only replica"),
        (["--cluster-enabled", "yes"], "it is a Redis Cluster"),
        (
            ["--rename-command", "FCALL", "", "--rename-command", "EVALSHA", ""],
            "may not run FCALL, EVALSHA;",
        ),
    ],
)
def test_a_server_that_cannot_hold_the_state_is_named(
    tmp_path: Path, options: list[str], named: str
) -> None:
    with own_server(tmp_path, *options) as url:
        engine = engine_at(url, url)
        assert named in why_unfit(engine)
        engine.store.close()


def test_a_server_without_persistence_is_a_warning(tmp_path: Path) -> None:
    with own_server(tmp_path) as url:
        engine = engine_at(url, url)
        [warning] = examine(engine)
        assert warning == (
            "Redis may lose data: it writes no append-only file: what was answered after its last"
            " snapshot, if it takes any, is lost when it crashes; set appendonly yes"
        )
        app = create_app(Settings(api_token="token", secret="s"), engine)
        shown = app.test_client().get("/v1/store", headers={"Authorization": "Bearer token"})
        assert json.loads(shown.data)["warnings"] == [warning]
        [_, found] = _store(StoreView.model_validate_json(shown.data))
        assert found == Finding("warn", "redis", warning)
        app.fanout.close()
        engine.store.close()


def test_a_server_that_writes_an_append_only_file_is_no_warning(tmp_path: Path) -> None:
    with own_server(tmp_path, "--appendonly", "yes") as url:
        engine = engine_at(url, url)
        assert examine(engine) == ()
        engine.store.close()


@pytest.mark.parametrize("module", ["api", "workers"])
def test_what_is_unfit_is_refused_at_start_in_one_sentence(
    tmp_path: Path, redis_url: str, redis_client: redis.Redis, module: str
) -> None:
    redis_client.config_set("maxmemory-policy", "volatile-lru")
    try:
        ended = started(tmp_path, module, LEADHAND_REDIS_URL=redis_url)
    finally:
        redis_client.config_set("maxmemory-policy", "noeviction")
    assert ended.returncode == 1
    assert "set maxmemory-policy noeviction" in ended.stderr
    assert "Traceback" not in ended.stderr


@pytest.mark.parametrize(
    ("policy", "schema", "why"),
    [
        ("allkeys-lfu", "1", "its maxmemory-policy is allkeys-lfu"),
        ("noeviction", "2", "the store in Redis has schema 2"),
    ],
)
def test_services_that_refuse_to_start_are_started_once(
    tmp_path: Path, policy: str, schema: str, why: str
) -> None:
    with own_server(tmp_path, "--maxmemory-policy", policy) as url:
        with redis.Redis.from_url(url) as client:
            client.mset({"lh:store": "0" * 32, "lh:store-schema": schema})
        project = Project(tmp_path / "project", LEADHAND_REDIS_URL=url)
        try:
            ended = project.leadhand("doctor", timeout=60)
        finally:
            project.close()
    [line] = [line for line in ended.out.splitlines() if why in line]
    assert line.count("did not start") == 1
    assert ended.code == 1
    assert "Traceback" not in ended.out + ended.err
    log = (project.state / "log" / "supervisor.log").read_text()
    assert "is restarted\n" not in log
