"""Which file a tool's module is read from, and which names no such file may have."""

from __future__ import annotations

import importlib.util
import os
import sys

#: What a process imports for itself before or while it calls a tool, Python's own modules apart.
_OURS = {
    "annotated_types",
    "leadhand",
    "pydantic",
    "pydantic_core",
    "typing_extensions",
    "typing_inspection",
}
#: Modules that are imported before a file of tools is looked for: a file of that name never is.
TAKEN = frozenset({*sys.stdlib_module_names, *_OURS})


class AnotherModule(ImportError):
    """To import a tool's module would give another one than its file."""

    def __init__(self, module: str, found: str) -> None:
        super().__init__(module, found)
        self.module = module
        self.found = found

    def __str__(self) -> str:
        return (
            f"{self.module!r} is another module here ({self.found}), which would be called in place"
            f" of {self.module}.py in the folders of tools; rename that file"
        )


def check_module(module: str, tools: str) -> None:
    """Raises AnotherModule unless an import would give the file of the first folder that has it."""
    found = imported_from(module)
    meant = (os.path.join(folder, f"{module}.py") for folder in tools.split(os.pathsep))  # noqa: PTH118
    file = next(filter(os.path.lexists, meant), None)
    if found is not None and (file is None or not _same(found, file)):
        raise AnotherModule(module, found)


def imported_from(module: str) -> str | None:
    """Where an import would take it from, or has taken it from; None where there is none."""
    try:
        spec = importlib.util.find_spec(module)
    except ValueError:  # put there by hand, as `__main__` is
        return "made by no file"
    return None if spec is None else spec.origin or "a folder"


def _same(one: str, other: str) -> bool:
    try:
        return os.path.samefile(one, other)  # noqa: PTH121
    except OSError:
        return False
