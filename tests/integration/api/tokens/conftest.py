"""An engine with a secret, and a client of its API."""

from __future__ import annotations

from collections.abc import Iterator

import pytest
from flask.testing import FlaskClient

from api import create_app
from app.engine import Engine
from app.settings import Settings
from tests.integration.api.tokens.driving import SECRET
from tests.silent_engine import silent_engine


@pytest.fixture
def engine(store_url: str) -> Engine:
    return silent_engine(store_url, secret=SECRET)


@pytest.fixture
def client(engine: Engine) -> Iterator[FlaskClient]:
    app = create_app(Settings(api_token="the operator's", secret=SECRET), engine)
    yield app.test_client()
    app.fanout.close()
