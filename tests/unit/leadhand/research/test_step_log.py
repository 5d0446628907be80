"""What the log of a research workflow does not record."""

from __future__ import annotations

import logging
from pathlib import Path

from leadhand.research.state_manager import StepLog

TOKEN = "ghp_abcdefgh12345678"


def test_log_has_no_secret_by_its_form_wherever_it_is(tmp_path: Path) -> None:
    log = StepLog(tmp_path, "the-log", logging.getLogger("test"))
    log.call("a", "fetch", {"note": f"use {TOKEN}"}, elapsed=0.1, result=[{"said": TOKEN}])
    log.call("a", "fetch", {}, elapsed=0.1, error=f"401 for {TOKEN}")
    log.decision("a", "is tried again", why=f"401 for {TOKEN}")
    log.end("failed", f"a failed: 401 for {TOKEN}", elapsed=0.2)
    written = log.path.read_text()
    assert TOKEN not in written
    assert written.count("[redacted]") == 5
