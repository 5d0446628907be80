"""`leadhand worker` and `leadhand api`: run a service of a fleet in place of this process."""

from __future__ import annotations

import os
from typing import NoReturn

import click


@click.command("worker")
@click.option("--concurrency", type=click.IntRange(1, 256), help="Attempts at once (4).")
@click.option("--place", metavar="NAME", help="The worker's place (local).")
@click.option("--name", metavar="NAME", help="The worker's name (HOST-PID).")
def worker_command(*, concurrency: int | None, place: str | None, name: str | None) -> int:
    """Run a worker of a fleet, on the Redis of LEADHAND_REDIS_URL."""
    _become(
        "worker",
        LEADHAND_CONCURRENCY=concurrency,
        LEADHAND_PLACE=place,
        LEADHAND_WORKER_NAME=name,
    )


@click.command("api")
@click.option("--bind", metavar="HOST:PORT", help="The address to listen on (127.0.0.1:8765).")
def api_command(*, bind: str | None) -> int:
    """Run the API of a fleet, on the Redis of LEADHAND_REDIS_URL.

    LEADHAND_API_TOKEN is the bearer token that it accepts.
    """
    _become("api", LEADHAND_API_BIND=bind)


def _become(service: str, **settings: str | int | None) -> NoReturn:
    from leadhand.local.python_module import only_ours, service_command
    from leadhand.settings import environment

    env = environment()
    if not env.get("LEADHAND_REDIS_URL"):
        raise click.ClickException(
            "LEADHAND_REDIS_URL is not set: name the Redis of the fleet, such as"
            " redis://:password@host:6379/0; `leadhand up` runs everything here without one"
        )
    given = {name: str(value) for name, value in settings.items() if value is not None}
    command = service_command(service, env)
    os.execve(command[0], command, only_ours(env) | given)  # noqa: S606 - an argv, no shell
