"""The live view: a picture from events, and lines from a picture."""

from __future__ import annotations

from functools import reduce

from hypothesis import given
from hypothesis import strategies as st
from pydantic import JsonValue

from leadhand.cli.render.live import PlainScreen
from leadhand.cli.render.live_text import screen, sentence
from leadhand.cli.render.progress import Picture, apply_event
from leadhand.models.views.session import SessionView
from leadhand.models.views.step import Event

RUN = [
    ("session.created", None, {"status": "active"}),
    ("loop.opened", "green~1[1]", {"iteration": 1, "max": 5, "label": "Make it green"}),
    ("step.ready", "green~1[1]/do", {}),
    ("step.claimed", "green~1[1]/do", {"worker": "w1", "attempt": 1}),
    ("step.settled", "green~1[1]/do", {"word": "succeeded", "text": "I wrote it"}),
    ("step.claimed", "green~1[1]/check.pytest", {"worker": "w1", "attempt": 1}),
    ("step.claimed", "green~1[1]/check.ruff", {"worker": "w2", "attempt": 2}),
    ("step.settled", "green~1[1]/check.pytest",
     {"word": "succeeded", "verdict": "retry", "text": "2 failed\n\x1b[31mred"}),
    ("step.expired", "green~1[1]/check.ruff", {"why": "lost"}),
    ("step.settled", "green~1[1]/judge", {"word": "succeeded", "verdict": "retry"}),
    ("loop.iteration", "green~1[2]", {"iteration": 2, "max": 5}),
    ("step.claimed", "green~1[2]/do", {"worker": "w1", "attempt": 1}),
    ("loop.closed", "green~1[2]", {"verdict": "accept", "iterations": 2}),
    ("session.ended", None, {"status": "completed", "reason": {"code": "accepted"}}),
]  # fmt: skip


def events(run=RUN) -> list[Event]:
    return [
        Event.model_validate(
            {"id": f"{n}-0", "type": kind, "at_ms": n * 1000, "address": address, "fields": fields}
        )
        for n, (kind, address, fields) in enumerate(run, start=1)
    ]


def pictured(count: int) -> Picture:
    return reduce(apply_event, events()[:count], Picture(session="1a2b3c4d", name="tdd"))


def texts(picture: Picture, *, now_ms: int = 0, height: int = 40) -> list[str]:
    return [line.text for line in screen(picture, now_ms=now_ms, height=height)]


def test_a_running_iteration_shows_each_step_and_how_long_it_has_run() -> None:
    assert texts(pictured(7), now_ms=9000) == [
        "session 1a2b3c4d  tdd  active  0:08",
        "  Make it green    iteration 1 of 5                0:07",
        "      doer                 succeeded  I wrote it",
        "      pytest               running    0:03",
        "      ruff                 running    0:02  attempt 2",
    ]


def test_a_checkers_word_and_feedback_stand_beside_it() -> None:
    shown = texts(pictured(9), now_ms=9000)
    assert shown[3].split(maxsplit=2) == ["pytest", "retry", "2 failed red"]
    assert shown[4].split() == ["ruff", "lost"]


def test_the_judge_is_not_shown() -> None:
    assert not [line for line in texts(pictured(10)) if "judge" in line]


def test_a_new_iteration_starts_with_a_clean_list() -> None:
    assert len(texts(pictured(11))) == 2
    assert texts(pictured(12), now_ms=12_000)[2].split() == ["doer", "running", "0:00"]


def test_list_of_a_for_each_is_done_or_has_failed_and_has_no_iterations() -> None:
    reason = {"code": "failed_step", "text": "mend, item 2 failed"}
    run = [
        ("loop.closed", "read~1", {"verdict": "accept", "iterations": 0}),
        ("loop.closed", "mend~1", {"verdict": "terminate", "iterations": 0, "reason": reason}),
        ("loop.opened", "none~1", {"iteration": 0, "max": 0}),
        ("loop.closed", "none~1", {"verdict": "max_iterations", "iterations": 0}),
    ]
    picture, said = Picture(session="1a2b3c4d"), list[str]()
    for event in events(run):
        picture = apply_event(picture, event)
        said.append((sentence(picture, event) or "").partition("] ")[2])
    assert said == [
        "read: done",
        "mend: failed: mend, item 2 failed",
        "",
        "none: max_iterations after 0 iterations",
    ]


def test_a_closed_loop_is_one_line_with_its_verdict() -> None:
    head, line = screen(pictured(14), now_ms=99_000)
    assert head.text == "session 1a2b3c4d  tdd  completed  0:13"
    assert line.text.split() == ["Make", "it", "green", "accept", "2", "of", "5", "0:11"]
    assert (head.style, line.style) == ("green", "green")


def test_a_latecomer_of_a_former_iteration_changes_nothing() -> None:
    picture = pictured(12)
    [late] = events([("step.settled", "green~1[1]/check.ruff", {"word": "succeeded"})])
    assert apply_event(picture, late).loops == picture.loops


def test_a_screen_never_has_more_lines_than_fit() -> None:
    many = [("step.claimed", f"loop~1[1]/fetch~1#{n}", {"worker": "w"}) for n in range(1000)]
    phases = [("loop.closed", f"p{n}~1[1]", {"verdict": "accept"}) for n in range(200)]
    picture = reduce(apply_event, events(phases + many), Picture(session="1a2b3c4d"))
    shown = texts(picture, height=24)
    assert len(shown) <= 24
    assert "and 988 more" in shown[-1]
    assert "lines above" in shown[1]


def test_plain_lines_say_each_piece_of_news_once() -> None:
    picture = Picture(session="1a2b3c4d")
    said = []
    for event in events():
        picture = apply_event(picture, event)
        line = sentence(picture, event)
        said += [line] if line is not None else []
    assert said == [
        "[0:00] session is active",
        "[0:01] Make it green: iteration 1 of 5",
        "[0:03] Make it green 1/5 doer: runs on w1",
        "[0:04] Make it green 1/5 doer: succeeded: I wrote it",
        "[0:05] Make it green 1/5 pytest: runs on w1",
        "[0:06] Make it green 1/5 ruff: runs on w2, attempt 2",
        "[0:07] Make it green 1/5 pytest: retry: 2 failed red",
        "[0:08] Make it green 1/5 ruff: lost its worker, will be retried",
        "[0:10] Make it green: iteration 2 of 5",
        "[0:11] Make it green 2/5 doer: runs on w1",
        "[0:12] Make it green: accept after 2 iterations",
        "[0:13] session ended completed: accepted",
    ]


def test_a_reason_is_shown_down_to_its_root_cause() -> None:
    chain = {"code": "failed_step", "text": "do failed", "beneath": {"code": "timeout"}}
    run = [("session.ended", None, {"status": "failed", "reason": chain})]
    [event] = events(run)
    assert str(sentence(Picture("s"), event)).endswith("session ended failed: do failed: timeout")


def test_a_failure_is_printed_once() -> None:
    chain = {"code": "failed_step", "text": "do failed", "beneath": {"text": "exit code 4: boom"}}
    run = [
        ("step.settled", "do", {"word": "failed", "text": "exit code 4: boom"}),
        ("session.ended", None, {"status": "failed", "reason": chain}),
    ]
    printed: list[str] = []
    screen = PlainScreen(printed.append)
    for event in events(run):
        screen.show(event)
    assert [line.partition("] ")[2] for line in printed] == [
        "doer: failed: exit code 4: boom",
        "session ended failed: do failed",
    ]
    assert screen.once("session s: failed: do failed: exit code 4: boom").endswith(": do failed")


def test_a_failure_printed_before_is_not_cut_from_a_longer_one() -> None:
    run = [("step.settled", "do", {"word": "failed", "text": "exited with code 1"})]
    screen = PlainScreen(list[str]().append)
    for event in events(run):
        screen.show(event)
    other = "do failed: exited with code 127: not found"
    assert screen.once(other) == other
    assert screen.once("do failed: exited with code 1: boom") == "do failed: boom"


def test_a_step_that_waits_says_for_what() -> None:
    run = [
        ("step.blocked", "ask",
         {"lock": "folder:here:/f", "holder": "1a2b3c4d", "label": "Ask", "index": 1, "total": 2}),
        ("step.blocked", "say", {"lock": "agent:claude"}),
        ("step.parked", "may", {"on": "human"}),
        ("step.parked", "sub", {"on": "child", "child": "00000a11"}),
    ]  # fmt: skip
    picture, said = Picture(session="s"), []
    for event in events(run):
        picture = apply_event(picture, event)
        said.append(sentence(picture, event))
    assert said == [
        "[0:00] 1/2 Ask: waits for folder:here:/f, held by session 1a2b3c4d",
        "[0:01] say: waits for agent:claude",
        "[0:02] may: waits for a person",
        "[0:03] sub: waits for session 00000a11",
    ]
    assert "waiting    for folder:here:/f, held by session 1a2b3c4d" in texts(picture)[1]


ADDRESSES = st.text(alphabet="ab~[]#/.12-", max_size=20) | st.none()
FIELDS = st.dictionaries(
    st.sampled_from(
        [
            "status",
            "reason",
            "iteration",
            "max",
            "verdict",
            "text",
            "word",
            "attempt",
            "on",
            "lock",
            "child",
        ]
    ),
    st.none() | st.integers(0, 9) | st.text(max_size=8) | st.just({"code": "lost"}),
)
KINDS = st.sampled_from(
    [kind for kind, *_ in RUN] + ["step.retried", "step.parked", "step.blocked", "flow.new"]
)


@given(st.lists(st.tuples(KINDS, ADDRESSES, FIELDS), max_size=30))
def test_no_event_breaks_the_view_or_its_lines(run) -> None:
    picture = Picture(session="1a2b3c4d")
    for event in events(run):
        picture = apply_event(picture, event)
        for text in [sentence(picture, event) or "", *texts(picture, now_ms=99)]:
            assert text.isprintable()


def test_a_flows_steps_go_by_their_labels_and_numbers() -> None:
    run = [
        ("session.created", None, {"status": "active"}),
        ("loop.opened", "polish~1", {"iteration": 1, "max": 5, "label": "polish"}),
        ("step.claimed", "polish~1[1]/content",
         {"worker": "w", "label": "content?", "index": 4, "total": 6}),
        ("step.settled", "polish~1[1]/content", {"word": "succeeded", "verdict": "retry"}),
    ]  # fmt: skip
    picture = reduce(apply_event, events(run), Picture(session="1a2b3c4d"))
    assert texts(picture)[2].split() == ["4/6", "content?", "retry"]
    told = sentence(picture, events(run)[-1])
    assert told == "[0:03] polish 1/5 4/6 content?: retry"


def test_what_an_agent_said_is_not_cut_from_the_reason() -> None:
    text = f"agent 'x' decided nothing: it said {'y' * 200}; answer with yes or no"
    run = [("session.ended", None, {"status": "failed", "reason": {"text": text}})]
    (ended,) = events(run)
    assert str(sentence(apply_event(Picture("s"), ended), ended)).endswith(
        "; answer with yes or no"
    )


def wrote(second: int) -> Event:
    fields: dict[str, JsonValue] = {
        "fence": 1,
        "stream": "stdout",
        "text": f"line {second}\n",
        "offset": second * 8,
    }
    address = "green~1[1]/do"
    return Event(id=f"{second}-0", type="output", at_ms=second, address=address, fields=fields)


def test_without_a_terminal_the_last_output_is_printed_every_ten_seconds() -> None:
    now, written = [0.0], list[str]()
    shown = PlainScreen(written.append, clock=lambda: now[0])
    for second in range(25):
        now[0] = second
        shown.show(wrote(second))
    assert written == ["  green~1[1]/do | line 10", "  green~1[1]/do | line 20"]


def test_without_a_terminal_the_last_output_is_printed_though_no_other_follows() -> None:
    now, written = [0.0], list[str]()
    shown = PlainScreen(written.append, clock=lambda: now[0])
    view = SessionView(
        id="s", kind="loop", name="s", status="active", root="s", created_at="", updated_at=""
    )
    shown.show(wrote(1))
    now[0] = 9.0
    shown.update(view)
    assert written == []
    for now[0] in (11.0, 30.0):
        shown.update(view)
    assert written == ["  green~1[1]/do | line 1"]


def test_without_a_terminal_a_step_ends_after_its_last_output() -> None:
    written = list[str]()
    shown = PlainScreen(written.append)
    shown.show(wrote(1))
    for event in events([("step.settled", "green~1[1]/do", {"word": "succeeded"})] * 2):
        shown.show(event)
    assert written[0] == "  green~1[1]/do | line 1"
    assert sum("line 1" in line for line in written) == 1
