"""Prints the measures of the product's structure for a revision and for the working tree.

With `--check`, reports operations that are named in too many files.
"""

from __future__ import annotations

import argparse
import ast
import io
import re
import subprocess
import sys
import tarfile
from collections import defaultdict
from collections.abc import Iterator, Mapping
from pathlib import Path, PurePosixPath

from leadhand.contract.operation import Operation
from leadhand.contract.operations import NOUNS

ROOT = Path(__file__).resolve().parent.parent
PACKAGES = ("app", "tasks", "workers", "api", "leadhand")
ENDINGS = (".py", ".lua")
#: Files that name an operation: its declaration, its handler, and two more, such as the dashboard.
PLACES = 4
#: Ten operations: the words by which each goes in routes, methods, handlers, commands and tools.
OPERATIONS = {
    "rehome": r"rehome",
    "take messages": r"take_messages|inbox[./]read|inbox\.take",
    "receipt": r"receipt",
    "statistics": r"statistics",
    "fsck": r"fsck",
    "sign-in link": r"sign[-_]in[-_]links?",
    "annotate": r"annotate",
    "notify parent": r"notify_parent|parent_notice",
    "decide proposal": r"decide_proposal|plans\.decide|proposal_decided?",
    "reset guards": r"reset_guards|guards?[./_]reset",
}


def main() -> int:
    """Print a table: what is measured, then, now; returns 1 if a check finds something."""
    options = argparse.ArgumentParser(description=__doc__)
    options.add_argument("revision", nargs="?", default="HEAD", help="what to compare with (HEAD)")
    options.add_argument("--check", action="store_true", help="report operations in many files")
    given = options.parse_args()
    if given.check:
        found = list(scattered(files_here()))
        print(*found or [f"each operation is named in at most {PLACES} files"], sep="\n")
        return 1 if found else 0
    revision = given.revision
    before, now = measures(files_of(revision)), measures(files_here())
    print(f"{'':24}{revision[:12]:>14}{'working tree':>14}")
    for name, value in now.items():
        print(f"{name:24}{before[name]:>14}{value:>14}")
    return 0


def scattered(files: Mapping[str, str]) -> Iterator[str]:
    """Yield an error for each operation whose constant or name is in too many files."""
    names = {
        (noun.__name__.rpartition(".")[2], constant): one.name
        for noun in NOUNS
        for constant, one in vars(noun).items()
        if isinstance(one, Operation)
    }
    places = defaultdict(set)
    for file, text in files.items():
        for one in ast.walk(ast.parse(text)) if file.endswith(".py") else ():
            match one:
                case ast.Attribute(value=ast.Name(id=noun), attr=name) if (noun, name) in names:
                    places[names[noun, name]].add(file)
                case ast.Constant(value=str(name)):
                    places[name].add(file)
                case _:
                    pass
    for name in names.values():
        if len(places[name]) > PLACES:
            yield f"{name} is in {len(places[name])} files: {', '.join(sorted(places[name]))}"


def files_of(revision: str) -> dict[str, str]:
    """Return the product's files of a revision by their paths."""
    archive = ("git", "archive", revision, "--", *PACKAGES)
    packed = subprocess.run(archive, cwd=ROOT, capture_output=True, check=True).stdout
    with tarfile.open(fileobj=io.BytesIO(packed)) as tar:
        files = [one for one in tar if one.isfile() and one.name.endswith(ENDINGS)]
        found = {one.name: tar.extractfile(one) for one in files}
        return {name: file.read().decode() for name, file in found.items() if file is not None}


def files_here() -> dict[str, str]:
    """Return the product's files of the working tree by their paths."""
    listing = ("git", "ls-files", "--cached", "--others", "--exclude-standard", "--", *PACKAGES)
    names = subprocess.run(listing, cwd=ROOT, capture_output=True, text=True, check=True).stdout
    paths = [name for name in names.splitlines() if name.endswith(ENDINGS)]
    return {name: (ROOT / name).read_text() for name in paths if (ROOT / name).is_file()}


def measures(files: Mapping[str, str]) -> dict[str, str]:
    """Return each measure of the files as a text."""
    lines = {name: text.count("\n") for name, text in files.items()}
    trees = {name: ast.parse(text) for name, text in files.items() if name.endswith(".py")}
    python = sum(lines[name] for name in trees)
    imports = sum(_import_lines(tree) for tree in trees.values())
    found = {
        "lines": f"{sum(lines.values()):,}",
        "files": f"{len(files)}",
        "folders": f"{len({PurePosixPath(name).parent for name in files})}",
        "import lines": f"{imports / max(python, 1):.1%}",
    }
    texts = {name: "\n".join(_names(tree)) for name, tree in trees.items()}
    for operation, words in OPERATIONS.items():
        named = re.compile(rf"(?<![A-Za-z])(?:{words})(?![a-z])")
        count = sum(named.search(text) is not None for text in texts.values())
        found[f"files: {operation}"] = f"{count}"
    return found


def _import_lines(tree: ast.Module) -> int:
    imports = [one for one in ast.walk(tree) if isinstance(one, ast.Import | ast.ImportFrom)]
    return sum((one.end_lineno or one.lineno) - one.lineno + 1 for one in imports)


def _names(tree: ast.Module) -> Iterator[str]:
    """Yield the identifiers and the words of a module, without docstrings and sentences."""
    docs = {id(one.value) for one in ast.walk(tree) if isinstance(one, ast.Expr)}
    for one in ast.walk(tree):
        match one:
            case ast.Name(id=name) | ast.arg(arg=name) | ast.alias(name=name):
                yield name
            case ast.Attribute(attr=name):
                yield name
            case ast.FunctionDef(name=name) | ast.AsyncFunctionDef(name=name):
                yield name
            case ast.ClassDef(name=name):
                yield name
            case ast.Constant(value=str(text)) if id(one) not in docs and " " not in text:
                yield text


if __name__ == "__main__":
    sys.exit(main())
