"""Faults planted in the Python code of graphs, each of which the random graphs must notice."""

from __future__ import annotations

import sys
from collections.abc import Iterator
from contextlib import contextmanager
from functools import partial
from importlib import import_module
from pathlib import Path
from types import ModuleType
from typing import NamedTuple

import pytest

from tests.engine.driving import Bench
from tests.engine.graphs.test_random_graphs import run_graphs
from tests.model.faults import noticed


class PythonFault(NamedTuple):
    """One text of a module, and what it becomes."""

    name: str
    module: str
    old: str
    new: str

    def text(self) -> str:
        """The file without the fault."""
        return Path(str(import_module(self.module).__file__)).read_text(encoding="utf-8")


#: Each fault shows in at least one of so many graphs.
GRAPHS = 300

FAULTS = (
    PythonFault(
        "a condition is ignored", "app.sessions.templates",
        "if template.when is not None and not scope.is_met(template.when):", "if False:",
    ),
    PythonFault(
        "a condition is turned round", "app.sessions.templates",
        "is not condition.is_negated", "is condition.is_negated",
    ),
    PythonFault(
        "a dependency by name is skipped", "leadhand.graphs.faults",
        "[*step.depends_on, *referred]", "[*step.depends_on[1:], *referred]",
    ),
    PythonFault(
        "a dependency by reference is skipped", "leadhand.graphs.faults",
        "[*step.depends_on, *referred]", "[*step.depends_on]",
    ),
    PythonFault(
        "steps run one after the other", "app.compiler.graph",
        "return Program(name=document.name, body=tuple(body))",
        "roots = [n.id for n in body if not n.needs]\n    "
        "body = tuple(n.model_copy(update={'needs': (roots[roots.index(n.id) - 1],)}) "
        "if n.id in roots[1:] else n for n in body)\n    "
        "return Program(name=document.name, body=tuple(body))",
    ),
    PythonFault(
        "all errors are retried", "app.core.program",
        'if outcome.word != "failed" or not policy.on or', "if True or",
    ),
    PythonFault(
        "a busy error is not told from others", "app.core.program",
        "return not (errors | classes).isdisjoint(on)", "return False",
    ),
    PythonFault(
        "an item is lost from the results", "app.history.values",
        "for item in range(1, self.turn.width + 1)", "for item in range(1, self.turn.width)",
    ),
    PythonFault(
        "the order of the results is mixed", "app.history.values",
        "items = [outcomes.get(address) for address in place.addresses]",
        "items = [outcomes.get(address) for address in sorted(place.addresses, reverse=True)]",
    ),
    PythonFault(
        "the result of an older run is read", "app.history.values",
        'f"{name}~{run}" if run > 1 else name', "name",
    ),
    PythonFault(
        "a default replaces a present value", "leadhand.graphs.values",
        "return default.value if found is None and default is not None else found",
        "return default.value if default is not None else found",
    ),
    PythonFault(
        "a default does not replace the value of a failed step", "leadhand.graphs.values",
        "(why or (held.failed and not asks_for_error))", "why",
    ),
    PythonFault(
        "a step runs though it refers to a skipped one", "app.sessions.templates",
        "if found.skipped is not None and reference.default is None:", "if False:",
    ),
    PythonFault(
        "a join of all asks for any", "app.sessions.templates",
        '(all if template.join == "all" else any)(succeeded)', "any(succeeded)",
    ),
    PythonFault(
        "a failed step counts as succeeded for a join", "app.history.values",
        'Held({"error": error}, failed=True), succeeded=(False,)',
        'Held({"error": error}, failed=True), succeeded=(True,)',
    ),
    PythonFault(
        "each item is the first one", "app.sessions.inputs",
        "step.for_each[int(number) - 1]", "step.for_each[0]",
    ),
    PythonFault(
        "a retry runs nothing that comes after its step", "app.sessions.resume",
        "look.reruns(found) | {str(found.node)}", "{str(found.node)}",
    ),
    PythonFault(
        "a resume after a step runs that step again", "app.sessions.resume",
        "return look.rewind(point, look.reruns(point), failed=failed)",
        "return look.rewind(point, look.reruns(point) | {str(point.node)}, failed=failed)",
    ),
    PythonFault(
        "the list of a skipped step is not made again", "app.sessions.resume",
        "return reruns | {maker.id for maker", "return reruns or {maker.id for maker",
    ),
    PythonFault(
        "the items of an older list are run", "app.core.routing",
        "{key: [] for key in expand}", "{}",
    ),
    PythonFault(
        "a fork keeps what another input changes", "app.sessions.forking",
        "look.with_lists(reruns | affected)", "look.with_lists(reruns)",
    ),
    PythonFault(
        "a fork keeps all that is done", "app.sessions.forking",
        'if is_done(known, node, "")} - reruns', 'if is_done(known, node, "")}',
    ),
    PythonFault(
        "an expected success is not looked at", "app.compiler.graph",
        '{} if step.expect is None else {"expect": step.expect}', "{}",
    ),
)  # fmt: skip


@contextmanager
def planted(fault: PythonFault) -> Iterator[None]:
    """The fault's module with the fault, for all modules that import names from it."""
    module = import_module(fault.module)
    faulty = ModuleType(fault.module)
    faulty.__file__ = module.__file__
    sys.modules[fault.module] = faulty
    try:
        code = compile(fault.text().replace(fault.old, fault.new), str(module.__file__), "exec")
        exec(code, faulty.__dict__)
    finally:
        sys.modules[fault.module] = module
    new = {
        id(value): faulty.__dict__[name]
        for name, value in vars(module).items()
        if not name.startswith("__") and faulty.__dict__.get(name) is not value
    }
    changed = [
        (user, name, value)
        for user in list(sys.modules.values())
        if getattr(user, "__name__", "").startswith(("app.", "leadhand.", "workers.", "tests."))
        for name, value in list(vars(user).items())
        if id(value) in new
    ]
    for user, name, value in changed:
        setattr(user, name, new[id(value)])
    try:
        yield
    finally:
        for user, name, value in changed:
            setattr(user, name, value)


@pytest.mark.faults
@pytest.mark.timeout(600)
@pytest.mark.parametrize("fault", FAULTS, ids=lambda fault: fault.name.replace(" ", "-"))
def test_a_fault_in_the_code_of_graphs_is_noticed(fault: PythonFault, bench: Bench) -> None:
    with planted(fault):
        tries = (partial(run_graphs, bench, [seed]) for seed in range(GRAPHS))
        assert noticed(tries), f"it survived: {fault.name}"


def test_the_anchor_of_each_fault_is_in_its_file_once() -> None:
    counts = {(one.module, one.old): one.text().count(one.old) for one in FAULTS}
    assert {anchor: count for anchor, count in counts.items() if count != 1} == {}
