"""Generates the synchronous client from the asynchronous one; --check reports old files."""

from __future__ import annotations

import argparse
import functools
import re
import subprocess
import sys
from pathlib import Path

ROOT = Path(__file__).resolve().parent.parent
CLIENT = ROOT / "leadhand" / "client"
#: Each file and the file that is generated from it.
FILES = {
    "async_administration.py": "administration.py",
    "async_client.py": "client.py",
    "async_event_stream.py": "event_stream.py",
    "async_plan_calls.py": "plan_calls.py",
    "async_shared_calls.py": "shared_calls.py",
    "async_transport.py": "transport.py",
    "stacks/async_calls.py": "stacks/calls.py",
    "drawings/async_drawing_calls.py": "drawings/drawing_calls.py",
    "artifacts/async_artifact_calls.py": "artifacts/artifact_calls.py",
    "work/async_calls.py": "work/calls.py",
    "dashboard/async_dashboard_calls.py": "dashboard/dashboard_calls.py",
    "guards/async_guard_calls.py": "guards/guard_calls.py",
    "batch/async_batch_calls.py": "batch/batch_calls.py",
    "submit/async_environment_calls.py": "submit/environment_calls.py",
    "submit/async_submit_calls.py": "submit/submit_calls.py",
    "steps/async_step_calls.py": "steps/step_calls.py",
}
HEADER = "# Generated from {source} by scripts/client.py: do not edit.\n"
#: Regular expressions and their replacements, applied in this order.
SUBSTITUTIONS = [
    (
        "open within `async with`, and belongs to one event loop",
        "open from the start until `close` or the end of a `with`, and threads may share it",
    ),
    (r"\basynchronous\b", "synchronous"),
    (r"\basync (def|for|with)\b", r"\1"),
    (r"\bawait ", ""),
    (r"\b__a(enter|exit)__\b", r"__\1__"),
    (r"\basyncio\b", "time"),  # only its sleep is used
    (r"\basynccontextmanager\b", "contextmanager"),
    (r"\ba(read|close)\(", r"\1("),  # of a response and of httpx2's client
    (r"\bAsync(?=[A-Z])", ""),  # classes
    (r"\basync_(?=[a-z])", ""),  # modules
    (r"\b_close\b", "close"),  # only the synchronous client works without `with`
]
RUFF = (sys.executable, "-P", "-m", "ruff")


def main() -> int:
    """Write the generated files, or compare them."""
    options = argparse.ArgumentParser(description=__doc__)
    options.add_argument("--check", action="store_true", help="change nothing, name what is old")
    check = options.parse_args().check
    old = find_old_files(CLIENT)
    for name, text in old.items():
        if not check:
            (CLIENT / name).write_text(text)
        path = f"leadhand/client/{name}"
        print(f"{path} is out of date: run `make docs`" if check else f"{path} is written")
    if not old:
        print("the synchronous client is up to date")
    return 1 if check and old else 0


def find_old_files(folder: Path) -> dict[str, str]:
    """Return the new text of each generated file that differs from it, or does not exist."""
    texts = {name: generate(folder / source) for source, name in FILES.items()}
    return {name: text for name, text in texts.items() if _read(folder / name) != text}


def generate(source: Path) -> str:
    """Return the synchronous text of a file. Raises SystemExit where no substitution fits."""
    text = source.read_text()
    for pattern, replacement in SUBSTITUTIONS:
        text = re.sub(pattern, replacement, text)
    left = re.search(r"^.*(?:async|await).*$", text, re.IGNORECASE | re.MULTILINE)
    if left:
        line = left.group().strip()
        raise SystemExit(f"{source.name}: scripts/client.py has no substitution for {line!r}")
    return _format(HEADER.format(source=source.name) + text)


@functools.cache  # ruff starts twice for each text
def _format(text: str) -> str:
    """Return the text with its imports sorted, and formatted."""
    for command in (("check", "--select", "I", "--fix"), ("format",)):
        arguments = (*RUFF, *command, "--quiet", "--stdin-filename", str(ROOT / "client.py"), "-")
        done = subprocess.run(arguments, input=text, stdout=subprocess.PIPE, text=True, check=True)
        text = done.stdout
    return text


def _read(path: Path) -> str | None:
    return path.read_text() if path.exists() else None


if __name__ == "__main__":
    sys.exit(main())
