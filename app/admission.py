"""What a document may ask for here: refused at submit, not an hour later on a worker."""

from __future__ import annotations

import os
import shlex
import shutil
import socket
from collections.abc import Collection, Iterator, Sequence
from pathlib import Path, PurePosixPath
from typing import NamedTuple

from app.addresses import PORTS, destination, refusal
from app.agents_here import AgentsThere
from app.errors import InvalidDocument
from app.frontends.flow_children import asked, wanted_tools
from app.frontends.flow_talks import moved
from app.settings import Settings
from app.tools_here import ToolsThere
from app.views import WorkerView
from leadhand.any_document import AnyDocument
from leadhand.documents import (
    Checker,
    LoopDocument,
    PhaseDocument,
    Webhook,
    WorkflowDocument,
)
from leadhand.flow_documents import FlowDocument

#: A shell's own words, which are found on no path.
_BUILTINS = frozenset(shlex.split(
    "'.' : [ alias break cd command continue echo eval exec exit export false for if printf pwd"
    " read set shift test time trap true type ulimit umask unset until wait while '{' '('"
))  # fmt: skip
_SHELL_SIGNS = frozenset("|&;<>()$`\\\"'*?[#~=%!{}\n")


class Where(NamedTuple):
    """The place that a session is bound to, and its folder there."""

    place: str
    folder: str


class Sight(NamedTuple):
    """What can be told from here of programs that checkers name."""

    folder: Path
    #: Where the workers of the place look for programs, None in it for where we do; None alone:
    #: they are on other machines.
    paths: frozenset[str | None] | None


def admit(document: AnyDocument, settings: Settings, workers: Sequence[WorkerView]) -> Where:
    """Where the session will work. Raises InvalidDocument: the field, the value, the way out."""
    place, here, folder = _settled(document, settings, workers)
    if isinstance(document, FlowDocument):
        for fault in _faults(document, place, here, workers):
            raise fault
        return Where(place, str(folder or document.cwd or ""))
    sight = Sight(folder, _search_paths(here, settings)) if folder else None
    agents = AgentsThere(here)
    for where, loop in _loops(document):
        doer = _doer(where, document, loop, agents)
        for number, checker in enumerate(loop.checkers):
            field = f"{where}checkers[{number}]"
            _check_judge(field, checker, loop, doer or agents.default(), agents)
            _check_command(field, checker, sight)
    return Where(place, str(folder or document.cwd or ""))


def faults_here(
    document: FlowDocument, settings: Settings, workers: Sequence[WorkerView]
) -> Iterator[InvalidDocument]:
    """All that a flow would be refused for here."""
    try:
        place, here, _ = _settled(document, settings, workers)
    except InvalidDocument as error:
        yield error
        place, here = "", [*workers]
    yield from _faults(document, place, here, workers)


def _settled(
    document: AnyDocument, settings: Settings, workers: Sequence[WorkerView]
) -> tuple[str, list[WorkerView], Path | None]:
    """The place, who works there, and the real folder if it can be seen from here."""
    if document.webhook is not None:
        admit_webhook(document.webhook, settings)
    place = _place(document, settings, workers)
    here = [worker for worker in workers if place in ("", worker.place)]
    if workers and not here:
        known = ", ".join(sorted({worker.place for worker in workers}))
        raise InvalidDocument("place", place, f"no worker is there; workers are at {known}")
    folder = _folder(document.cwd, settings, local=place == settings.place)
    check_roots(document.cwd, place, here)
    return place, here, folder


def _faults(
    document: FlowDocument,
    place: str,
    here: Sequence[WorkerView],
    workers: Sequence[WorkerView],
) -> Iterator[InvalidDocument]:
    agents = AgentsThere(here)
    yield from _faults_of_agents(document, agents)
    yield from _faults_of_talks(document, agents)
    yield from _faults_of_tools(document, place, ToolsThere(here, workers))


def _faults_of_agents(document: FlowDocument, agents: AgentsThere) -> Iterator[InvalidDocument]:
    for one in asked(document):
        try:
            name = one.agent or _default(one.field, agents)
            if name is not None:
                agents.check(one.field, name, model_field=one.model_field, model=one.model)
        except InvalidDocument as error:
            of_agent = one.agent is not None and error.field == one.field
            more = ", or let the flow's `agents` lead to another" if of_agent else ""
            yield InvalidDocument(error.field, error.value, f"{error.hint}{more}")


def _default(field: str, agents: AgentsThere) -> str | None:
    """Who is asked where nobody is named; None where that is not known here.

    Raises InvalidDocument where it is nobody.
    """
    name = agents.default()
    if name is None and agents.known:
        hint = "name one; no worker has a default agent (LEADHAND_DEFAULT_AGENT)"
        raise InvalidDocument(field, None, hint)
    return name


def _faults_of_talks(document: FlowDocument, agents: AgentsThere) -> Iterator[InvalidDocument]:
    for one in moved(document):
        if agents.keeps_to_folders(one.agent):
            hint = (
                f"agent {one.agent!r} finds a conversation only in the folder where it began, and"
                f" {one.identifier!r} began in {one.began_in!r} at {one.began};"
                " give this step another identifier or that folder, or reset the conversation"
            )
            yield InvalidDocument(f"{one.path}.working_folder", one.folder, hint)


def _faults_of_tools(
    document: FlowDocument, place: str, tools: ToolsThere
) -> Iterator[InvalidDocument]:
    wanted = list(wanted_tools(document))
    faults = [fault for one in wanted if (fault := tools.fault(one)) is not None]
    yield from faults
    used = {one.tool for one in wanted}
    if not faults and not place and not tools.everywhere(used) and not tools.places_with(used):
        hint = "no one place has all of these tools, and one session works at one; put them there"
        yield InvalidDocument("steps", ", ".join(sorted(used)), hint)


def admit_webhook(webhook: Webhook, settings: Settings) -> None:
    """Raises InvalidDocument where nothing may be sent to its receiver."""
    to = destination(webhook.url)
    why = refusal(to, settings.webhook_hosts)
    if why is not None:
        ports = " or ".join(map(str, PORTS))
        hint = f"{why}; give https to a public address at port {ports}, or let the operator name"
        shown = f"{to.scheme}://{to.authority}"  # the rest may hold what only its owner may know
        raise InvalidDocument("webhook.url", shown, f"{hint} the host in LEADHAND_WEBHOOK_HOSTS")


def check_roots(cwd: str | None, place: str, here: Sequence[WorkerView]) -> None:
    """Raises InvalidDocument unless a worker of the place may work in the folder."""
    rooted = [worker for worker in here if worker.roots]
    if cwd is None or not rooted or len(rooted) < len(here):
        return
    if not any(_below(cwd, root) for worker in rooted for root in worker.roots):
        roots = ", ".join(sorted({root for worker in rooted for root in worker.roots}))
        raise InvalidDocument("cwd", cwd, f"at {place!r} working folders must lie beneath {roots}")


def other_home(
    place: str,
    cwd: str,
    workers: Sequence[WorkerView],
    *,
    agents: Collection[str],
    tools: Collection[str] = (),
) -> str | None:
    """The one other place whose roots hold the folder and that has these agents and tools, where
    nobody is at this one; None where there is none, or there are several.
    """
    if any(worker.place == place for worker in workers):
        return None
    holding = {w.place for w in workers if any(_below(cwd, root) for root in w.roots)}
    there, shelves = AgentsThere(workers), ToolsThere(workers)
    able = [one for one in holding if there.can(one, agents) and shelves.can(one, tools)]
    return able[0] if len(able) == 1 else None


def _place(document: AnyDocument, settings: Settings, workers: Sequence[WorkerView]) -> str:
    """The place that is named, else one that holds the folder, our own before others.

    Without a folder any place will do, an empty name, unless its agents keep conversations there.
    """
    cwd = document.cwd
    if document.place is not None:
        return document.place
    if cwd is None:
        return _home_of(document, settings, workers) if isinstance(document, FlowDocument) else ""
    return _place_of(cwd, settings, workers)


def _home_of(flow: FlowDocument, settings: Settings, workers: Sequence[WorkerView]) -> str:
    """Where all that it asks can be used, ours before others; "" for any place."""
    agents, tools = AgentsThere(workers), ToolsThere(workers)
    names = {one.agent for one in asked(flow) if one.agent is not None}
    used = {one.tool for one in wanted_tools(flow)}
    if not agents.keeps(names) and tools.everywhere(used):
        return ""
    able = [place for place in tools.places_with(used) if agents.can(place, names)]
    if not able:
        return settings.place if agents.keeps(names) else ""
    return settings.place if settings.place in able else able[0]


def _place_of(cwd: str, settings: Settings, workers: Sequence[WorkerView]) -> str:
    """Where a folder is worked in. Workers without roots may work in any, if it is there."""
    rooted = {w.place for w in workers if any(_below(cwd, root) for root in w.roots)}
    holding = rooted | {w.place for w in workers if not w.roots}
    if not holding:
        staffed = {w.place for w in workers}
        return settings.place if settings.place in staffed or not staffed else min(staffed)
    others = holding - {settings.place}
    if settings.place in holding and (not others or _may_be_here(cwd)):
        return settings.place
    return min(others & rooted or others)


def _may_be_here(cwd: str) -> bool:
    """Whether a folder is on this machine, as far as we may look."""
    try:
        return Path(cwd).is_dir()
    except PermissionError:
        return True


def _below(cwd: str, root: str) -> bool:
    return PurePosixPath(os.path.normpath(cwd)).is_relative_to(os.path.normpath(root))


def _loops(
    document: LoopDocument | WorkflowDocument,
) -> Iterator[tuple[str, LoopDocument | PhaseDocument]]:
    if isinstance(document, LoopDocument):
        yield "", document
    else:
        for number, phase in enumerate(document.phases):
            yield f"phases[{number}].", phase


def _folder(cwd: str | None, settings: Settings, *, local: bool) -> Path | None:
    """The working folder where it lies on this machine and can be looked into."""
    if cwd is None or not local:
        return None
    folder = Path(cwd)
    try:
        there_is = folder.is_dir()
    except PermissionError:
        return None  # not for our eyes: its workers tell
    if not there_is:
        raise InvalidDocument("cwd", cwd, "there is no such folder; create it or name another")
    real = folder.resolve()
    if settings.roots and not any(real.is_relative_to(r.resolve()) for r in settings.roots):
        roots = ", ".join(str(root) for root in settings.roots)
        raise InvalidDocument("cwd", cwd, f"working folders must lie beneath {roots}")
    return real


def _doer(
    where: str,
    document: LoopDocument | WorkflowDocument,
    loop: LoopDocument | PhaseDocument,
    agents: AgentsThere,
) -> str | None:
    """The agent that works, if it is one. Raises InvalidDocument where it cannot."""
    doer = loop.doer or document.doer
    name = doer.agent if doer is not None else agents.default()
    if name is None:
        if doer is None and agents.known:
            hint = "name one with agent, command or callable; no worker has a default agent"
            raise InvalidDocument(f"{where}doer", None, hint)
        return None
    field = f"{where}doer.agent" if doer is not None else f"{where}doer"
    agents.check(field, name, model_field=f"{where}model", model=loop.model or document.model)
    return name


def _check_judge(
    field: str,
    checker: Checker,
    loop: LoopDocument | PhaseDocument,
    doer: str | None,
    agents: AgentsThere,
) -> None:
    """Raises InvalidDocument unless the agent that judges can be asked."""
    # Whether a rubric asks an agent is in its file, which may change until then.
    asks = checker.prompt is not None or (checker.rubric is not None and checker.agent is not None)
    if not asks:
        return
    name = checker.agent or doer or _default(f"{field}.agent", agents)
    if name is None:
        return
    model = checker.model or loop.checker_model
    where = f"{field}.model" if checker.model else f"{field.rpartition('checkers')[0]}checker_model"
    agents.check(f"{field}.agent" if checker.agent else field, name, model_field=where, model=model)


def _check_command(field: str, checker: Checker, sight: Sight | None) -> None:
    if checker.command is not None and sight is not None:
        program = _program_of(checker.command)
        if program is not None and not _found(program, sight):
            hint = f"{program!r} is not found; install it or give its path"
            raise InvalidDocument(field, checker.command, hint)


def _program_of(command: str) -> str | None:
    """The program that a plain command starts with; None where only the shell can tell."""
    try:
        words = shlex.split(command)
    except ValueError:
        return None
    if not words or words[0] in _BUILTINS or _SHELL_SIGNS.intersection(words[0]):
        return None
    return words[0]


def _found(program: str, sight: Sight) -> bool:
    if "/" in program:
        path = sight.folder / program
        return path.is_file() and os.access(path, os.X_OK)
    return sight.paths is None or any(shutil.which(program, path=p) for p in sight.paths)


def _search_paths(here: Sequence[WorkerView], settings: Settings) -> frozenset[str | None] | None:
    """Where the workers look for programs, as far as those can be looked for from this machine.

    An embedded API whose worker has not told of itself yet speaks for it: they share all.
    """
    if not here:
        return frozenset({None}) if settings.supervisor_pid else None
    if any(worker.host != socket.gethostname() or worker.path is None for worker in here):
        return None
    return frozenset(worker.path for worker in here)
