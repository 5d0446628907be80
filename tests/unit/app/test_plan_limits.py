"""The limits of plans, which the models and the Lua library both have."""

from __future__ import annotations

import re

from app.store.script_library import text_of
from leadhand.models.plans import MAX_TASKS


def test_lua_and_the_models_agree_on_the_most_tasks_of_a_plan() -> None:
    found = re.findall(r"MAX_TASKS = (\d+)", text_of("lib/plans/edits"))
    assert found == [str(MAX_TASKS)]
