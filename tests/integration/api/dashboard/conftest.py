"""A browser of the dashboard, without its scripts."""

from __future__ import annotations

from collections.abc import Iterator

import pytest
from flask.testing import FlaskClient

from api import create_app
from api.serving import Api
from app.engine import Engine
from app.settings import Settings
from tests.silent_engine import OPERATOR, SECRET, silent_engine

#: What a browser sends with a form of the page itself.
SAME = {"Sec-Fetch-Site": "same-origin"}
#: The same for htmx.
HTMX = {**SAME, "HX-Request": "true"}


@pytest.fixture
def engine(store_url: str) -> Engine:
    return silent_engine(store_url, secret=SECRET)


@pytest.fixture
def app(engine: Engine) -> Iterator[Api]:
    made = create_app(Settings(api_token=OPERATOR, secret=SECRET), engine)
    yield made
    made.fanout.close()


@pytest.fixture
def stranger(app: Api) -> FlaskClient:
    """A browser that is not signed in."""
    return app.test_client()


@pytest.fixture
def browser(app: Api) -> FlaskClient:
    """A browser that is signed in as the operator."""
    return sign_in(app, OPERATOR)


def sign_in(app: Api, token: str) -> FlaskClient:
    client = app.test_client()
    answer = client.post("/ui/sign-in", data={"token": token}, headers=SAME)
    assert answer.status_code == 303, answer.text
    return client
