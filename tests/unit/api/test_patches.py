"""The files of a diff: what a file contains is no head of another one."""

from __future__ import annotations

import pytest

from api.dashboard.patches import files_of

HEAD = "diff --git a/x b/x\n--- a/x\n+++ b/x\n"


@pytest.mark.parametrize("end", "\x0b\x0c\x1c\x1d\x1e\x85\u2028\u2029\r")
def test_line_ends_inside_a_line_start_no_file(end):
    patch = HEAD + f"@@ -1 +1 @@\n-old\n+new{end}diff --git a/y b/y{end}+++ b/y\n"
    assert [(one.name, one.added, one.removed) for one in files_of(patch)] == [("x", 1, 1)]


def test_only_lines_of_hunks_are_counted():
    patch = HEAD + "@@ -1,2 +1,2 @@\n--- old\n+++ b/forged\n-x\n"
    assert [(one.name, one.added, one.removed) for one in files_of(patch)] == [("x", 1, 2)]
