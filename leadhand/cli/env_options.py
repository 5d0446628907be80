"""The options that pass variables to the doers and checkers of a new session."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping
from pathlib import Path
from typing import Any, TypeVar

import click

_F = TypeVar("_F", bound=Callable[..., Any])
#: Where a command keeps the variables until its client is opened.
_META = "leadhand.env"
_PYTHON = "leadhand.python"


def env_options(command: _F) -> _F:
    """Adds the options --env, --env-file and --python to a command."""
    for option in reversed(_OPTIONS):
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


_OPTIONS: tuple[Callable[[Any], Any], ...] = (
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
