"""Suggested actions, as the page of a session and the command show them."""

from __future__ import annotations

from api.dashboard.buttons import suggested
from leadhand.cli.show import explanation
from leadhand.models.views.explain import ExplainView, SuggestedAction

RETRY = SuggestedAction(
    verb="retry", session="1a2b3c4d", address="a", why="it runs again",
    command="leadhand retry 1a2b3c4d a",
)  # fmt: skip
FORK = SuggestedAction(
    verb="fork", session="1a2b3c4d", arguments={"inputs": {"n": "x"}, "folder": "as-is"},
    why="write another value", command="leadhand fork 1a2b3c4d --set n=x --folder as-is",
)  # fmt: skip


def test_fork_whose_input_is_to_be_changed_has_no_button() -> None:
    shown = [suggested(one, control=True, submit=True) for one in (RETRY, FORK)]
    assert [button is not None for button in shown] == [True, False]


def test_each_suggested_command_is_printed_with_what_it_changes() -> None:
    view = ExplainView(
        session="1a2b3c4d", status="failed", text="it failed", actions=[RETRY, FORK],
        next=["leadhand show 1a2b3c4d", RETRY.command, FORK.command],
    )  # fmt: skip
    assert [*explanation(view)][-5:] == [
        "  leadhand show 1a2b3c4d",
        "  leadhand retry 1a2b3c4d a",
        "    it runs again",
        "  leadhand fork 1a2b3c4d --set n=x --folder as-is",
        "    write another value",
    ]
