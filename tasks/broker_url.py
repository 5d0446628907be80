"""Converts the broker's URL to kombu's form."""

from __future__ import annotations

from urllib.parse import parse_qsl, quote, urlencode, urlsplit


def broker_address(url: str) -> str:
    """Converts a Redis URL to one for kombu: `unix://` to its scheme, `rediss://` without options.

    The options of TLS are a setting of Celery's. Other URLs are returned unchanged.

    >>> broker_address("unix:///run/redis.sock?db=1")
    'redis+socket:///run/redis.sock?virtual_host=1'
    >>> broker_address("unix://user:secret@/run/redis.sock")
    'redis+socket://user:secret@/run/redis.sock?virtual_host=0'
    >>> broker_address("redis://host:6379/1")
    'redis://host:6379/1'
    >>> broker_address("rediss://host:6379/1?ssl_cert_reqs=none")
    'rediss://host:6379/1'
    """
    parts = urlsplit(url)
    if parts.scheme == "rediss":
        return url.partition("?")[0]
    if parts.scheme != "unix":
        return url
    query = dict(parse_qsl(parts.query))
    login = parts.netloc
    if "password" in query and not login:
        user, password = query.pop("username", ""), query.pop("password")
        login = f"{quote(user, safe='')}:{quote(password, safe='')}@"
    query = {"virtual_host": query.pop("db", "0")} | query
    return f"redis+socket://{login}{parts.path}?{urlencode(query)}"
