"""The options that commands which start sessions have in common, and what they read from them."""

from __future__ import annotations

import sys
from collections.abc import Callable, Iterable, Iterator, Mapping
from contextlib import contextmanager
from pathlib import Path
from typing import TYPE_CHECKING, Any, TypeVar

import click

if TYPE_CHECKING:
    from leadhand.models.folder_settings import FolderSettings
    from leadhand.models.views.session import BudgetLine, SessionView

_F = TypeVar("_F", bound=Callable[..., Any])
_RUBRICS = (".md", ".markdown")
F = TypeVar("F", bound=Callable[..., Any])
#: Option -> the budget's field, its type, its metavar and its help.
_BUDGET_OPTIONS = {
    "max_cost": ("cost_usd", float, "USD", "Limit on the cost that its agents report."),
    "max_tokens": ("tokens", int, "N", "Limit on input and output tokens."),
    "max_steps": ("steps", int, "N", "Limit on steps."),
    "max_total_iterations": ("iterations", int, "N", "Limit on iterations of all its loops."),
    "max_wall": (
        "wall_s",
        float,
        "S",
        "Limit on seconds; stopped time does not count.",
    ),
    "max_stage_stops": ("stage_stops", int, "N", "Limit on failed runs of one phase."),
    "max_stops": ("stops", int, "N", "Limit on failed runs of all its phases."),
}
#: Where a command keeps the variables until its client is opened.
_META = "leadhand.env"
_PYTHON = "leadhand.python"
#: As the TASK: read it from standard input.
STDIN = "-"


def loop_options(command: _F) -> _F:
    """Adds the options of a loop to a command: timeouts, attempts and conversation."""
    for option in reversed(_OPTIONS):
        command = option(command)
    return command


#: Of the commands that start loops, also those of a plan's tasks.
baseline_option = click.option(
    "--baseline/--no-baseline",
    default=None,
    help="Whether checkers that are commands also run once before the first doer, so that each"
    " check says whether it was red before the work (yes).",
)
protect_option = click.option(
    "--protect",
    "protected",
    metavar="PATTERN",
    multiple=True,
    callback=lambda _context, _option, patterns: patterns or None,
    help="Files that the doer must not change, such as 'tests/**' or conftest.py: otherwise the"
    " session ends, tampered; may be repeated.",
)
on_protected_option = click.option(
    "--on-protected",
    type=click.Choice(["terminate", "ask"]),
    help="Whether such a change ends the session, or a person decides about it (terminate).",
)
_OPTIONS: tuple[Callable[[Any], Any], ...] = (
    click.option(
        "--doer-timeout",
        "--timeout",
        "timeout_s",
        type=float,
        metavar="S",
        help="Seconds for a doer (3600).",
    ),
    click.option(
        "--doer-attempts",
        type=int,
        metavar="N",
        help="How often a doer may be started in one iteration until it succeeds (1).",
    ),
    click.option(
        "--checker-timeout",
        "checker_timeout_s",
        type=float,
        metavar="S",
        help="Seconds for each checker (300).",
    ),
    click.option(
        "--conversation",
        type=click.Choice(["fresh", "continue"]),
        help="Whether each iteration begins a new conversation with the agent, or continues the"
        " last one (fresh).",
    ),
    baseline_option,
    protect_option,
    on_protected_option,
)


def checker_of(text: str, cwd: str | None) -> str | Mapping[str, Any]:
    """Parses a `--checker` option: a checker as documents write it, or a rubric's path from here.

    >>> checker_of("lint: ruff check .", None)
    'lint: ruff check .'
    """
    from pydantic import ValidationError

    from leadhand.models.documents import Checker

    if (rubric := _rubric_of(text, cwd)) is not None:
        return rubric
    try:
        checker = Checker.model_validate(text)
    except ValidationError:
        return text  # the document names the error with its field
    rubric = _rubric_of(checker.rubric, cwd) if checker.rubric is not None else None
    if rubric is None:
        return text
    return {**checker.model_dump(include=checker.model_fields_set), **rubric}


def _rubric_of(text: str, cwd: str | None) -> Mapping[str, str] | None:
    """The rubric that a text names: a file of the working folder, or else of this one."""
    name = text.strip()
    if not name.lower().endswith(_RUBRICS):
        return None
    if cwd is None or Path(cwd, name).is_file():
        return {"rubric": name} if Path(cwd or ".", name).is_file() else None
    return {"rubric": str(Path(name).resolve())} if Path(name).is_file() else None


#: The budget's field of each option.
BUDGET_FIELDS = {name: field for name, (field, *_) in _BUDGET_OPTIONS.items()}


def budget_options(command: F) -> F:
    """Adds a command-line option for each limit of a session's budget."""
    for name, (_, type_, metavar, text) in reversed(_BUDGET_OPTIONS.items()):
        flag = "--" + name.replace("_", "-")
        command = click.option(flag, name, type=type_, metavar=metavar, help=text)(command)
    return command


def pop_budget(options: dict[str, Any]) -> dict[str, float]:
    """Moves the budget's options out of a command's options; returns the limits that are set."""
    taken = {field: options.pop(name, None) for name, (field, *_) in _BUDGET_OPTIONS.items()}
    return {field: limit for field, limit in taken.items() if limit is not None}


def usage_lines(view: SessionView) -> Iterator[str]:
    """Formats a session's cost and tokens, and each limit of which at least a tenth is used."""
    counters = view.counters
    if counters.cost_usd or counters.input_tokens or counters.output_tokens:
        yield (
            f"used     ${counters.cost_usd:.4f}, tokens {counters.input_tokens} read,"
            f" {counters.output_tokens} written"
        )
    for name, line in view.budget.items():
        if line.used * 10 >= line.limit:
            yield f"budget   {name} {_short(line)}"


def _short(line: BudgetLine) -> str:
    return f"{round(line.used, 4):g} of {round(line.limit, 4):g}"


def env_options(command: _F) -> _F:
    """Adds the options --env, --env-file and --python to a command."""
    for option in reversed(_ENV_OPTIONS):
        command = option(command)
    return command


def passed_variables() -> Mapping[str, str]:
    """Returns the variables that --env and --env-file of the running command give; --env wins."""
    context = click.get_current_context(silent=True)
    held: Mapping[str, Mapping[str, str]] = {} if context is None else context.meta.get(_META, {})
    return {**held.get("file", {}), **held.get("env", {})}


def chosen_python() -> str | None:
    """Returns the value of the running command's option --python; None if it was not given."""
    context = click.get_current_context(silent=True)
    return None if context is None else context.meta.get(_PYTHON)


def _keep_python(context: click.Context, _option: click.Parameter, given: str | None) -> None:
    import shutil

    if given is None:
        return
    found = shutil.which(Path(given).expanduser())
    if found is None:
        raise click.BadParameter(f"{given} is no program; give the path of an interpreter")
    # Not resolved: the link is what makes a virtual environment.
    context.meta[_PYTHON] = str(Path(found).absolute())


def _keep_env(context: click.Context, _option: click.Parameter, given: tuple[str, ...]) -> None:
    _keep(context, "env", dict(_values(given)))


def _keep_file(context: click.Context, _option: click.Parameter, given: tuple[Path, ...]) -> None:
    values: dict[str, str] = {}
    for file in given:
        values |= _read(file)
    _keep(context, "file", values)


def _keep(context: click.Context, part: str, values: Mapping[str, str]) -> None:
    from leadhand.models.session_environment import check_values

    try:
        check_values(values)
    except ValueError as error:
        raise click.BadParameter(str(error)) from None
    context.meta.setdefault(_META, {})[part] = values


def _values(texts: tuple[str, ...]) -> Iterator[tuple[str, str]]:
    """Each NAME=VALUE, and each NAME with its value in this environment."""
    from leadhand.settings import environment

    held = environment()
    for text in texts:
        name, sign, value = text.partition("=")
        if not sign and name not in held:
            hint = "export it, or give it as NAME=VALUE"
            raise click.BadParameter(f"{name} is not set here; {hint}")
        yield name, value if sign else held[name]


def _read(file: Path) -> dict[str, str]:
    """The variables of a file: lines of NAME=VALUE, without empty lines and comments."""
    from leadhand.models.session_environment import is_explicit_only

    try:
        lines = file.read_text(encoding="utf-8").splitlines()
    except UnicodeDecodeError:
        raise click.BadParameter(f"{file} is not UTF-8; save it as UTF-8") from None
    values: dict[str, str] = {}
    for number, line in enumerate(lines, 1):
        text = line.strip().removeprefix("export ").strip()
        if not text or text.startswith("#"):
            continue
        name, sign, value = text.partition("=")
        if not sign:
            raise click.BadParameter(f"line {number} of {file} is not NAME=VALUE")
        name = name.strip()
        if is_explicit_only(name):
            why = f"line {number} of {file} sets {name}, which changes how programs start"
            raise click.BadParameter(f"{why}; leave it out, or pass it with --env {name}=VALUE")
        values[name] = _unquoted(value.strip())
    return values


def _unquoted(value: str) -> str:
    """The value without the quotation marks around it.

    >>> _unquoted('"a b"'), _unquoted("it's")
    ('a b', "it's")
    """
    is_quoted = len(value) > 1 and value[0] == value[-1] and value[0] in "'\""
    return value[1:-1] if is_quoted else value


_ENV_OPTIONS: tuple[Callable[[Any], Any], ...] = (
    click.option(
        "--env",
        metavar="NAME[=VALUE]",
        multiple=True,
        expose_value=False,
        callback=_keep_env,
        help="A variable for the doers and checkers, by default with its value here; may be"
        " repeated. Stored encrypted, and never shown.",
    ),
    click.option(
        "--env-file",
        metavar="FILE",
        multiple=True,
        type=click.Path(exists=True, dir_okay=False, path_type=Path),
        expose_value=False,
        callback=_keep_file,
        help="Lines of NAME=VALUE, as --env; may be repeated.",
    ),
    click.option(
        "--python",
        metavar="PATH",
        expose_value=False,
        callback=_keep_python,
        help="The Python that runs its functions (that of this command, in embedded services).",
    ),
)


def child_options(command: _F) -> _F:
    """Adds the options --key and --on-parent-end, and those of env_options, to a command."""
    command = env_options(command)
    for option in reversed(_CHILD_OPTIONS):
        command = option(command)
    return command


_CHILD_OPTIONS: tuple[Callable[[Any], Any], ...] = (
    click.option(
        "--key",
        metavar="NAME",
        help="Start the session once: the same NAME again is the same session. In a doer, different"
        " names start two child sessions with equal documents.",
    ),
    click.option(
        "--on-parent-end",
        type=click.Choice(["abort", "let-go-on"]),
        help="In a doer: what happens to the child session when the attempt or its session ends"
        " (abort).",
    ),
)


def worktree_option(command: F) -> F:
    """Adds the options --worktree and --no-prepare to a command."""
    without = click.option(
        "--no-prepare",
        is_flag=True,
        help="With --worktree: do not run the command that leadhand.toml prepares the folder with.",
    )
    option = click.option(
        "--worktree",
        is_flag=True,
        help="Work in a git worktree of the folder's repository, or in a copy of a plain folder;"
        " `leadhand apply` brings the work home.",
    )
    return option(without(command))


def worktree_field(cwd: str | None, *, worktree: bool, no_prepare: bool) -> object:
    """Returns the `worktree` field of a document: options from leadhand.toml, or true or false.

    Raises ClickException for a file that is not valid, and for a command in it that the user has
    not approved: it comes with a clone.
    """
    if not worktree:
        if no_prepare:
            raise click.UsageError("--no-prepare needs --worktree: only that prepares a folder")
        return False
    from leadhand.cli.guards.config import searched_folders
    from leadhand.models.folder_settings import (
        FILE,
        FolderSettingInvalid,
        TomlUnreadable,
        read_section,
        read_toml,
    )
    from leadhand.settings import environment

    file = searched_folders(Path(cwd or "."), environment())[-1] / FILE
    try:
        text, content = read_toml(file)
        options = read_section(file, content, "worktree")
    except (TomlUnreadable, FolderSettingInvalid) as error:
        raise click.ClickException(str(error)) from None
    if options is None:
        return True
    if no_prepare:
        options = options.model_copy(update={"prepare": None})
    if options.prepare is not None:
        _require_approval(file, text, options.prepare)
    return options.model_dump(exclude={"leave_out"})  # sessions in any folder have that


def _require_approval(file: Path, text: str, command: str) -> None:
    from leadhand.cli.approvals import why_unapproved
    from leadhand.models.text import plain
    from leadhand.settings import environment

    why = why_unapproved(file, text, environment())
    if why is not None:
        raise click.ClickException(
            f"{why}, and its [worktree] would run: {plain(command)}; look at it, then run"
            f" `leadhand trust {file.parent}`, or leave the command out with --no-prepare"
        )


class SessionSettings:
    """The settings for sessions of one folder. All readers raise ClickException."""

    def __init__(self, cwd: str | None) -> None:
        self._folder = Path(cwd or ".").absolute()

    def read_protected(self) -> list[dict[str, object]]:
        """Return the patterns of `[protect] paths`."""
        with _in_one_sentence():
            return [one.model_dump(mode="json") for one in self._settings.protected()]

    def read_quarantine(self) -> list[dict[str, object]]:
        """Return the quarantined tests."""
        with _in_one_sentence():
            return [one.model_dump(mode="json") for one in self._settings.quarantine()]

    def read_leave_out(self) -> dict[str, object]:
        """Return the by-products as a field of documents; {} if they are not set."""
        with _in_one_sentence():
            found = self._settings.leave_out()
        return {} if found is None else {"leave_out": [*found]}

    @property
    def _settings(self) -> FolderSettings:
        from leadhand.models.folder_settings import FolderSettings
        from leadhand.settings import environment

        return FolderSettings(self._folder, environment())


@contextmanager
def _in_one_sentence() -> Iterator[None]:
    from leadhand.models.folder_settings import FolderSettingInvalid

    try:
        yield
    except FolderSettingInvalid as error:
        raise click.ClickException(str(error)) from None


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


def read_task(
    task: str | None, file: Path | None, *, name: str = "TASK", option: str = "--task-file"
) -> str:
    """Returns a task's text from an argument, a file, or with `-` stdin. Raises UsageError."""
    if file is not None:
        if task is not None:
            raise click.UsageError(f"give {name} or {option}, not both")
        return _decoded(file.read_bytes(), str(file), name)
    if task is None:
        raise click.UsageError(
            f"Missing argument {name!r}; give it, - for standard input, or {option}"
        )
    if task == STDIN:
        return _decoded(sys.stdin.buffer.read(), "standard input", name)
    return task


def _decoded(data: bytes, source: str, name: str) -> str:
    try:
        text = data.decode("utf-8-sig")
    except UnicodeDecodeError:
        raise click.ClickException(f"{source} is not UTF-8 text; save it as UTF-8") from None
    if not text.strip():
        raise click.ClickException(f"{source} is empty; write the {name.lower()}")
    return text
