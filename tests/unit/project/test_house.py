"""scripts/house.py counts what it says."""

from __future__ import annotations

from scripts.house import measures, scattered


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
