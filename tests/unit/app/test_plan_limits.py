"""The limits of plans, which the models and the Lua library both have."""

from __future__ import annotations

import re
from collections.abc import Iterator

from app.plans.tasks import TaskRecord, statuses_of
from app.store.script_library import text_of
from leadhand.models.plans import MAX_TASKS


def test_lua_and_the_models_agree_on_the_most_tasks_of_a_plan() -> None:
    found = re.findall(r"MAX_TASKS = (\d+)", text_of("lib/plans/edits"))
    assert found == [str(MAX_TASKS)]


class Read(tuple[str, ...]):
    """Dependencies that count how often they are read."""

    times = 0

    def __iter__(self) -> Iterator[str]:
        Read.times += 1
        return super().__iter__()


def test_statuses_of_a_plan_read_the_dependencies_of_each_task_once() -> None:
    records = [
        TaskRecord.model_construct(
            id=f"t{n}", at=n, state="waiting", deps=Read(f"t{m}" for m in range(n))
        )
        for n in range(50)
    ]
    assert set(statuses_of(records).values()) == {"pending"}
    failed = TaskRecord.model_construct(id="t0", at=0, state="done", fact="failed", deps=Read())
    statuses = statuses_of([failed, *records[1:]])
    assert [*statuses.values()] == ["failed", *["blocked"] * 49]
    assert Read.times == 2 * len(records)
