"""The API description is complete and readable, and the served API conforms to it."""

from __future__ import annotations

import html
import json
import re
import subprocess
import sys
from collections.abc import Iterator
from contextlib import contextmanager
from html.parser import HTMLParser
from pathlib import Path
from typing import Any

import httpx2
import pytest

from api import create_app
from api.openapi import build_document
from api.serving import Api
from app.settings import Settings
from leadhand.models.documents import LoopDocument
from leadhand.models.problems import Problem
from tests.effort import few_or_all
from tests.integration.api.test_api_process import TOKEN, running
from tests.silent_engine import engine_without_store

HERE = Path(__file__).parent
#: The description has at least as many operations.
OPERATIONS = 20
#: How long requests may be made up; `make fuzz` makes up many.
LONG_S = 1800
SCHEMATHESIS = "from schemathesis.cli import schemathesis; schemathesis()"


@pytest.fixture(scope="module")
def flask() -> Api:
    """An API that describes itself, for which it needs no store."""
    return create_app(Settings(api_token=TOKEN, secret="s"), engine_without_store())


@pytest.fixture(scope="module")
def told() -> dict[str, Any]:
    """The description, built once: that takes seconds."""
    return build_document()


def test_every_route_is_told_of(told):
    operations = [one for methods in told["paths"].values() for one in methods.values()]
    assert len(operations) > OPERATIONS
    assert len({one["operationId"] for one in operations}) == len(operations)


def test_every_reference_leads_somewhere(told):
    found = set(re.findall(r"#/components/schemas/([\w-]+)", str(told)))
    assert found <= told["components"]["schemas"].keys()


def test_every_refusal_is_a_problem(told):
    for methods in told["paths"].values():
        for one in methods.values():
            for status, said in one["responses"].items():
                if int(status) >= 400:
                    assert list(said["content"]) == ["application/problem+json"], one
    assert (
        told["components"]["schemas"]["Problem"]["properties"].keys() == Problem.model_fields.keys()
    )


def test_the_document_is_served_to_anybody(flask):
    answer = flask.test_client().get("/openapi.json")
    assert (answer.status_code, answer.json["openapi"]) == (200, "3.1.0")


class Page(HTMLParser):
    """What a page holds."""

    def __init__(self, text: str) -> None:
        super().__init__()
        self.tags: list[str] = []
        self.ids: set[str] = set()
        self.links: set[str] = set()
        self.feed(text)

    def handle_starttag(self, tag: str, attrs: list[tuple[str, str | None]]) -> None:
        self.tags.append(tag)
        for name, value in attrs:
            assert not name.startswith("on"), name
            assert name != "style", "the policy lets no inline style by"
            if name == "id":
                self.ids.add(str(value))
            if name in ("href", "src"):
                self.links.add(str(value))


def test_the_page_holds_every_operation_and_needs_nothing_from_elsewhere(flask, told):
    answer = flask.test_client().get("/docs")
    page = Page(answer.text)
    policy = answer.headers["Content-Security-Policy"]
    assert "default-src 'none'" in policy
    assert "unsafe" not in policy
    assert not {"script", "link", "img", "iframe"} & set(page.tags)
    assert {one["operationId"] for m in told["paths"].values() for one in m.values()} <= page.ids
    inner = {link.removeprefix("#") for link in page.links if link.startswith("#")}
    assert inner <= page.ids
    assert page.links - {f"#{one}" for one in inner} == {"openapi.json"}


def test_the_page_renders_markdown_groups_by_noun_and_shows_bodies(flask, told):
    text = flask.test_client().get("/docs").text
    outside_code = re.sub(r"<pre>.*?</pre>|<style>.*?</style>", "", text, flags=re.DOTALL)
    assert "`" not in outside_code
    assert "Needs the scope <code>submit</code>." in text
    nouns = {one["tags"][0] for m in told["paths"].values() for one in m.values()}
    assert re.findall(r"<h3>(\w+)</h3>", text) == sorted(noun.capitalize() for noun in nouns)
    bodies = [
        json.loads(html.unescape(one))
        for one in re.findall(r"<pre><code>(.*?)</code>", text, re.DOTALL)
    ]
    assert len(bodies) == sum(
        "requestBody" in one for m in told["paths"].values() for one in m.values()
    )
    [loop] = [b for b in bodies if isinstance(b, dict) and b.get("kind") == "loop"]
    LoopDocument.model_validate(loop)


#: The phase that sends each value at its limits takes four fifths of the time.
FEW = ["--max-examples", "1", "--phases", "examples,fuzzing"]


@pytest.fixture(params=few_or_all(FEW, ["--max-examples", "7"]))
def effort(request: pytest.FixtureRequest) -> list[str]:
    """The same few requests each time, unless `make fuzz` asks for others."""
    seed = request.config.getoption("--api-seed", default=None)
    if seed is None:
        return [*request.param, "--generation-deterministic"]
    asked = request.config.getoption
    # Values at their limits are the same for each seed: the slow test has them.
    paths = ["--include-path-regex", asked("--api-paths"), "--phases", "fuzzing,stateful"]
    return [*paths, "--max-examples", asked("--api-examples"), "--seed", seed]


@contextmanager
def served(folder: Path, store_url: str, broker_url: str) -> Iterator[str]:
    """An API of its own, in whose log stands no traceback in the end."""
    work = folder / "api"
    work.mkdir()
    with running(work, store_url, LEADHAND_BROKER_URL=broker_url) as url:
        yield url
        log = (work / "log").read_text()
    assert "Traceback" not in log, log[-4000:]


def probe(url: str, token: str, folder: Path, options: list[str]) -> str:
    """What schemathesis says of an API that answers as it describes itself to this token."""
    found = subprocess.run(
        [
            *(sys.executable, "-P", "-c", SCHEMATHESIS),
            *("--config-file", str(HERE / "schemathesis.toml")),
            *("run", f"{url}/openapi.json", "--checks", "all", "--no-color", *options),
            *("--header", f"Authorization: Bearer {token}", "--request-timeout", "10"),
        ],
        cwd=folder, capture_output=True, text=True, check=False,
    )  # fmt: skip
    assert found.returncode == 0, found.stdout[-8000:] + found.stderr[-2000:]
    return found.stdout


@pytest.mark.timeout(LONG_S)
def test_the_served_api_answers_as_it_is_described(tmp_path, store_url, broker_url, effort):
    with served(tmp_path, store_url, broker_url) as url:
        probe(url, TOKEN, tmp_path, effort)


@pytest.mark.timeout(LONG_S)
@pytest.mark.slow
def test_it_does_so_to_a_token_that_may_only_read(tmp_path, store_url, broker_url, effort):
    with served(tmp_path, store_url, broker_url) as url, httpx2.Client(trust_env=False) as client:
        made = client.post(
            f"{url}/v1/tokens",
            json={"name": "reader", "scopes": ["read"]},
            headers={"Authorization": f"Bearer {TOKEN}"},
        ).json()
        probe(url, made["token"], tmp_path, [*effort, "--phases", "fuzzing"])
        left = client.get(f"{url}/v1/sessions", headers={"Authorization": f"Bearer {TOKEN}"})
        assert left.json()["items"] == [], "a reader began something"
