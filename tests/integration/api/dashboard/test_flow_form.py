"""The form that runs a flow."""

from __future__ import annotations

import json

from api import create_app
from app.settings import Settings
from tests.flows import llm
from tests.integration.api.dashboard.conftest import HTMX, sign_in
from tests.silent_engine import OPERATOR, SECRET, silent_engine


def test_relative_folder_is_refused_by_its_field(store_url, tmp_path):
    (tmp_path / "review.json").write_text(json.dumps({"steps": [llm("write")]}))
    engine = silent_engine(store_url, secret=SECRET, flows=(tmp_path,))
    app = create_app(Settings(api_token=OPERATOR, secret=SECRET), engine)
    sent = {"folder": "relative"}
    answer = sign_in(app, OPERATOR).post("/ui/flows/review/runs", data=sent, headers=HTMX)
    assert answer.status_code == 422, answer.text
    assert "working_folder" in answer.text
    app.fanout.close()
