"""Lists or imports the sessions of another store, for `leadhand import`.

An order comes as JSON by standard input, and the answer goes as JSON to standard output. The
environment has the settings of the services that get the sessions.
"""

from __future__ import annotations

import json
import sys
from pathlib import Path

from pydantic import BaseModel, JsonValue

from app.errors import LeadhandError
from app.operations.registry import Registry
from app.operations.submission.imports import ImportSessions, Origin
from app.settings import Settings
from app.store.store import Store, connect


class Order(BaseModel):
    """Where the sessions are, and which are imported; by default they are only listed."""

    redis_url: str
    secret: str
    #: The state folder, which has their files.
    folder: Path
    #: Whether this user created it here.
    is_own: bool
    sessions: list[str] | None = None


def main() -> None:
    """Read an order (JSON) from standard input, list or import sessions, and print the result.

    Exits with one line if a store does not answer.
    """
    try:
        order = Order.model_validate_json(sys.stdin.read())
        answer = carry_out(order, Settings.from_env())
    except LeadhandError as error:
        sys.exit(f"leadhand import: {error}")
    json.dump(answer, sys.stdout)


def carry_out(
    order: Order, settings: Settings
) -> list[dict[str, JsonValue]] | dict[str, JsonValue]:
    """Import the named sessions of another store and return each result; if none, list all."""
    given = settings.model_copy(update={"secret": order.secret, "secret_other": ""})
    old = Store(connect(order.redis_url), prefix=settings.prefix)
    store = Store(connect(str(settings.redis_url)), prefix=settings.prefix)
    try:
        origin = Origin(old, Registry(old, given), order.folder, order.is_own)
        imports = ImportSessions(origin, store, Registry(store, settings), settings)
        if order.sessions is None:
            return [found._asdict() for found in imports.found()]
        return {s: word for one in order.sessions for s, word in imports.import_tree(one).items()}
    finally:
        old.close()
        store.close()


if __name__ == "__main__":
    main()
