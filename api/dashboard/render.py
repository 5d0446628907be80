"""Renders templates: their filters, and the headers that every page of the dashboard has."""

from __future__ import annotations

import re
from collections.abc import Mapping
from datetime import UTC, datetime
from typing import Any

from flask import Blueprint, Response, render_template
from markdown_it import MarkdownIt
from markupsafe import Markup

from leadhand.models.text import plain, reason_text, without_ansi
from leadhand.models.verdicts import Reason

#: Nothing is loaded from elsewhere, and no inline script or style runs.
POLICY = (
    "default-src 'none'; script-src 'self'; style-src 'self'; img-src 'self' data:;"
    " connect-src 'self'; form-action 'self'; frame-ancestors 'none'; base-uri 'none'"
)
HEADERS = {
    "Content-Security-Policy": POLICY,
    "X-Content-Type-Options": "nosniff",
    "Referrer-Policy": "same-origin",
    "Cross-Origin-Opener-Policy": "same-origin",
    "Cross-Origin-Resource-Policy": "same-origin",
    "X-Frame-Options": "DENY",
}
#: Statuses by what they mean for a reader, which decides their colour.
_TONES = {
    "active": "run", "running": "run", "in_progress": "run", "ready": "run", "open": "run",
    "merging": "run", "at work": "run", "not merged": "wait",
    "waiting": "wait", "parked": "wait", "stopping": "wait", "exiting": "wait",
    "aborting": "wait", "closing": "wait", "blocked": "wait", "retry": "wait",
    "max_iterations": "wait", "completed": "good", "succeeded": "good", "accept": "good",
    "merged": "good", "accepted": "good", "failed": "bad", "terminate": "bad", "refused": "bad",
}  # fmt: skip
#: Control characters and those that reverse the direction of a text, but no tab or line end.
_HIDDEN = re.compile(r"[\x00-\x08\x0b-\x1f\x7f-\x9f\u200e\u200f\u202a-\u202e\u2066-\u2069]")
_UNITS = ((86_400, "d"), (3_600, "h"), (60, "min"), (1, "s"))
_SPANS = ((86_400, "d", 3_600, "h"), (3_600, "h", 60, "min"), (60, "min", 1, "s"))
_THOUSANDS = ((1_000_000, "M"), (1_000, "k"))
#: Images are left out: they would be the only thing that a text can load.
_MARKDOWN = MarkdownIt("commonmark", {"html": False}).enable(["table", "strikethrough"])
_MARKDOWN.disable(["image"])


def page(
    template: str, values: Mapping[str, object] | None = None, *, status: int = 200, **more: object
) -> Response:
    """Renders a template as an HTML response: a page or a part of one."""
    shown: dict[str, Any] = {**(values or {}), **more}
    response = Response(render_template(f"dashboard/{template}", **shown), status)
    response.headers["Content-Type"] = "text/html; charset=utf-8"
    response.headers["Cache-Control"] = "no-store"
    return response


def add_headers(response: Response) -> Response:
    """Adds security headers to a response, which limit what the page may load and run."""
    for name, value in HEADERS.items():
        response.headers.setdefault(name, value)
    return response


def install(routes: Blueprint) -> None:
    """Registers the Jinja filters that the templates of the dashboard use."""
    for function in (
        ago, clean, cost, count, duration, line, markdown, percent, reason, shown_time, tone,
    ):  # fmt: skip
        routes.add_app_template_filter(function, f"ui_{function.__name__}")


def tone(word: str | None) -> str:
    """Returns the CSS class for the colour of a status or verdict; `rest` for any other word.

    >>> tone("completed"), tone("no such word"), tone(None)
    ('good', 'rest', 'rest')
    """
    return _TONES.get(word or "", "rest")


def clean(text: object) -> str:
    r"""Removes terminal sequences from a text; replaces other control characters with U+FFFD.

    >>> clean("\x1b[31mred\x1b[0m\x07\n\u202eend")
    'red\ufffd\n\ufffdend'
    """
    return _HIDDEN.sub("\ufffd", without_ansi(str(text)).replace("\r\n", "\n"))


def line(text: object, most: int = 160) -> str:
    """Shortens a text to one line without control characters."""
    return plain("" if text is None else text, most=most)


def markdown(text: object) -> Markup:
    """Renders Markdown as HTML; HTML in the text is escaped, and images are left out.

    >>> str(markdown("**hi** <script>x</script> [l](javascript:alert(1))")).strip()
    '<p><strong>hi</strong> &lt;script&gt;x&lt;/script&gt; [l](javascript:alert(1))</p>'
    """
    found = _MARKDOWN.render(clean(text))
    linked = found.replace("<a href=", '<a rel="noreferrer noopener" target="_blank" href=')
    return Markup(linked)  # noqa: S704 - the renderer escapes what it is given


def reason(found: Reason | None) -> str:
    """Formats a reason and its causes on one line.

    >>> reason(Reason(code="failed_step", text="do failed", beneath=Reason(code="lost")))
    'do failed: lost'
    """
    return plain(reason_text(found.model_dump()), most=600) if found else ""


def cost(usd: float | None) -> str:
    """Formats an amount in dollars; returns a dash for zero and None.

    >>> cost(0.0042), cost(12.5), cost(0.0) == cost(None)
    ('$0.0042', '$12.50', True)
    """
    if not usd:
        return "–"  # noqa: RUF001 - a dash in a table
    return f"${usd:.4f}" if usd < 0.1 else f"${usd:,.2f}"


def count(number: float | None) -> str:
    """Formats a number, shortened from a thousand on, such as `12.3k`; None is 0.

    >>> count(950), count(12_345), count(2_000_000), count(1.5)
    ('950', '12.3k', '2M', '1.5')
    """
    value = float(number or 0)
    for size, unit in _THOUSANDS:
        if value >= size:
            return f"{value / size:.1f}".removesuffix(".0") + unit
    return f"{value:.1f}".removesuffix(".0")


def percent(used: float, limit: float) -> int:
    """Returns the used share of a limit in percent, at most 100.

    >>> percent(1, 3), percent(9, 3), percent(1, 0)
    (33, 100, 100)
    """
    return min(100, int(100 * used / limit)) if limit > 0 else 100


def duration(seconds: float | None) -> str:
    """Formats seconds in at most two units, such as `2 h 1 min`; None becomes an empty text.

    >>> duration(0.25), duration(8), duration(75), duration(7300)
    ('0.2 s', '8 s', '1 min 15 s', '2 h 1 min')
    """
    if seconds is None:
        return ""
    for size, unit, smaller, below in _SPANS:
        if seconds >= size:
            rest = int(seconds % size // smaller)
            return f"{int(seconds // size)} {unit}" + (f" {rest} {below}" if rest else "")
    return f"{seconds:.1f} s" if seconds < 5 else f"{int(seconds)} s"


def ago(at: str | int | None) -> Markup:
    """Formats a time as an HTML element with its age, such as `5 min ago`; empty without a time.

    The browser shows the exact local time on hover.
    """
    then = _parse(at)
    if then is None:
        return Markup("")
    seconds = int((datetime.now(UTC) - then).total_seconds())
    words = (f"{seconds // size} {unit} ago" for size, unit in _UNITS if seconds >= size)
    word = next(words, "now")
    if seconds < -1:
        word = f"in {duration(-seconds)}"
    return _time(then, word, "ago")


def shown_time(at: str | int | None) -> Markup:
    """Formats a time as an HTML element in UTC, which the browser converts to its time zone."""
    then = _parse(at)
    return Markup("") if then is None else _time(then, f"{then:%Y-%m-%d %H:%M:%S} UTC", "clock")


def elapsed_s(start: str | int | None, end: str | int | None) -> float | None:
    """Returns the seconds from one time to another, by default until now; None without a start."""
    first, last = _parse(start), _parse(end) or datetime.now(UTC)
    return None if first is None else max(0.0, (last - first).total_seconds())


def _time(then: datetime, word: str, how: str) -> Markup:
    exact = then.isoformat(timespec="seconds")
    return Markup('<time datetime="{}" title="{}" data-how="{}">{}</time>').format(
        exact, exact, how, word
    )


def _parse(at: str | int | None) -> datetime | None:
    if isinstance(at, int):
        return datetime.fromtimestamp(at / 1000, UTC)
    try:
        return datetime.fromisoformat(at) if at else None
    except ValueError:
        return None
