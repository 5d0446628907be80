"""Regular expressions of names and identifiers, each with a description for error messages."""

from __future__ import annotations

#: The name of an agent, a flow, a place or a key.
NAME = r"^[A-Za-z0-9][A-Za-z0-9_.-]{0,63}$"
#: The name of a flow's input, and of an environment variable.
INPUT = r"^[A-Za-z_][A-Za-z0-9_]{0,63}$"
VARIABLE = r"^[A-Za-z_][A-Za-z0-9_]*$"
#: The identifier of an agent's conversation.
IDENTIFIER = r"^[^|<\x00-\x1f]{1,64}$"
FUNCTION = r"^[A-Za-z_][\w.]*:[A-Za-z_][\w.]*$"
#: The id of a plan's task.
TASK = r"^[a-z0-9][a-z0-9_-]{0,39}$"
#: The name of a lock or the key of a value that a tree of sessions shares, such as a path.
SHARED_NAME = r"^[A-Za-z0-9_][A-Za-z0-9_.:/@+-]{0,199}$"
#: The name of a git branch.
BRANCH = r"^[A-Za-z0-9_][A-Za-z0-9_./@+-]{0,199}$"
#: The id of an agent's own session, such as Claude Code's, or of one of its stops.
AGENT_SESSION = r"^[A-Za-z0-9][A-Za-z0-9_.:-]{0,119}$"
#: The name of a Stop guard's gate or template.
GATE = r"^[a-z][a-z0-9-]{0,39}$"
URL = r"^https?://[!-~]+$"
#: The name of an entry of tools.toml.
TOOL = r"^[A-Za-z][A-Za-z0-9_-]{0,63}$"

_WORDS = {
    NAME: "1 to 64 letters, digits, '_', '.' and '-', with a letter or digit first",
    INPUT: "1 to 64 letters, digits and '_', with no digit first",
    VARIABLE: "letters, digits and '_', with no digit first",
    IDENTIFIER: "1 to 64 characters without '|', '<' and line breaks",
    FUNCTION: "'module:function'",
    TASK: "1 to 40 lower-case letters, digits, '_' and '-', with a letter or digit first",
    SHARED_NAME: "1 to 200 letters, digits, '_', '.', ':', '/', '@', '+' and '-', "
    "with a letter, digit or '_' first",
    BRANCH: "1 to 200 letters, digits, '_', '.', '/', '@', '+' and '-', "
    "with a letter, digit or '_' first",
    AGENT_SESSION: "1 to 120 letters, digits, '_', '.', ':' and '-', with a letter or digit first",
    GATE: "1 to 40 lower-case letters, digits and '-', with a letter first",
    TOOL: "1 to 64 letters, digits, '_' and '-', with a letter first",
    URL: "a URL that begins with http:// or https://",
}


def form_of(pattern: object) -> str | None:
    """Returns the description in words of a known regular expression; None for another one.

    >>> form_of(NAME)
    "1 to 64 letters, digits, '_', '.' and '-', with a letter or digit first"
    """
    return _WORDS.get(str(pattern))


def check_file_pattern(pattern: str) -> str:
    """Returns a pattern of files in the working folder. Raises ValueError for any other."""
    if pattern.startswith("!"):
        raise ValueError(f"{pattern!r} begins with '!'; a pattern only adds files")
    if pattern.startswith("/") or {"..", "."} & {*pattern.split("/")} or not pattern.strip("/"):
        raise ValueError(
            f"{pattern!r} is no path from the working folder; give one such as tests/**"
        )
    if pattern.split("/")[0] == ".git":
        raise ValueError(f"{pattern!r} is git's own folder; name files of the work")
    return pattern
