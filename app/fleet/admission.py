"""Checks a document against the workers' inventories at submit, before any step is queued."""

from __future__ import annotations

import os
import shutil
import socket
from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import NamedTuple

from app.compiler.requirements import AgentNeed, CommandNeed, Requirements, requirements_of
from app.errors import InvalidDocument, SeveralInvalid
from app.fleet.inventory import program_of, why_no_folder, why_no_program
from app.fleet.offers import AgentsThere, ToolsThere
from app.fleet.placement import check_roots, choose_place
from app.security.egress import PORTS, destination, refusal
from app.settings import Settings
from leadhand.flows.documents import AnyDocument
from leadhand.models.documents import Webhook
from leadhand.models.views.fleet import WorkerView


class Where(NamedTuple):
    """The place that a session is bound to, and its folder there."""

    place: str
    folder: str
    #: The folder that it was submitted from: lists find the session there and in those above.
    listed_in: str


class ProgramLookup(NamedTuple):
    """Where the programs of checker commands can be looked up."""

    folder: Path
    #: The PATHs of the workers; None in the set is this process' own PATH. None instead of a set
    #: means that the workers are on other machines.
    paths: frozenset[str | None] | None


def admit(document: AnyDocument, settings: Settings, workers: Sequence[WorkerView]) -> Where:
    """Returns place (worker host) and folder for a session. Raises InvalidDocument if none fit."""
    needs, faults = requirements_of(document), list[InvalidDocument]()
    place, here, folder = "", [*workers], None
    try:
        place, here, folder = _resolve_place(document, needs, settings, workers)
    except InvalidDocument as error:
        faults.append(error)
    lookup = ProgramLookup(folder, _search_paths(here, settings)) if folder else None
    faults += _faults(needs, place, here, workers, lookup)
    if faults:
        raise SeveralInvalid(faults)
    where = str(folder or document.cwd or "")
    return Where(place, where, where)


def faults_here(
    document: AnyDocument, settings: Settings, workers: Sequence[WorkerView]
) -> Iterator[InvalidDocument]:
    """Yields an InvalidDocument for each reason why the live workers could not run a document."""
    needs = requirements_of(document)
    try:
        place, here, _ = _resolve_place(document, needs, settings, workers)
    except InvalidDocument as error:
        yield error
        place, here = "", [*workers]
    yield from _faults(needs, place, here, workers, None)


def _resolve_place(
    document: AnyDocument,
    needs: Requirements,
    settings: Settings,
    workers: Sequence[WorkerView],
) -> tuple[str, list[WorkerView], Path | None]:
    """The place, its workers, and the resolved folder if it is visible to this process."""
    if document.webhook is not None:
        admit_webhook(document.webhook, settings)
    place = choose_place(document, needs, settings, workers)
    here = [worker for worker in workers if place in ("", worker.place)]
    if workers and not here:
        known = ", ".join(sorted({worker.place for worker in workers}))
        raise InvalidDocument("place", place, f"no worker is at this place; workers are at {known}")
    folder = _folder(document.cwd, settings, local=place == settings.place)
    check_roots(document.cwd, place, here, str(settings.worktrees_root))
    return place, here, folder


def _faults(
    needs: Requirements,
    place: str,
    here: Sequence[WorkerView],
    workers: Sequence[WorkerView],
    lookup: ProgramLookup | None,
) -> Iterator[InvalidDocument]:
    agents = AgentsThere(here)
    for one in needs.doers:
        try:
            if isinstance(one, AgentNeed):
                _check_agent(one, agents)
            elif lookup is not None:
                _check_command(one, lookup)
        except InvalidDocument as error:
            yield error
    yield from _faults_of_moves(needs, agents)
    yield from _faults_of_tools(needs, place, ToolsThere(here, workers))


def _check_agent(one: AgentNeed, agents: AgentsThere) -> None:
    """Raises InvalidDocument unless a worker of the place can run the agent."""
    name = one.agent or agents.default()
    if name is None:
        if agents.known:
            raise InvalidDocument(one.unnamed_field, None, one.unnamed_hint)
        return
    try:
        agents.check(one.field, name, model_field=one.model_field, model=one.model)
    except InvalidDocument as error:
        if error.field != one.field:
            raise
        raise InvalidDocument(error.field, error.value, f"{error.hint}{one.other_way}") from None
    if one.conversation_field and not agents.can_resume(name):
        hint = (
            f"agent {name!r} cannot continue a conversation; write thread and resume_args for it in"
            " agents.toml, or leave conversation out"
        )
        raise InvalidDocument(one.conversation_field, "continue", hint)


def _faults_of_moves(needs: Requirements, agents: AgentsThere) -> Iterator[InvalidDocument]:
    for one in needs.moves:
        if agents.resumes_in_same_folder_only(one.agent):
            hint = (
                f"agent {one.agent!r} finds a conversation only in the folder where it began, and"
                f" {one.identifier!r} began in {one.began_in!r} at {one.began};"
                " give this step another identifier or that folder, or reset the conversation"
            )
            yield InvalidDocument(f"{one.path}.working_folder", one.folder, hint)


def _faults_of_tools(
    needs: Requirements, place: str, tools: ToolsThere
) -> Iterator[InvalidDocument]:
    faults = [fault for one in needs.tools for fault in tools.faults(one)]
    yield from faults
    used = needs.tool_names
    if not faults and not place and not tools.everywhere(used) and not tools.places_with(used):
        hint = "no one place has all of these tools, and one session works at one; put them there"
        yield InvalidDocument("steps", ", ".join(sorted(used)), hint)


def admit_webhook(webhook: Webhook, settings: Settings) -> None:
    """Raises InvalidDocument if the egress rules forbid the URL of the webhook."""
    to = destination(webhook.url)
    why = refusal(to, settings.webhook_hosts)
    if why is not None:
        ports = " or ".join(map(str, PORTS))
        hint = f"{why}; give https to a public address at port {ports}, or let the operator name"
        shown = f"{to.scheme}://{to.authority}"  # the path and query may contain a secret
        raise InvalidDocument("webhook.url", shown, f"{hint} the host in LEADHAND_WEBHOOK_HOSTS")


def _folder(cwd: str | None, settings: Settings, *, local: bool) -> Path | None:
    """The resolved working folder; None if it is on another machine or not readable."""
    if cwd is None or not local:
        return None
    folder = Path(cwd)
    try:
        fault = why_no_folder(folder)
    except PermissionError:
        return None  # its workers will report whether it exists
    if fault:
        raise InvalidDocument("cwd", cwd, fault)
    real = folder.resolve()
    allowed = (*settings.roots, settings.worktrees_root)
    if settings.roots and not any(real.is_relative_to(one.resolve()) for one in allowed):
        roots = ", ".join(str(root) for root in settings.roots)
        raise InvalidDocument("cwd", cwd, f"working folders must lie beneath {roots}")
    return real


def _check_command(one: CommandNeed, lookup: ProgramLookup) -> None:
    """Raises InvalidDocument unless the command's program is found."""
    program = program_of(one.command)
    fault = _why_not_found(program, lookup) if program is not None else ""
    if fault:
        raise InvalidDocument(one.field, one.command, fault)


def _why_not_found(program: str, lookup: ProgramLookup) -> str:
    if "/" in program:
        fault = why_no_program(lookup.folder / program)
        return fault and f"{program!r}: {fault}"
    if lookup.paths is None or any(shutil.which(program, path=p) for p in lookup.paths):
        return ""
    found = (shutil.which(program, os.F_OK, path) for path in lookup.paths)
    there = next(filter(None, found), None)
    fault = why_no_program(Path(there)) if there else "it is not found; install it or give its path"
    return f"{there or program!r}: {fault}"


def _search_paths(here: Sequence[WorkerView], settings: Settings) -> frozenset[str | None] | None:
    """The PATHs of the workers if they are on this machine, else None.

    An embedded API whose worker has not reported yet uses its own PATH, which is the same.
    """
    if not here:
        return frozenset({None}) if settings.supervisor_pid else None
    if any(worker.host != socket.gethostname() or worker.path is None for worker in here):
        return None
    return frozenset(worker.path for worker in here)
