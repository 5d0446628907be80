"""Checks that importing a tool's module gives the file in the tool folders, and no other module."""

from __future__ import annotations

import importlib.util
import os
import sys

#: The packages that a process imports to call a tool, besides Python's own modules.
_OURS = {
    "annotated_types",
    "leadhand",
    "pydantic",
    "pydantic_core",
    "typing_extensions",
    "typing_inspection",
}
#: Names that a tool file cannot have: a module of that name is imported instead.
TAKEN = frozenset({*sys.stdlib_module_names, *_OURS})


class AnotherModule(ImportError):
    """Importing a tool's module would give a module from another file."""

    #: Its text says all: callers show no traceback.
    is_refusal = True

    def __init__(self, module: str, found: str) -> None:
        super().__init__(module, found)
        self.module = module
        self.found = found

    def __str__(self) -> str:
        return (
            f"{self.module!r} is another module here ({self.found}), which would be imported"
            f" instead of {self.module}.py in the tool folders; rename that file"
        )


def check_module(module: str, tools: str) -> None:
    """Raises AnotherModule if an import would load another file than that of the first folder."""
    found = imported_from(module)
    meant = (os.path.join(folder, f"{module}.py") for folder in tools.split(os.pathsep))  # noqa: PTH118
    file = next(filter(os.path.lexists, meant), None)
    if found is not None and (file is None or not _same(found, file)):
        raise AnotherModule(module, found)


def imported_from(module: str) -> str | None:
    """Returns the file that an import of the module loads; None if there is no such module."""
    try:
        spec = importlib.util.find_spec(module)
    except ValueError:  # a module without a spec, such as `__main__`
        return "made by no file"
    return None if spec is None else spec.origin or "a folder"


def _same(one: str, other: str) -> bool:
    try:
        return os.path.samefile(one, other)  # noqa: PTH121
    except OSError:
        return False
