"""The share of the work that is done, as the command line shows it."""

from __future__ import annotations

from leadhand.cli.render.live_text import screen, sentence
from leadhand.cli.render.progress import Picture, apply_event
from leadhand.cli.render.session_text import session_lines
from leadhand.models.views.session import Progress, SessionView
from leadhand.models.views.step import Event

SETTLED = Event.model_validate({
    "id": "1-0", "at_ms": 66_000, "type": "step.settled", "address": "fetch",
    "fields": {"word": "succeeded", "elapsed_ms": 62_000, "text": "3 papers",
               "progress": {"share": 0.425, "left_ms": 62_500}},
})  # fmt: skip


def test_line_of_a_settled_step_has_its_time_and_the_share() -> None:
    before = Picture("1a2b3c4d", started_ms=1_000, at_most=True)
    picture = apply_event(before, SETTLED)
    assert sentence(picture, SETTLED) == (
        "[1:05] fetch: succeeded after 1:02: 3 papers  [42 %, at most about 1:02 left]"
    )


def test_head_of_the_live_view_counts_the_rest_down() -> None:
    picture = apply_event(Picture("1a2b3c4d", started_ms=1_000), SETTLED)
    assert "42 %, about 1:02 left" in screen(picture, now_ms=66_000)[0].text
    assert "42 %, about 0:32 left" in screen(picture, now_ms=96_000)[0].text
    assert "42 %, about 0:00 left" in screen(picture, now_ms=995_000)[0].text


def test_show_has_the_share_of_a_session_that_runs() -> None:
    view = SessionView(
        id="1a2b3c4d", kind="graph", name="x", status="active", root="1a2b3c4d",
        created_at="2026-01-01T00:00:00Z", updated_at="2026-01-01T00:00:00Z",
        progress=Progress(share=0.5, left_s=30.0, at_most=True),
    )  # fmt: skip
    assert "progress  50 %, at most about 0:30 left" in list(session_lines(view, [], []))
    ended = view.model_copy(update={"status": "failed"})
    assert not [line for line in session_lines(ended, [], []) if "progress" in line]
