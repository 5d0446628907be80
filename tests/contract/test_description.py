"""The API's description: whole, readable, and what the served API answers to."""

from __future__ import annotations

import re
import subprocess
import sys
from html.parser import HTMLParser
from pathlib import Path

import pytest

from api import create_app
from api.application import Api
from api.openapi import described
from app.settings import Settings
from leadhand.problems import Problem
from tests.integration.test_api_process import TOKEN, running
from tests.memory_engine import MemoryEngine

HERE = Path(__file__).parent
#: As many at least are told of.
OPERATIONS = 20
SCHEMATHESIS = "from schemathesis.cli import schemathesis; schemathesis()"


@pytest.fixture
def flask() -> Api:
    return create_app(Settings(api_token=TOKEN, secret="s"), MemoryEngine())


def test_every_route_is_told_of(flask):
    told = described(flask)
    operations = [one for methods in told["paths"].values() for one in methods.values()]
    assert len(operations) > OPERATIONS
    assert len({one["operationId"] for one in operations}) == len(operations)


def test_a_route_that_nobody_told_of_is_noticed(flask):
    flask.add_url_rule("/v1/surprise", "surprise", view_func=lambda: "")
    with pytest.raises(LookupError, match="surprise"):
        described(flask)


def test_every_reference_leads_somewhere(flask):
    told = described(flask)
    found = set(re.findall(r"#/components/schemas/([\w-]+)", str(told)))
    assert found <= told["components"]["schemas"].keys()


def test_every_refusal_is_a_problem(flask):
    told = described(flask)
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


def test_the_page_holds_every_operation_and_needs_nothing_from_elsewhere(flask):
    answer = flask.test_client().get("/docs")
    page = Page(answer.text)
    policy = answer.headers["Content-Security-Policy"]
    assert "default-src 'none'" in policy
    assert "unsafe" not in policy
    assert not {"script", "link", "img", "iframe"} & set(page.tags)
    told = described(flask)
    assert {one["operationId"] for m in told["paths"].values() for one in m.values()} <= page.ids
    inner = {link.removeprefix("#") for link in page.links if link.startswith("#")}
    assert inner <= page.ids
    assert page.links - {f"#{one}" for one in inner} == {"openapi.json"}


@pytest.mark.timeout(240)
def test_the_served_api_answers_as_it_is_described(tmp_path, store_url, broker_url):
    work = tmp_path / "api"
    work.mkdir()
    with running(work, store_url, LEADHAND_BROKER_URL=broker_url) as url:
        found = subprocess.run(
            [
                *(sys.executable, "-P", "-c", SCHEMATHESIS),
                *("--config-file", str(HERE / "schemathesis.toml")),
                *("run", f"{url}/openapi.json", "--checks", "all", "--max-examples", "7"),
                *("--header", f"Authorization: Bearer {TOKEN}", "--request-timeout", "10"),
                *("--generation-deterministic", "--no-color"),
            ],
            cwd=tmp_path, capture_output=True, text=True, timeout=220, check=False,
        )  # fmt: skip
        log = (work / "log").read_text()
    assert found.returncode == 0, found.stdout[-8000:] + found.stderr[-2000:]
    assert "Traceback" not in log, log[-4000:]
