"""Formats the result of a graph, and trees of sessions, as text, and graphs as drawings (pure)."""

from __future__ import annotations

import json
from collections.abc import Iterator

from leadhand.cli.render.live_text import elapsed
from leadhand.cli.render.result_text import flow_summary
from leadhand.cli.render.tables import table
from leadhand.drawing import Drawn, Mark, layout_of, shape_of, to_svg
from leadhand.graphs.documents import GraphDocument, GraphStep
from leadhand.graphs.faults import needs_of
from leadhand.models.text import plain, reason_text
from leadhand.models.views.result import ResultView
from leadhand.models.views.session import TreeNode, TreeView


def graph_summary(result: ResultView) -> Iterator[str]:
    """Yields lines: how a graph ended, what its steps returned, and commands to run next."""
    lines = list(flow_summary(result))
    yield lines[0]
    if result.results:
        rows = [
            [name, json.dumps(value, ensure_ascii=False)] for name, value in result.results.items()
        ]
        yield from table(["STEP", "RESULT"], rows)
    yield from lines[1:]


def call_summary(result: ResultView) -> Iterator[str]:
    """Formats what the only step of a session returned, or how it failed."""
    if result.status != "completed":
        yield from flow_summary(result)
        return
    value = next(iter(result.results.values()), None)
    yield value if isinstance(value, str) else json.dumps(value, ensure_ascii=False, indent=2)


def layers_of(document: GraphDocument) -> list[list[GraphStep]]:
    """Groups a graph's steps into layers: each step comes in the layer after the last it needs."""
    steps = {step.name: step for step in document.steps}
    needs = {name: needs_of(step, steps.keys()) for name, step in steps.items()}
    depth: dict[str, int] = {}
    while len(depth) < len(steps):  # a document has no cycle
        for name, before in needs.items():
            if name not in depth and all(need in depth for need in before):
                depth[name] = 1 + max((depth[need] for need in before), default=-1)
    layers: list[list[GraphStep]] = [[] for _ in range(max(depth.values(), default=-1) + 1)]
    for name, step in steps.items():
        layers[depth[name]].append(step)
    return layers


def graph_drawing(document: GraphDocument) -> Iterator[str]:
    """Yields lines that draw a graph: its steps in layers, what each calls and waits for."""
    names = frozenset(step.name for step in document.steps)
    yield plain(document.name)
    for number, layer in enumerate(layers_of(document), 1):
        for at, step in enumerate(layer):
            head = f"{number:>3} " if at == 0 else "    "
            branch = "─" if len(layer) == 1 else "┌" if at == 0 else "├"
            branch = "└" if at and at == len(layer) - 1 else branch
            before = ", ".join(plain(name) for name in needs_of(step, names))
            yield f"{head}{branch} {_step_text(step)}" + (f"  <- {before}" if before else "")


def graph_svg(document: GraphDocument) -> str:
    """Renders the steps of a graph as an SVG document, each with what it calls."""
    names = frozenset(step.name for step in document.steps)
    ids = {step.name: str(number) for number, step in enumerate(document.steps, 1)}
    nodes = tuple(
        Drawn(ids[step.name], step.name, tuple(ids[name] for name in needs_of(step, names)))
        for step in document.steps
    )
    marks = {ids[step.name]: Mark(note=_note(step)) for step in document.steps}
    return to_svg(layout_of(shape_of(nodes, marks)), document.name)


def _note(step: GraphStep) -> str:
    return f"{step.called}, for each" if step.for_each is not None else step.called


def _step_text(step: GraphStep) -> str:
    parts = [f"{plain(step.name)} [{plain(step.called)}]"]
    if step.for_each is not None:
        written = step.for_each if isinstance(step.for_each, str) else json.dumps(step.for_each)
        most = f", {step.at_once} at once" if step.at_once else ""
        parts.append(f"for each of {plain(written, most=60)}{most}")
    if step.when is not None:
        parts.append(f"when {plain(step.when, most=60)}")
    if step.join is not None:
        parts.append(f"join {step.join}")
    if not step.critical:
        parts.append("not critical")
    return " ".join(parts[:1]) + "".join(f", {part}" for part in parts[1:])


def tree_lines(view: TreeView) -> Iterator[str]:
    """Formats a tree of sessions, one indented line each, and why the first one ended."""
    top = view.items[0].depth
    for node in view.items:
        yield f"{'  ' * (node.depth - top)}{_line(node)}"
    if view.note is not None:
        yield f"... {plain(view.note, most=400)}"
    if view.causes:
        yield ""
    for number, cause in enumerate(view.causes):
        at = f" at {plain(cause.at)}" if cause.at else ""
        text = f": {plain(cause.text, most=400)}" if cause.text else ""
        yield f"{'so: ' if number else 'why: '}{cause.session}{at} {cause.code}{text}"


def _line(node: TreeNode) -> str:
    parts = [f"[{plain(node.title, most=60)} ({node.id})] {node.status}"]
    if node.phase is not None and node.phase.phase != node.status:
        parts.append(f"{node.phase.role} {node.phase.phase}")
    parts.append(elapsed(round(node.elapsed_s * 1000)))
    if node.cost_usd:
        parts.append(f"${node.cost_usd:.4f}")
    if node.detached_from is not None:
        parts.append(f"detached from {node.detached_from}")
    why = reason_text(node.reason.model_dump()) if node.reason is not None else ""
    return ", ".join(parts) + (f": {why}" if why and node.status != "completed" else "")
