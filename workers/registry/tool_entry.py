"""One entry of tools.toml: a command, an HTTP request or an MCP server."""

from __future__ import annotations

import json
import re
from collections.abc import Callable, Iterator, Mapping
from typing import Annotated, Literal, Self
from urllib.parse import urlsplit

from pydantic import BeforeValidator, Field, JsonValue, field_validator, model_validator

from leadhand.models import patterns
from workers.processes.environment import OURS
from workers.registry.agent_entry import Entry, Variable, Word

_TOKEN = re.compile(r"\{\{|\}\}|\{([A-Za-z_][A-Za-z0-9_]*)\}")
_LITERALS = {"{{": "{", "}}": "}"}
#: The name of a tool that is a command or a request, and of a server.
ToolId = Annotated[str, Field(pattern=patterns.TOOL)]
ArgumentName = Annotated[str, Field(pattern=patterns.INPUT)]
Seconds = Annotated[float, Field(gt=0, le=30 * 24 * 3600, strict=False)]
_Variables = Annotated[tuple[Variable, ...], Field(strict=False)]
_HeaderName = Annotated[str, Field(pattern=r"^[A-Za-z0-9-]{1,100}$")]
_HeaderValue = Annotated[str, Field(pattern=r"^[ -~]*$", max_length=4_000)]
_Headers = dict[_HeaderName, _HeaderValue]
_Type = Literal["string", "integer", "number", "boolean", "array", "object"]
#: How a result is read.
Form = Literal["text", "json"]
Method = Literal["GET", "HEAD", "POST", "PUT", "PATCH", "DELETE"]
#: Methods that repeat without another effect.
_SAFE = ("GET", "HEAD")
_WITH_BODY = ("POST", "PUT", "PATCH")
_OF_COMMANDS = frozenset({"command", "env"})
_OF_REQUESTS = frozenset({"url", "method", "headers", "body"})


def names_in(text: str) -> Iterator[str]:
    """Yields the names of the placeholders in a text; `{{` and `}}` are literal braces.

    >>> list(names_in("{a}-{{b}}-{c}"))
    ['a', 'c']
    """
    yield from (found[1] for found in _TOKEN.finditer(text) if found[1] is not None)


def fill(text: str, value: Callable[[str], str]) -> str:
    """Replaces each `{name}` placeholder in a text with the value that a function returns for it.

    >>> fill("{a} {{b}}", {"a": "1"}.__getitem__)
    '1 {b}'
    """
    return _TOKEN.sub(lambda found: value(found[1]) if found[1] else _LITERALS[found[0]], text)


def whole_name(text: str) -> str | None:
    """Returns the name of the placeholder if the text is only a placeholder, else None.

    >>> whole_name("{files}"), whole_name("--file={files}")
    ('files', None)
    """
    found = _TOKEN.fullmatch(text)
    return None if found is None else found[1]


def as_text(value: JsonValue) -> str:
    """Converts a value to a program's argument: a text unchanged, anything else as JSON.

    >>> as_text("a b"), as_text(True), as_text([1])
    ('a b', 'true', '[1]')
    """
    return value if isinstance(value, str) else json.dumps(value, ensure_ascii=False)


class OptionRefused(ValueError):
    """A value would be parsed as an option of the program."""

    def __init__(self, part: str, value: str) -> None:
        super().__init__(part, value)
        self.part = part
        self.value = value

    def __str__(self) -> str:
        name = next(names_in(self.part))
        return (
            f"argument {name!r}: it is {self.value[:80]!r}, which the program would take for"
            f' an option; write "--" before "{self.part}" in the command, or give another value'
        )


def argv_of(command: tuple[str, ...], arguments: Mapping[str, JsonValue]) -> tuple[str, ...]:
    """Returns a tool's command line with all placeholders filled in. Raises OptionRefused.

    A part with a placeholder that has no value is left out, and so is a literal option before it;
    a list that is a part of its own becomes several parts.

    >>> argv_of(("wc", "{flag}", "--", "{files}"), {"files": ["a", "-b"]})
    ('wc', '--', 'a', '-b')
    >>> argv_of(("grep", "-m", "{most}", "x"), {})
    ('grep', 'x')
    """
    found: list[str] = []
    is_past = False
    for before, part in zip(("", *command), command, strict=False):
        texts = _filled(part, arguments)
        if not texts and not is_past and _is_option(before):
            found.pop()  # or it would take the next part for its value
        refused = [text for text in texts if text.startswith("-")]
        if refused and not (is_past or part.startswith("-") or _is_number(part, arguments)):
            raise OptionRefused(part, refused[0])
        found += texts
        is_past = is_past or part == "--"
    return tuple(found)


def _filled(part: str, arguments: Mapping[str, JsonValue]) -> list[str]:
    """What one part of the command becomes."""
    if any(name not in arguments for name in names_in(part)):
        return []
    name = whole_name(part)
    value = arguments[name] if name is not None else None
    if isinstance(value, list):
        return [as_text(one) for one in value]
    return [fill(part, lambda key: as_text(arguments[key]))]


def _is_option(part: str) -> bool:
    """Whether the part is an option that may take the next part for its value."""
    is_literal = not any(names_in(part))
    return is_literal and part.startswith("-") and part not in ("-", "--") and "=" not in part


def _is_number(part: str, arguments: Mapping[str, JsonValue]) -> bool:
    """Whether the part is one argument that is a number: `-1` is no option."""
    name = whole_name(part)
    return name is not None and isinstance(arguments[name], int | float)


def _short(value: object) -> object:
    """`name = "string"` is short for `name = {type = "string"}`."""
    return {"type": value} if isinstance(value, str) else value


def _forms(value: object) -> object:
    """The forms of a server's results. Raises ValueError; a union's own error names no fix."""
    given = [*value.values()] if isinstance(value, dict) else [value]
    if not all(one in ("text", "json") for one in given):
        raise ValueError('write "text" or "json", or a table: {TOOL = "json"}')
    return value


class Argument(Entry):
    """One argument of a tool: a part of JSON Schema."""

    type: _Type | None = None
    description: Annotated[str, Field(max_length=1_000)] = ""
    #: Whether a call must give it; by default if there is no default.
    required: bool | None = None
    default: JsonValue = None
    enum: list[JsonValue] | None = None
    #: Of a list: the schema of its items.
    items: dict[str, JsonValue] | None = None

    @property
    def is_required(self) -> bool:
        """Whether each call must give the argument."""
        has_default = "default" in self.model_fields_set
        return self.required if self.required is not None else not has_default

    @property
    def json_schema(self) -> dict[str, JsonValue]:
        """Return the JSON Schema of the argument."""
        return self.model_dump(exclude_unset=True, exclude={"required"}, exclude_none=True)


class DeclaredTool(Entry):
    """A tool that is a command or an HTTP request."""

    description: Annotated[str, Field(max_length=2_000)] = ""
    #: Without it, each placeholder is a required text.
    arguments: dict[ArgumentName, Annotated[Argument, BeforeValidator(_short)]] | None = None
    #: A program and its arguments; without a placeholder, the arguments are JSON on its input.
    command: Annotated[tuple[Word, ...], Field(min_length=1, strict=False)] | None = None
    #: Variables of the worker's environment that the program gets.
    env: _Variables = ()
    #: Variables that it gets and cannot run without.
    needs_env: _Variables = ()
    url: Annotated[str, Field(pattern=patterns.URL, max_length=2_000)] | None = None
    method: Method | None = None
    #: `{NAME}` in a value is replaced by the variable NAME, one of `needs_env`.
    headers: _Headers = Field(default_factory=dict)
    #: How the arguments that the URL does not name are sent; by default as the method allows.
    body: Literal["json", "form", "query"] | None = None
    #: The form of the result: by default JSON for a response that says so, else text.
    output: Form | None = None
    timeout_s: Seconds | None = None
    #: Whether a second call has no further effect, so that it may be repeated after a loss.
    idempotent: bool | None = None

    @field_validator("env", "needs_env")
    @classmethod
    def _not_ours(cls, value: tuple[str, ...]) -> tuple[str, ...]:
        return without_ours(value)

    @model_validator(mode="after")
    def _is_one_thing(self) -> Self:
        if (self.command is None) == (self.url is None):
            is_it = "nothing" if self.command is None else "command and url"
            raise ValueError(
                f'it is {is_it}; write command = ["program", "{{argument}}"] or url = "https://..."'
            )
        odd = _OF_REQUESTS if self.url is None else _OF_COMMANDS
        found = sorted(odd.intersection(self.model_fields_set))
        if found:
            raise ValueError(f"{found[0]} has no meaning for a {self.kind}; remove it")
        return self

    @model_validator(mode="after")
    def _placeholders_are_known(self) -> Self:
        for name in self._named:
            if self.arguments is not None and name not in self.arguments:
                known = ", ".join(self.arguments) or "none"
                raise ValueError(
                    f"{{{name}}} is no argument; declare it in arguments (there: {known}),"
                    " or write {{ and }} for braces"
                )
        if self.url is not None:
            _check_url(self.url)
        if self.command is not None and any(names_in(self.command[0])):
            raise ValueError(
                "an argument cannot choose the program; write one entry for each program"
            )
        for value in self.headers.values():
            unknown = next((n for n in names_in(value) if n not in self.needs_env), None)
            if unknown is not None:
                raise ValueError(
                    f"the header's {{{unknown}}} is no variable of needs_env; add it there"
                )
        return self

    @property
    def kind(self) -> Literal["command", "http"]:
        """Return whether the tool is a command or an HTTP request."""
        return "http" if self.url is not None else "command"

    @property
    def verb(self) -> Method:
        """Return the HTTP method: as declared, else POST for a JSON or form body, else GET."""
        return self.method or ("POST" if self.body in ("json", "form") else "GET")

    @property
    def sends(self) -> Literal["json", "form", "query"]:
        """Return how arguments that are not in the URL are sent: as `json`, `form` or `query`."""
        return self.body or ("json" if self.verb in _WITH_BODY else "query")

    @property
    def may_repeat(self) -> bool:
        """Whether a second call has no further effect: as declared, else for safe HTTP methods."""
        return (
            self.idempotent
            if self.idempotent is not None
            else self.url is not None and (self.verb in _SAFE)
        )

    @property
    def variables(self) -> tuple[str, ...]:
        """Return the names of the worker's environment variables that the tool gets."""
        return (*self.env, *self.needs_env)

    @property
    def feeds_arguments(self) -> bool:
        """Whether the program gets its arguments as JSON on standard input."""
        return not self._named

    @property
    def _named(self) -> tuple[str, ...]:
        """The arguments that placeholders name."""
        texts = self.command if self.url is None else (self.url,)
        return tuple(dict.fromkeys(name for text in texts or () for name in names_in(text)))

    @property
    def url_arguments(self) -> tuple[str, ...]:
        """Return the names of the arguments that the URL contains."""
        return self._named

    @property
    def json_schema(self) -> dict[str, JsonValue]:
        """Return the JSON Schema of the tool's arguments."""
        declared = self.arguments
        if declared is None:
            named = self._named
            properties: dict[str, JsonValue] = {name: {"type": "string"} for name in named}
            takes_any = self.url is not None or not named
            return _object(properties, [*named], takes_any=takes_any)
        schemas: dict[str, JsonValue] = {n: one.json_schema for n, one in declared.items()}
        required: list[JsonValue] = [n for n, one in declared.items() if one.is_required]
        return _object(schemas, required, takes_any=False)


class McpServer(Entry):
    """A server of tools that speaks the Model Context Protocol, over stdio or streamable HTTP."""

    #: The program of a server that speaks over its standard input and output.
    command: Annotated[str, Field(min_length=1)] | None = None
    args: Annotated[tuple[str, ...], Field(strict=False)] = ()
    #: Variables of the worker's environment that the program gets.
    env: _Variables = ()
    needs_env: _Variables = ()
    #: The address of a server that speaks over HTTP.
    url: Annotated[str, Field(pattern=patterns.URL, max_length=2_000)] | None = None
    headers: _Headers = Field(default_factory=dict)
    timeout_s: Seconds | None = None
    #: Whether all tools, or these, may be called again after a loss.
    idempotent: bool | Annotated[tuple[str, ...], Field(strict=False)] = False
    #: The form of the texts that all tools, or these, return; `*` is any other tool.
    output: Annotated[Form | dict[str, Form], BeforeValidator(_forms)] = "text"
    #: The tools that are offered; by default all.
    tools: Annotated[tuple[Word, ...], Field(strict=False)] | None = None

    @field_validator("env", "needs_env")
    @classmethod
    def _not_ours(cls, value: tuple[str, ...]) -> tuple[str, ...]:
        return without_ours(value)

    @model_validator(mode="after")
    def _is_one_thing(self) -> Self:
        if (self.command is None) == (self.url is None):
            is_it = "nothing" if self.command is None else "command and url"
            raise ValueError(f'it is {is_it}; write command = "program" or url = "https://..."')
        odd = {"headers"} if self.url is None else {"args", "env"}
        found = sorted(odd.intersection(self.model_fields_set))
        if found:
            of = "a command" if self.url is None else "a server with a url"
            raise ValueError(f"{found[0]} has no meaning for {of}; remove it")
        for value in self.headers.values():
            unknown = next((n for n in names_in(value) if n not in self.needs_env), None)
            if unknown is not None:
                raise ValueError(
                    f"the header's {{{unknown}}} is no variable of needs_env; add it there"
                )
        return self

    @property
    def variables(self) -> tuple[str, ...]:
        """Return the names of the worker's environment variables that the server gets."""
        return (*self.env, *self.needs_env)

    def may_repeat(self, tool: str) -> bool:
        """Whether a tool of the server may be called again after its attempt was lost."""
        marked = self.idempotent
        return marked if isinstance(marked, bool) else tool in marked

    def form_of(self, tool: str) -> Form:
        """Return how a text that a tool of the server returns is read: as `text` or `json`."""
        if not isinstance(self.output, dict):
            return self.output
        return self.output.get(tool) or self.output.get("*", "text")


def without_ours(names: tuple[str, ...]) -> tuple[str, ...]:
    """Returns the variable names unchanged. Raises ValueError for one that only Leadhand sets."""
    if any(name.startswith(OURS) for name in names):
        raise ValueError(f"variables that begin with {OURS} are not passed on; remove it")
    return names


def missing_variable(names: tuple[str, ...], held: Mapping[str, str]) -> str | None:
    """Returns the first of the variables that is not set; None if all are."""
    return next((name for name in names if not held.get(name)), None)


def _check_url(url: str) -> None:
    parts = urlsplit(url)
    if parts.username is not None or not parts.hostname:
        raise ValueError("the url needs a host, and has no user or password; use headers")
    if any(names_in(parts.netloc)):
        raise ValueError("an argument cannot choose the host; write one entry for each host")


def _object(
    properties: dict[str, JsonValue], required: list[JsonValue], *, takes_any: bool
) -> dict[str, JsonValue]:
    return {
        "type": "object",
        "properties": properties,
        "required": required,
        "additionalProperties": takes_any,
    }
