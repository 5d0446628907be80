"""The nodes that a graph is compiled to (pure)."""

from __future__ import annotations

from app.domain.program import Program, Step

#: The built-in tool of the nodes that make the list of a for_each.
ITEMS = "graph.items"


def graph_steps(program: Program) -> list[Step]:
    """The nodes of a graph's own steps, in the order of the document; none for other programs."""
    made = (node for node in program.body if isinstance(node, Step) and node.template is not None)
    return [node for node in made if node.inputs.get("tool") != ITEMS]
