"""Egress rules: the hosts that webhooks may be sent to, as a protection against SSRF (pure)."""

from __future__ import annotations

from collections.abc import Iterable
from ipaddress import IPv4Address, IPv6Address, ip_address, ip_network
from typing import NamedTuple
from urllib.parse import urlsplit

#: Ports that are allowed for hosts outside LEADHAND_WEBHOOK_HOSTS.
PORTS = (443, 8443)
_PORT_OF = {"https": 443, "http": 80}

#: Special networks (cloud metadata, protocols) that `is_global` does not exclude.
_SPECIAL = tuple(map(ip_network, ("168.63.129.16/32", "192.0.0.0/24", "192.88.99.0/24")))
#: NAT64 prefixes: the last four bytes are an IPv4 address.
_TRANSLATED = (ip_network("64:ff9b::/96"), ip_network("64:ff9b:1::/48"))
_UNICAST = ip_network("2000::/3")


class Destination(NamedTuple):
    """The parts of a webhook's URL."""

    scheme: str
    host: str
    port: int
    #: The path and the query.
    target: str

    @property
    def authority(self) -> str:
        """Return host and port as the Host header has them, without a default port.

        >>> destination("https://Hooks.Example:8443/x").authority
        'hooks.example:8443'
        """
        host = f"[{self.host}]" if ":" in self.host else self.host
        return host if self.port == _PORT_OF[self.scheme] else f"{host}:{self.port}"


def destination(url: str) -> Destination:
    """Splits the validated URL of a webhook into scheme, host, port and path."""
    parts = urlsplit(url)
    target = (parts.path or "/") + (f"?{parts.query}" if parts.query else "")
    host = (parts.hostname or "").rstrip(".")
    return Destination(parts.scheme, host, parts.port or _PORT_OF[parts.scheme], target)


def is_trusted(to: Destination, hosts: Iterable[str]) -> bool:
    """Whether the operator's list of `host` or `host:port` contains the host.

    >>> is_trusted(destination("http://127.0.0.1:9000/"), ["127.0.0.1:9000"])
    True
    """
    named = [urlsplit(f"//{host}") for host in hosts]
    return any(to.host == one.hostname and one.port in (None, to.port) for one in named)


def refusal(to: Destination, hosts: Iterable[str]) -> str | None:
    """Returns why a URL is forbidden; None if it is allowed or must be resolved first."""
    if is_trusted(to, hosts):
        return None
    if to.scheme != "https":
        return "it is not https"
    if to.port not in PORTS:
        return f"port {to.port} is not one of {', '.join(map(str, PORTS))}"
    if to.host == "localhost" or to.host.endswith(".localhost"):
        return f"{to.host} is not a public address"
    try:
        literal = ip_address(to.host)
    except ValueError:
        return None  # A host name: its IP is checked when it is resolved.
    return None if is_public(str(literal)) else f"{literal} is not a public address"


def is_public(address: str) -> bool:
    """Whether an IP belongs to the public internet.

    >>> [is_public(a) for a in ("93.184.215.14", "10.0.0.1", "::ffff:127.0.0.1")]
    [True, False, False]
    """
    ip = ip_address(address.partition("%")[0])
    if isinstance(ip, IPv6Address):
        inner = _within(ip)
        if inner is not None:
            return is_public(str(inner))
        return ip.is_global and ip in _UNICAST
    special = ip.is_multicast or ip.is_reserved or any(ip in network for network in _SPECIAL)
    return ip.is_global and not special


def _within(ip: IPv6Address) -> IPv4Address | None:
    """The IPv4 address that is embedded in an IPv6 address."""
    if any(ip in network for network in _TRANSLATED):
        return IPv4Address(ip.packed[-4:])
    if ip.teredo is not None:
        return ip.teredo[1]
    return ip.ipv4_mapped or ip.sixtofour
