"""The API in the process of the test, on an engine that no worker serves."""

from __future__ import annotations

from collections.abc import Iterator

import pytest
from flask.testing import FlaskClient

from api import create_app
from app.engine import Engine
from app.settings import Settings
from tests.silent_engine import OPERATOR, SECRET, silent_engine


@pytest.fixture
def engine(store_url: str) -> Engine:
    return silent_engine(store_url, secret=SECRET)


@pytest.fixture
def client(engine: Engine) -> Iterator[FlaskClient]:
    """A client without a token of its own."""
    app = create_app(Settings(api_token=OPERATOR, secret=SECRET), engine)
    yield app.test_client()
    app.fanout.close()
