"""The synchronous client is generated, and a file that is out of date is noticed."""

from __future__ import annotations

import re
import shutil
from collections.abc import Callable
from pathlib import Path

import pytest

from scripts import client as script


@pytest.fixture
def folder(tmp_path: Path) -> Path:
    """A copy of the client's files."""
    for name in (*script.FILES, *script.FILES.values()):
        (tmp_path / name).parent.mkdir(exist_ok=True)
        shutil.copy(script.CLIENT / name, tmp_path / name)
    return tmp_path


def append_method(path: Path) -> None:
    with path.open("a") as file:
        file.write("\n    async def name(self) -> str:\n        return await self.other()\n")


def test_generated_files_are_up_to_date() -> None:
    assert script.find_old_files(script.CLIENT) == {}


@pytest.mark.parametrize(("source", "name"), script.FILES.items())
@pytest.mark.parametrize("change", ["source", "edit", "delete"])
def test_change_of_one_file_is_noticed(folder: Path, source: str, name: str, change: str) -> None:
    changes: dict[str, Callable[[], object]] = {
        "source": lambda: append_method(folder / source),
        "edit": lambda: (folder / name).write_text((folder / name).read_text() + "X = 1\n"),
        "delete": (folder / name).unlink,
    }
    changes[change]()
    assert [*script.find_old_files(folder)] == [name]


def test_check_names_the_old_file_and_writes_nothing(
    folder: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    append_method(folder / "async_client.py")
    before = (folder / "client.py").read_text()
    monkeypatch.setattr(script, "CLIENT", folder)
    monkeypatch.setattr("sys.argv", ["scripts/client.py", "--check"])
    assert script.main() == 1
    assert capsys.readouterr().out == "leadhand/client/client.py is out of date: run `make docs`\n"
    assert (folder / "client.py").read_text() == before

    monkeypatch.setattr("sys.argv", ["scripts/client.py"])
    assert script.main() == 0
    assert (
        "\n    def name(self) -> str:\n        return self.other()\n"
        in (folder / "client.py").read_text()
    )
    monkeypatch.setattr("sys.argv", ["scripts/client.py", "--check"])
    assert script.main() == 0


def test_asynchronous_code_without_a_substitution_is_refused(folder: Path) -> None:
    source = folder / "async_client.py"
    source.write_text(source.read_text() + "\ngather_async()\n")
    with pytest.raises(SystemExit, match=r"^async_client.py: .*'gather_async\(\)'"):
        script.generate(source)


def test_every_substitution_is_used() -> None:
    texts = [(script.CLIENT / source).read_text() for source in script.FILES]
    patterns = [pattern for pattern, _ in script.SUBSTITUTIONS]
    unused = [one for one in patterns if not any(re.search(one, text) for text in texts)]
    assert unused == []
