"""Drawings of random programs: boxes apart, every need an edge, bounded, and safe to open."""

from __future__ import annotations

from random import Random
from xml.etree import ElementTree

import pytest

from app.core.program import Action, Loop, Node, Program, Step
from app.sessions.drawings import drawn_needs, shape_of
from leadhand.drawing import DEEP, WIDE, Block, Box, Layout, Mark, layout_of, to_svg, to_text

SEEDS = range(60)


def random_block(random: Random, deep: int) -> tuple[Node, ...]:
    nodes: list[Node] = []
    for number in range(random.randrange(1, 14)):
        earlier = [node.id for node in nodes]
        needs = None
        if random.random() < 0.7:
            needs = tuple(random.sample(earlier, min(len(earlier), random.randrange(4))))
        name = f"n{number}"
        if deep and random.random() < 0.2:
            nodes.append(Loop(id=name, body=random_block(random, deep - 1), needs=needs))
        else:
            nodes.append(Step(id=name, action=Action.TOOL, needs=needs))
    return tuple(nodes)


def random_layout(seed: int) -> tuple[Program, Block, Layout]:
    program = Program(body=random_block(Random(seed), 2))
    shape = shape_of(program, {})
    return program, shape, layout_of(shape)


def overlap(a: Box, b: Box) -> bool:
    apart = a.x + a.width <= b.x or b.x + b.width <= a.x
    return not (apart or a.y + a.height <= b.y or b.y + b.height <= a.y)


def holds(outer: Box, inner: Box) -> bool:
    across = outer.x < inner.x and inner.x + inner.width < outer.x + outer.width
    return across and outer.y < inner.y and inner.y + inner.height < outer.y + outer.height


def is_within(inner: Box, outer: Box) -> bool:
    return outer.cell.block is not None and inner.cell.path.startswith(f"{outer.cell.path}/")


@pytest.mark.parametrize("seed", SEEDS)
def test_boxes_do_not_overlap_and_loops_hold_their_steps(seed: int) -> None:
    _, _, layout = random_layout(seed)
    for number, a in enumerate(layout.boxes):
        assert a.x > 0
        assert a.x + a.width < layout.width
        assert a.y + a.height < layout.height
        for b in layout.boxes[number + 1 :]:
            if is_within(b, a):
                assert holds(a, b)
            else:
                assert not overlap(a, b), (a.cell.path, b.cell.path)


@pytest.mark.parametrize("seed", SEEDS)
def test_every_need_is_an_edge_downwards(seed: int) -> None:
    program, _, layout = random_layout(seed)
    home = {member: box.cell.path for box in layout.boxes for member in box.cell.members}
    drawn = {(edge.source.cell.path, edge.target.cell.path) for edge in layout.edges}
    blocks: list[tuple[str, tuple[Node, ...]]] = [("", program.body)]
    blocks += [(f"{p}/", n.body) for p, n in program.walk() if isinstance(n, Loop) and p in home]
    for prefix, nodes in blocks:
        if prefix and prefix[:-1] not in {box.cell.path for box in layout.boxes if box.cell.block}:
            continue  # collapsed
        for name, needs in drawn_needs(nodes).items():
            for need in needs:
                ends = (home[prefix + need], home[prefix + name])
                assert ends in drawn or ends[0] == ends[1]
    assert all(edge.source.y + edge.source.height < edge.target.y for edge in layout.edges)


@pytest.mark.parametrize("seed", range(10))
def test_drawing_is_deterministic_and_well_formed(seed: int) -> None:
    _, shape, layout = random_layout(seed)
    assert to_svg(layout, "x") == to_svg(random_layout(seed)[2], "x")
    ElementTree.fromstring(to_svg(layout, "x"))
    for width in (60, 120):
        assert max(map(len, to_text(shape, width))) <= width


def large(*, chain: bool) -> Program:
    steps = (Step(id=f"s{n}", action=Action.TOOL, needs=None if chain else ()) for n in range(1000))
    return Program(body=tuple(steps))


@pytest.mark.parametrize("chain", [True, False])
def test_thousand_steps_stay_bounded(chain: bool) -> None:
    shape = shape_of(large(chain=chain), {"s999": Mark("failed"), "s500": Mark("running")})
    layout = layout_of(shape)
    assert len(layout.boxes) <= WIDE * DEEP
    assert sum(len(box.cell.members) for box in layout.boxes) == 1000
    text = "\n".join(to_text(shape, 120))
    assert "running" in text
    assert "failed" in text
    assert len(to_svg(layout, "x")) < 100_000


def test_text_of_users_is_escaped() -> None:
    evil = '<script>alert("1")</script>&\x1b[31m]]>'
    program = Program(body=(Step(id="a", action=Action.TOOL, label=evil),))
    svg = to_svg(layout_of(shape_of(program, {"a": Mark("running", evil)})), evil)
    root = ElementTree.fromstring(svg)
    tags = {element.tag.rpartition("}")[2] for element in root.iter()}
    assert tags <= {"svg", "title", "style", "defs", "marker", "path", "g", "rect", "text"}
    assert "<script" not in svg
    assert "\x1b" not in svg


def test_text_shows_layers_loops_and_states() -> None:
    program = Program(body=(
        Step(id="search", action=Action.TOOL),
        Step(id="left", action=Action.TOOL, needs=("search",)),
        Step(id="right", action=Action.TOOL, needs=("search",)),
        Loop(id="green", body=(Step(id="do", action=Action.AGENT),), needs=("left",)),
    ))  # fmt: skip
    marks = {"search": Mark("succeeded"), "left": Mark("running"),
             "green": Mark("pending", "at most 3 times")}  # fmt: skip
    assert to_text(shape_of(program, marks), 60) == [
        "✓ search  succeeded", "│", "┌─ ● left  running", "└┈ · right", "┊",
        "· green  at most 3 times  after left", "│   · do",
    ]  # fmt: skip
