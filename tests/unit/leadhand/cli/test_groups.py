"""The help of the groups of commands."""

from __future__ import annotations

import click
import pytest
from click.testing import CliRunner

from leadhand.cli import cli

GROUPS = [
    name
    for name in cli.list_commands(click.Context(cli))
    if isinstance(cli.get_command(click.Context(cli), name), click.Group)
]


@pytest.mark.parametrize("name", GROUPS)
def test_help_of_a_group_shows_whole_sentences(name: str) -> None:
    shown = CliRunner().invoke(cli, [name, "--help"]).output
    commands = shown[shown.index("Commands:") :]
    assert "..." not in commands, commands
