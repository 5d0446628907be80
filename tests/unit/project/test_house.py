"""scripts/house.py counts what it says."""

from __future__ import annotations

from app.redaction import without_keys
from scripts.house import ROOMS, Visit, crowded, measures, scattered, visits_of


def test_measures_of_files() -> None:
    files = {
        "app/a.py": '"""About rehome."""\n\nimport os\nfrom sys import (\n    path,\n)\n',
        "app/b.py": "def rehome_session():\n    return 1\n",
        "api/routes/c.py": 'ROUTE = "/v1/sessions/{session}/rehome"\n',
        "api/routes/d.py": "rehomed = 1\n",
        "app/e.lua": "-- rehome\n",
    }
    found = measures(files)
    assert (found["lines"], found["files"], found["folders"]) == ("11", "5", "2")
    assert found["import lines"] == "40.0%"
    assert found["files: rehome"] == "2"  # neither a docstring nor another word names it


def test_operation_that_is_named_in_five_files_is_reported() -> None:
    files = {f"api/{n}.py": "from c import sessions\nsessions.REHOME" for n in range(3)}
    files |= {"api/text.py": "X = 'sessions.rehome'"}
    assert list(scattered(files)) == []
    [found] = scattered({**files, "cli/more.py": "print('sessions.rehome')"})
    assert found.startswith("sessions.rehome is in 5 files: api/0.py, ")


def test_a_walk_counts_how_often_control_comes_to_a_module() -> None:
    _, visits = visits_of(lambda: [without_keys("a"), without_keys("b")])
    assert visits == [Visit("app.redaction", 1, 2)]


def test_a_submit_that_enters_too_many_rooms_is_reported() -> None:
    core = [Visit("app.core.program", 9, 9), Visit("app.settings", 1, 1)]  # everywhere: no rooms
    rooms = [Visit(f"app.room{number}", 1, 1) for number in range(ROOMS["loop"])]
    walks = {f"submit of a {kind}": [*core, *rooms] for kind in ROOMS}
    assert list(crowded(walks)) == []
    walks["submit of a loop"].append(Visit("app.another", 1, 1))
    [found] = crowded(walks)
    assert found.startswith(f"a submit of a loop enters {ROOMS['loop'] + 1} rooms")
