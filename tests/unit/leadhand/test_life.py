"""When the supervisor may shut down; the locks are real, the sessions are scripted."""

from __future__ import annotations

import os
from collections.abc import Callable, Iterator
from pathlib import Path

import pytest

from leadhand.local import processes
from leadhand.local.supervisor import IdleShutdown
from leadhand.settings import ClientSettings


class Sessions:
    """Returns scripted answers in order; the last one repeats."""

    def __init__(self) -> None:
        self.live = [False]
        self.away = False
        self.on_look: Callable[[], None] = lambda: None

    def has_live_session(self) -> bool:
        self.on_look()
        if self.away:
            raise ConnectionError("away")
        return self.live.pop(0) if len(self.live) > 1 else self.live[0]


@pytest.fixture
def sessions() -> Sessions:
    return Sessions()


@pytest.fixture
def lock_file(tmp_path: Path) -> Path:
    return tmp_path / "commands.lock"


@pytest.fixture
def life(lock_file: Path, sessions: Sessions) -> Iterator[IdleShutdown]:
    life = IdleShutdown(processes.open_lock(lock_file), sessions, linger_s=10)
    yield life
    life.close()


@pytest.fixture
def command(lock_file: Path) -> Iterator[int]:
    lock = processes.open_lock(lock_file)
    yield lock
    os.close(lock)


def test_unused_life_is_over_after_it_lingered(life: IdleShutdown):
    assert [life.is_over(now_s) for now_s in (0.0, 9.9, 10.0)] == [False, False, True]


def test_command_at_work_keeps_it_alive_and_the_lingering_begins_anew(
    life: IdleShutdown, command: int
):
    assert not life.is_over(0.0)
    processes.share(command)
    assert not life.is_over(20.0)
    processes.free(command)
    assert [life.is_over(now_s) for now_s in (29.9, 30.0)] == [False, True]


def test_short_command_between_two_looks_starts_the_clock_anew(life: IdleShutdown, command: int):
    assert not life.is_over(0.0)
    processes.mark(command)
    assert [life.is_over(now_s) for now_s in (9.0, 18.9, 19.0)] == [False, False, True]


def test_command_that_came_and_went_in_the_last_moment_keeps_it_alive(
    life: IdleShutdown, sessions: Sessions, command: int
):
    life.is_over(0.0)
    sessions.on_look = lambda: processes.mark(command)
    assert not life.is_over(10.0)


def test_live_session_keeps_it_alive(life: IdleShutdown, sessions: Sessions):
    sessions.live = [True]
    assert [life.is_over(now_s) for now_s in (0.0, 100.0)] == [False, False]


def test_command_finds_the_door_shut_once_it_is_over(life: IdleShutdown, command: int):
    assert not life.is_over(0.0)
    assert processes.share(command)
    processes.free(command)
    assert life.is_over(10.0)
    assert not processes.share(command)


def test_session_that_came_in_the_last_moment_opens_the_door_again(
    life: IdleShutdown, sessions: Sessions, command: int
):
    life.is_over(0.0)
    sessions.live = [False, True]
    assert not life.is_over(10.0)
    assert processes.share(command)


def test_api_that_is_away_is_trusted_for_a_while_only(life: IdleShutdown, sessions: Sessions):
    sessions.away = True
    answers = [life.is_over(now_s) for now_s in (0.0, 59.0, 68.0, 69.0)]
    assert answers == [False, False, False, True]


@pytest.mark.parametrize(
    ("env", "seconds"), [({}, 1800), ({"LEADHAND_LINGER": ""}, 1800), ({"LEADHAND_LINGER": "0"}, 0)]
)
def test_services_stay_for_thirty_minutes_unless_a_variable_says_otherwise(
    env: dict[str, str], seconds: float
):
    assert ClientSettings.from_env(env).linger == seconds
