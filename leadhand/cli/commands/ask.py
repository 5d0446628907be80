"""`leadhand ask`: lets a doer or checker ask a person, and waits for the answer."""

from __future__ import annotations

import json
from typing import Any

import click

from leadhand.cli.render.tables import echo_json


@click.command("ask")
@click.argument("question")
@click.option("--choice", "choices", metavar="CHOICE", multiple=True, help="An answer; repeat it.")
@click.option("--form", metavar="JSON", help="The fields of the answer: a JSON Schema.")
@click.option("--default", metavar="ANSWER", help="The answer if none comes in time: a text,"
              " a choice, or JSON with text, choice and fields.")  # fmt: skip
@click.option(
    "--timeout", "timeout_s", type=click.FloatRange(0, min_open=True), metavar="S",
    help="How long a person may take (a day).",
)  # fmt: skip
@click.option("--key", metavar="NAME", help="The same question with another NAME is asked again.")
@click.option("--json", "as_json", is_flag=True, help="Print exactly one JSON object.")
def ask_command(
    *,
    question: str,
    choices: tuple[str, ...],
    form: str | None,
    default: str | None,
    timeout_s: float | None,
    key: str | None,
    as_json: bool,
) -> int:
    """Ask a person QUESTION, wait, and print the answer.

    For doers and checkers. The question is a child session: people see it in `leadhand questions`,
    and a later attempt at the same step finds the same question with its answer.

    Exits with 3 if no answer came in time.
    """
    from leadhand.cli.connect import open_client, tell
    from leadhand.cli.exit_codes import DONE, code_of
    from leadhand.client.questions import ASK_TIMEOUT_S, answer_in, question_of
    from leadhand.settings import ClientSettings

    if ClientSettings.from_env().session is None:
        raise click.ClickException(
            "LEADHAND_SESSION not set: only a doer or checker inside a session asks; a flow has"
            " steps of the type human"
        )
    rules = {
        "choices": choices or None,
        "form": _parse("--form", form),
        "default": _default(default),
    }
    try:
        asked = question_of(question, rules, timeout_s=timeout_s or ASK_TIMEOUT_S, key=key)
    except ValueError as error:
        raise click.UsageError(str(error)) from None
    with open_client(needs_worker=True) as client:
        view = client.submit(asked.document, asked.key, on_parent_end=asked.on_parent_end)
        client.wait(view.id)
        view = client.session(view.id)
        found = answer_in(view, client.steps(view.id).items)
    if as_json:
        echo_json(found)
    elif found["answered"]:
        click.echo(found["text"])
    else:
        tell(f"there is no answer: session {view.id} is {view.status}")
    return DONE if found["answered"] else code_of(view.status)


def _parse(option: str, text: str | None) -> Any:
    try:
        return None if text is None else json.loads(text)
    except ValueError as error:
        raise click.UsageError(f"{option} is no JSON: {error}") from None


def _default(text: str | None) -> Any:
    """A default answer: an object, or a text, which may be one of the choices."""
    if text is None:
        return None
    return _parse("--default", text) if text.lstrip().startswith("{") else {"text": text}
