"""Generates the contract of a loop: its task with everything that its doer must know. Pure."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence


def generate_contract(
    task: str,
    *,
    phase: str = "",
    depends_on: Sequence[str] = (),
    prior_results: Mapping[str, str] | Sequence[str] = (),
    file_scope: Sequence[str] = (),
    verify: Sequence[str] = (),
) -> str:
    """Formats a task and its sections as Markdown, for `send_contract` or an agent.

    `prior_results` are texts, or texts by the name of their phase; empty ones are left out.
    Raises ValueError for an empty task.

    >>> print(generate_contract("Make the tests pass", file_scope=["src/"]))
    Make the tests pass
    <BLANKLINE>
    # File Scope
    <BLANKLINE>
    - `src/`
    """
    if not task.strip():
        raise ValueError("task is empty; write what is to be done")
    sections = _sections(phase, depends_on, prior_results, file_scope, verify)
    return "\n\n".join([task.strip(), *sections])


def _sections(
    phase: str,
    depends_on: Sequence[str],
    prior_results: Mapping[str, str] | Sequence[str],
    file_scope: Sequence[str],
    verify: Sequence[str],
) -> Iterator[str]:
    if phase.strip():
        yield f"# Phase\n\n{phase.strip()}"
    if depends_on:
        yield "# Dependencies\n\n" + _list(depends_on)
    results = [text for text in _results(prior_results) if text]
    if results:
        yield "# Prior Phase Results\n\n" + "\n\n---\n\n".join(results)
    if file_scope:
        yield "# File Scope\n\n" + _list([f"`{path}`" for path in file_scope])
    if verify:
        yield "# Verification\n\n" + _list(verify)


def _results(prior: Mapping[str, str] | Sequence[str]) -> Iterator[str]:
    if isinstance(prior, str):
        raise TypeError("prior_results is a str; give a list of texts, or texts by phase name")
    if isinstance(prior, Mapping):
        yield from (f"**{name}**: {text.strip()}" for name, text in prior.items() if text.strip())
    else:
        yield from (text.strip() for text in prior)


def _list(lines: Sequence[str]) -> str:
    return "\n".join(f"- {line}" for line in lines)
