"""`[protect] paths` of leadhand.toml: those of the commit and of the folder count together."""

from __future__ import annotations

from pathlib import Path

import click
import pytest

from leadhand.cli.options import SessionSettings
from tests.unit.leadhand.cli.test_quarantine_file import git


def listed(folder: Path) -> list[object]:
    return [one["pattern"] for one in SessionSettings(str(folder)).read_protected()]


def test_file_only_adds_to_what_is_committed(tmp_path: Path) -> None:
    file = tmp_path / "leadhand.toml"
    assert listed(tmp_path) == []
    file.write_text('[protect]\npaths = ["tests/**", {pattern = "db/", allow = ["create"]}]\n')
    assert listed(tmp_path) == ["tests/**", "db/"]
    git(tmp_path, "init", "-q")
    git(tmp_path, "add", ".")
    git(tmp_path, "commit", "-qm", "one")
    file.write_text('[protect]\npaths = ["conftest.py", "tests/**"]\n')
    assert listed(tmp_path) == ["tests/**", "db/", "conftest.py"]
    file.unlink()
    assert listed(tmp_path) == ["tests/**", "db/"]


@pytest.mark.parametrize("pattern", ["/etc", "../x", "!a", ".git/config", "", "."])
def test_pattern_that_is_not_of_the_folder_is_named(tmp_path: Path, pattern: str) -> None:
    (tmp_path / "leadhand.toml").write_text(f'[protect]\npaths = ["{pattern}"]\n')
    with pytest.raises(click.ClickException) as raised:
        SessionSettings(str(tmp_path)).read_protected()
    assert "leadhand.toml: protect.paths.0" in str(raised.value)
