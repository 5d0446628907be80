"""Accepts tests that are red: at least three, and every one of them fails."""

from __future__ import annotations

import re
import subprocess
import sys

WANTED = 3


def main(path: str) -> int:
    """Run the tests and say what is missing."""
    command = [sys.executable, "-m", "pytest", "--tb=line", path]
    done = subprocess.run(command, capture_output=True, text=True, check=False)
    counts = {word: int(n) for n, word in re.findall(r"(\d+) (failed|passed|error)", done.stdout)}
    failed = counts.get("failed", 0)
    if counts.get("passed"):
        print(f"{counts['passed']} of the new tests pass already, so they ask for nothing new")
    elif counts.get("error") or not failed:
        print(f"the tests do not run, which is not the same as failing:\n{done.stdout}")
    elif failed < WANTED:
        print(f"{failed} failing tests are too few; write at least {WANTED}")
    else:
        print(f"{failed} tests, and all of them fail: red as it should be")
        return 0
    return 1


if __name__ == "__main__":
    sys.exit(main(*sys.argv[1:]))
