"""Parses options of the form KEY=VALUE."""

from __future__ import annotations

from collections.abc import Iterable

import click


def pairs_of(texts: Iterable[str], option: str) -> Iterable[tuple[str, str]]:
    """Yields (key, value) of texts KEY=VALUE. Raises ClickException without `=` or for repeats."""
    seen = set[str]()
    for text in texts:
        key, sign, value = text.partition("=")
        if not sign or not key:
            raise click.ClickException(f"{option} is {text!r}; give it as KEY=TEXT")
        if key in seen:
            who = "all" if key == "*" else repr(key)
            raise click.ClickException(f"{option} is given twice for {who}; leave one out")
        seen.add(key)
        yield key, value
