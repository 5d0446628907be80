"""Commands whose exit code is not that of the programs that they run."""

from __future__ import annotations

import pytest

from leadhand.models.pipelines import hidden_exit_code

HIDDEN = [
    ("false | tee log.txt", "that of tee"),
    ("pytest -q 2>&1 | tee log", "that of tee"),
    ("pytest | tail -5", "that of tail"),
    ("pytest -q|head", "that of head"),
    ("pytest | cat", "that of cat"),
    ("cd src && pytest | tee log", "that of tee"),
    ("pytest |& /usr/bin/tee log", "that of tee"),
    ("CI=1 pytest | sudo tee log", "that of tee"),
    ("pytest |\n  tail -5\n", "that of tail"),
    ("(pytest | tee log)", "that of tee"),
    ("{ pytest; } | tee log", "that of tee"),
    ("pytest || true", "leave out `|| true`"),
    ("pytest > log 2>&1 || true", "leave out `|| true`"),
    ("pytest &> log || :", "leave out `|| :`"),
    ("pytest || exit 0", "leave out `|| exit 0`"),
    ("pytest || echo bad >&2", "leave out `|| echo bad`"),
    ("pytest && echo ok || echo bad", "leave out `|| echo bad`"),
    ("pytest; true", "join the commands with &&"),
    ("pytest\necho done", "join the commands with &&"),
    ("if a; then b; fi; echo done", "join the commands with &&"),
    ("one=true", "a checker is named as in 'one: true'"),
    ("a=1 b=2; c=3", "only sets variables, so that it never fails"),
]
PLAIN = [
    *("true", "echo ok", "echo ok | tee log", "exit 0", "true && true", "", "'", "!"),
    *("pytest", "pytest && echo ok", "pytest && true", "cat x", "sort -c x", "pytest > log 2>&1"),
    *("pytest | grep -q passed", "pytest | tee log; test -s log", "test -s x || true; test -f y"),
    *("a || b && true", "a || { echo bad; exit 1; }", "a || (echo bad; exit 1)"),
    *("test x || exit 1; echo fine", "set -e; a; echo b", "set -euo pipefail; a | tee b"),
    *("bash -o pipefail -c 'a | tee b'", "a | tee b; exit ${PIPESTATUS[0]}", "echo 'a | tee b'"),
    *("for f in *; do test -f $f; done", "sleep 1 & wait", "lint=ruff check ."),
    *('out=$(git status --porcelain); test -z "$out"', "out=$(git status)", "x=`false`"),
]


@pytest.mark.parametrize(("command", "text"), HIDDEN)
def test_command_that_hides_an_exit_code_is_named_with_the_fix(command: str, text: str) -> None:
    assert text in (hidden_exit_code(command) or "")


@pytest.mark.parametrize("command", PLAIN)
def test_command_whose_exit_code_counts_gets_no_warning(command: str) -> None:
    assert hidden_exit_code(command) is None
