"""Counts of tests from the output of go test, cargo test, node's runner and TAP."""

from __future__ import annotations

import pytest

from workers.checkers.reports import read_output

GO_V = """\
=== RUN   TestA
--- PASS: TestA (0.00s)
=== RUN   TestB
=== RUN   TestB/sub
--- FAIL: TestB (0.00s)
    --- FAIL: TestB/sub (0.00s)
=== RUN   TestC
--- SKIP: TestC (0.00s)
FAIL
FAIL\tapp/x\t0.003s
?   \tapp/z\t[no test files]
"""
GO = """\
ok  \tapp/y\t(cached)
ok  \tapp/n\t0.1s [no tests to run]
--- FAIL: TestB (0.00s)
    b_test.go:5: no
FAIL
FAIL\tapp/x\t0.003s
FAIL\tapp/b [build failed]
?   \tapp/z\t[no test files]
"""
GO_JSON = """\
{"Time":"2026-01-01T00:00:00Z","Action":"run","Package":"a","Test":"T"}
{"Action":"pass","Package":"a","Test":"T","Elapsed":0}
{"Action":"skip","Package":"a","Test":"U"}
{"Action":"fail","Package":"b","Test":"T"}
{"Action":"fail","Package":"b"}
"""
CARGO = """\
running 3 tests
test a::one ... ok
test a::two ... FAILED
test a::three ... ignored

test result: FAILED. 1 passed; 1 failed; 1 ignored; 0 measured; 4 filtered out; finished in 0.00s

   Doc-tests app

test result: ok. 2 passed; 0 failed; 0 ignored; 0 measured; 0 filtered out; finished in 0.00s
"""
NODE = """\
\N{CHECK MARK} ok (1.1ms)
\N{HEAVY BALLOT X} bad (2.5ms)
\N{INFORMATION SOURCE} tests 4
\N{INFORMATION SOURCE} suites 0
\N{INFORMATION SOURCE} pass 1
\N{INFORMATION SOURCE} fail 1
\N{INFORMATION SOURCE} cancelled 0
\N{INFORMATION SOURCE} skipped 1
\N{INFORMATION SOURCE} todo 1
"""
NODE_TAP = """\
TAP version 13
# Subtest: sub
    ok 1 - in
    1..1
ok 1 - sub
not ok 2 - bad
1..2
# tests 3
# pass 2
# fail 1
# cancelled 0
# skipped 0
# todo 0
"""
TAP = "TAP version 14\n1..5\nok 1 - a\nnot ok 2 - b\nok 3 # SKIP no net\nnot ok 4 # TODO later\n"


@pytest.mark.parametrize(
    ("output", "numbers", "failed"),
    [
        (GO_V, (1, 2, 1, 4), ("TestB", "TestB/sub")),
        (GO, (1, 2, 2, 5), ("TestB",)),
        (GO_JSON, (1, 1, 1, 3), ("b.T",)),
        ("?   \tapp\t[no test files]\n", (0, 0, 1, 1), ()),
        (CARGO, (3, 1, 1, 5), ("a::two",)),
        (NODE, (1, 1, 2, 4), ("bad",)),
        (NODE_TAP, (2, 1, 0, 3), ("bad",)),
        (TAP, (1, 2, 2, 5), ("b",)),
        (TAP.replace("\n", "\r\n"), (1, 2, 2, 5), ("b",)),
        ("1..2\nok 1\nok 2\n", (2, 0, 0, 2), ()),
        ("1..0 # SKIP no compiler\n", (0, 0, 0, 0), ()),
        ("\x1b[32mok 1 - a\x1b[0m\n1..1\n", (1, 0, 0, 1), ()),
    ],
)
def test_output_of_each_runner_is_counted(output, numbers, failed) -> None:
    run = read_output(output)
    assert run is not None
    counts = run.counts
    assert (counts.passed, counts.failed, counts.skipped, counts.collected) == numbers
    assert run.failed == failed


@pytest.mark.parametrize(
    "output",
    [
        "",
        "ok\n",
        "all is fine",
        "1..3\nhello\n",
        "ok 1 - no plan\n",
        '{"Action":"pass"}\n',
        "# tests 3\n",
    ],
)
def test_other_output_is_not_counted(output) -> None:
    assert read_output(output) is None
