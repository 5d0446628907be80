"""Red, green, refactor: three loops in sequence, each with checkers that run real programs.

In a copy of examples/project:  leadhand workflow PATH/TO/examples/tdd.py
With a real agent:              leadhand workflow PATH/TO/examples/tdd.py --agent claude
"""

from __future__ import annotations

import shlex
from pathlib import Path

from leadhand import Workflow

doer = shlex.quote(str(Path(__file__).with_name("doer.py")))
wf = Workflow("tdd", doer=f"python3 {doer} 1")

wf.phase(
    "red",
    task="Write failing tests for slugify of textkit/slug.py into tests/test_slug.py",
    checkers=[
        {"name": "compiles", "command": "python -m py_compile tests/test_slug.py"},
        {"name": "must-fail", "command": "python checks/must_fail.py tests/test_slug.py"},
    ],
    file_scope=["tests/test_slug.py"],
)
wf.phase(
    "green",
    task="Make the tests of tests/test_slug.py pass by writing textkit/slug.py",
    checker="pytest tests/",
    max_iterations=5,
    file_scope=["textkit/slug.py"],
)
wf.phase(
    "refactor",
    task="Refactor textkit/slug.py for clarity; the tests must still pass",
    checkers=[
        "pytest tests/",
        {"name": "tidy", "command": "python checks/tidy.py textkit/slug.py"},
    ],
    file_scope=["textkit/slug.py"],
)
results = wf.run()

# If a doer or checker called `leadhand exit`, the results say where and why.
for name, result in results.items():
    if result.verdict == "exit":
        print(f"the workflow stopped at {name}: {result.exit_reason}")
