"""Reads the URL of a Redis, so that it means the same to the store's client and to the broker's.

redis-py and kombu spell some parameters differently, ignore or refuse each other's, and disagree
about the default: kombu does not verify a certificate unless it is asked to.
"""

from __future__ import annotations

from collections.abc import Mapping
from inspect import signature
from pathlib import Path
from urllib.parse import SplitResult, parse_qsl, quote, urlencode, urlsplit, urlunsplit

from redis.connection import (
    URL_QUERY_ARGUMENT_PARSERS,
    AbstractConnection,
    Connection,
    ConnectionPool,
    SSLConnection,
    parse_url,
)

from leadhand.errors import SettingInvalid
from leadhand.models.suggestions import nearest

SCHEMES = ("redis", "rediss", "unix")
_FILES = ("ssl_ca_certs", "ssl_certfile", "ssl_keyfile")
#: All of redis-py but those of OCSP, which take more than a text.
_TLS = tuple(
    name
    for name in signature(SSLConnection).parameters
    if name.startswith("ssl_") and "ocsp" not in name
)
_PLAIN = ("db", "username", "password")
#: Other parameters of redis-py, such as socket_timeout.
_SET = URL_QUERY_ARGUMENT_PARSERS.keys() | {
    name
    for kind in (AbstractConnection, Connection, ConnectionPool, SSLConnection)
    for name in signature(kind).parameters
}
#: Spellings of `ssl_cert_reqs`: those of redis-py, of kombu and of the module ssl.
_CERT_REQS = {
    f"{prefix}{word}": word
    for word in ("required", "optional", "none")
    for prefix in ("", "cert_", "ssl.cert_")
}


def normalize(url: str, setting: str) -> str:
    """Returns a Redis URL with each parameter spelled as redis-py does, and the defaults of TLS.

    Other URLs, such as that of another broker, are returned unchanged. Raises SettingInvalid for
    one that cannot be used, without its password.
    """
    parts = urlsplit(url)
    if parts.scheme not in SCHEMES:
        return url
    query = dict(parse_qsl(parts.query, keep_blank_values=True))
    is_tls = parts.scheme == "rediss"
    for name in query:
        _require_known(setting, name, is_tls=is_tls)
    if is_tls:
        query["ssl_cert_reqs"] = _cert_reqs(setting, query.get("ssl_cert_reqs", "required"))
        for name in _FILES:
            _require_file(setting, name, query.get(name))
    bare = url.partition("?")[0] if parts.scheme == "unix" else _with_login(parts, query)
    normalized = f"{bare}?{urlencode(query, quote_via=quote)}" if query else bare
    try:
        parse_url(normalized)  # type: ignore[no-untyped-call]
    except ValueError as error:
        raise SettingInvalid(setting, f"{parts.scheme}://...", str(error)) from None
    return normalized


def _with_login(parts: SplitResult, query: dict[str, str]) -> str:
    """The URL without a query; takes login and database out of `query`, which kombu ignores."""
    user, password = query.pop("username", ""), query.pop("password", "")
    netloc, path = parts.netloc, parts.path
    if "@" not in netloc and (user or password):
        netloc = f"{quote(user, safe='')}:{quote(password, safe='')}@{netloc}"
    if (database := query.pop("db", "")) != "":
        path = f"/{database}"
    return urlunsplit(parts._replace(netloc=netloc, path=path, query=""))


def tls_options(url: str) -> Mapping[str, object] | None:
    """Returns the parameters of TLS as redis-py reads them, for kombu; None for other URLs."""
    if urlsplit(url).scheme != "rediss":
        return None
    read: Mapping[str, object] = parse_url(url)  # type: ignore[no-untyped-call]
    found = {name: value for name, value in read.items() if name.startswith("ssl_")}
    return {"ssl_cert_reqs": "required", **found}


def _require_known(setting: str, name: str, *, is_tls: bool) -> None:
    if name in _TLS and not is_tls:
        raise SettingInvalid(setting, f"...?{name}=...", "TLS needs the scheme rediss://")
    if name in _SET - {*_TLS, *_PLAIN}:
        why = "Leadhand sets this itself" if "ocsp" not in name else "Leadhand asks no OCSP server"
        raise SettingInvalid(setting, f"...?{name}=...", f"{why}; leave it out")
    if name not in _TLS + _PLAIN:
        names = _PLAIN + (_TLS if is_tls else ())
        near = nearest(name, names)
        hint = f"did you mean {near}?" if near else f"known are {', '.join(names)}"
        raise SettingInvalid(setting, f"...?{name[:40]}=...", f"there is no such parameter; {hint}")


def _cert_reqs(setting: str, given: str) -> str:
    """The word for how certificates are verified.

    >>> [_cert_reqs("X", word) for word in ("none", "CERT_NONE", "Required", "ssl.CERT_OPTIONAL")]
    ['none', 'none', 'required', 'optional']
    """
    found = _CERT_REQS.get(given.strip().lower())
    if found is None:
        raise SettingInvalid(
            setting, f"...?ssl_cert_reqs={given[:40]}", "give required, optional or none"
        )
    return found


def _require_file(setting: str, name: str, given: str | None) -> None:
    if given is None:
        return
    try:
        Path(given).open("rb").close()
    except OSError as error:
        why = f"the file cannot be read: {error.strerror}"
        raise SettingInvalid(setting, f"...?{name}={given[:200]}", why) from None
