"""A Redis behind TLS: the store's link and the broker's verify its certificate by the same rule."""

from __future__ import annotations

import asyncio
import socket
import ssl
import threading
from collections.abc import Iterator
from contextlib import closing, suppress
from datetime import UTC, datetime, timedelta
from functools import partial
from ipaddress import ip_address
from pathlib import Path
from urllib.parse import quote, urlsplit

import pytest
from cryptography import x509
from cryptography.hazmat.primitives import hashes, serialization
from cryptography.hazmat.primitives.asymmetric import ec
from cryptography.x509.oid import NameOID
from kombu.exceptions import OperationalError

from app.redis_url import normalize
from app.settings import Settings
from app.store.store import Store, connect
from leadhand.errors import StoreUnfit
from tasks.bootstrap import examine, make_engine
from tasks.celery_app import make_celery
from tests.fleet import Fleet
from tests.integration.embedded.test_redis_addresses import started

_DAY = timedelta(days=1)


class TlsProxy:
    """Speaks TLS with clients, and plainly with the server behind it."""

    def __init__(self, url: str, context: ssl.SSLContext) -> None:
        self._server = urlsplit(url)
        self._context = context
        self._loop = asyncio.new_event_loop()
        self._thread = threading.Thread(target=self._loop.run_forever)
        self._thread.start()
        self._run = partial(asyncio.run_coroutine_threadsafe, loop=self._loop)
        self._listener = self._run(self._listen()).result(timeout=10)
        self.port = self._listener.sockets[0].getsockname()[1]

    def close(self) -> None:
        self._run(self._end()).result(timeout=10)
        self._loop.call_soon_threadsafe(self._loop.stop)
        self._thread.join()
        self._loop.close()

    async def _listen(self) -> asyncio.Server:
        return await asyncio.start_server(self._connect, "127.0.0.1", 0, ssl=self._context)

    async def _end(self) -> None:
        self._listener.close()
        own = asyncio.current_task()
        links = [task for task in asyncio.all_tasks() if task is not own]
        for task in links:
            task.cancel()
        await asyncio.gather(*links, return_exceptions=True)
        for _ in range(20):  # sockets whose handshake failed are closed by callbacks of the loop
            await asyncio.sleep(0)

    async def _connect(self, near: asyncio.StreamReader, back: asyncio.StreamWriter) -> None:
        writers = [back]
        try:
            far, forth = await asyncio.open_connection(self._server.hostname, self._server.port)
            writers.append(forth)
            await asyncio.gather(_copy(near, forth), _copy(far, back))
        finally:
            for writer in writers:  # without waiting for the peer's end of TLS
                writer.transport.abort()


async def _copy(source: asyncio.StreamReader, sink: asyncio.StreamWriter) -> None:
    with suppress(OSError):
        while data := await source.read(65536):
            sink.write(data)
            await sink.drain()
        sink.close()


def make_certificates(folder: Path) -> ssl.SSLContext:
    """The context of a server for 127.0.0.1; its own authority is in `ca.pem`."""
    authority, server = (
        ec.generate_private_key(ec.SECP256R1()),
        ec.generate_private_key(ec.SECP256R1()),
    )
    issuer = x509.Name([x509.NameAttribute(NameOID.COMMON_NAME, "authority of the tests")])
    now = datetime.now(UTC)

    def builder(name: x509.Name, key: ec.EllipticCurvePrivateKey) -> x509.CertificateBuilder:
        made = x509.CertificateBuilder().subject_name(name).issuer_name(issuer)
        made = made.public_key(key.public_key()).serial_number(x509.random_serial_number())
        return made.not_valid_before(now - _DAY).not_valid_after(now + _DAY)

    root = builder(issuer, authority).add_extension(x509.BasicConstraints(True, 0), critical=True)
    name = x509.Name([x509.NameAttribute(NameOID.COMMON_NAME, "redis")])
    hosts = x509.SubjectAlternativeName([x509.IPAddress(ip_address("127.0.0.1"))])
    leaf = builder(name, server).add_extension(hosts, critical=False)
    for file, certificate in (("ca.pem", root), ("server.pem", leaf)):
        signed = certificate.sign(authority, hashes.SHA256())
        (folder / file).write_bytes(signed.public_bytes(serialization.Encoding.PEM))
    key = server.private_bytes(
        serialization.Encoding.PEM, serialization.PrivateFormat.PKCS8, serialization.NoEncryption()
    )
    (folder / "server.key").write_bytes(key)
    context = ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER)
    context.load_cert_chain(folder / "server.pem", folder / "server.key")
    return context


@pytest.fixture(scope="module")
def certificates(tmp_path_factory: pytest.TempPathFactory) -> tuple[Path, ssl.SSLContext]:
    folder = tmp_path_factory.mktemp("certificates")
    return folder, make_certificates(folder)


class Address:
    """The URLs of a Redis behind TLS, for its users."""

    def __init__(self, urls: dict[str, str], port: int, folder: Path) -> None:
        self._urls = {user: urlsplit(url) for user, url in urls.items()}
        self._port = port
        self.authority = f"ssl_ca_certs={quote(str(folder / 'ca.pem'))}"

    def url(self, user: str, query: str = "", host: str = "127.0.0.1") -> str:
        parts = self._urls[user]
        login = parts.netloc.rpartition("@")[0]
        return f"rediss://{login}@{host}:{self._port}{parts.path}" + (f"?{query}" if query else "")


@pytest.fixture
def address(
    store_url: str, broker_url: str, certificates: tuple[Path, ssl.SSLContext]
) -> Iterator[Address]:
    folder, context = certificates
    with closing(TlsProxy(store_url, context)) as proxy:
        yield Address({"api": store_url, "broker": broker_url}, proxy.port, folder)


def fault_of_store(url: str) -> str:
    """Why the store's client does not reach its server; empty if it does."""
    with closing(Store(connect(normalize(url, "LEADHAND_REDIS_URL"), tries=0))) as store:
        try:
            store.ping()
        except StoreUnfit as error:
            return str(error)
        return ""


def fault_of_broker(url: str) -> str:
    settings = Settings(broker_url=normalize(url, "LEADHAND_BROKER_URL"))
    with make_celery(settings) as celery, celery.connection_for_write() as connection:
        try:
            connection.ensure_connection(max_retries=0)
        except OperationalError as error:
            return str(error)
        return ""


def check(address: Address, query: str, *, is_trusted: bool, host: str = "127.0.0.1") -> None:
    store = fault_of_store(address.url("api", query, host))
    broker = fault_of_broker(address.url("broker", query, host))
    if is_trusted:
        assert (store, broker) == ("", "")
    else:
        assert "its certificate is not trusted" in store
        assert "CERTIFICATE_VERIFY_FAILED" in broker


CASES = [
    ("", False),
    ("ssl_check_hostname=true", False),
    ("ssl_check_hostname=false", False),  # of an unknown authority, whatever its host
    *[(f"ssl_cert_reqs={word}", False) for word in ("required", "CERT_REQUIRED", "Required")],
    *[(f"ssl_cert_reqs={word}", False) for word in ("optional", "CERT_OPTIONAL")],
    *[(f"ssl_cert_reqs={word}", True) for word in ("none", "CERT_NONE", "None", "ssl.CERT_NONE")],
    ("AUTHORITY", True),
    ("AUTHORITY&ssl_cert_reqs=CERT_REQUIRED&ssl_min_version=771", True),
]


@pytest.mark.parametrize(("query", "is_trusted"), CASES)
def test_both_links_verify_the_certificate_by_the_same_parameters(
    address: Address, query: str, is_trusted: bool
) -> None:
    check(address, query.replace("AUTHORITY", address.authority), is_trusted=is_trusted)


def test_both_links_verify_the_name_of_the_host(address: Address) -> None:
    for query, is_trusted in (("", False), ("&ssl_check_hostname=false", True)):
        check(address, address.authority + query, is_trusted=is_trusted, host="localhost")


def test_a_server_without_tls_is_named_as_that(store_url: str) -> None:
    url = store_url.replace("redis://", "rediss://")
    client = connect(url, tries=0, timeout_s=0.5)
    with closing(Store(client)) as store, pytest.raises(StoreUnfit) as caught:
        store.ping()
    assert "does it speak TLS at this port?" in str(caught.value)


def test_a_server_that_is_late_with_its_handshake_is_waited_for() -> None:
    with socket.create_server(("127.0.0.1", 0)) as server:  # accepts, and answers nothing
        url = f"rediss://127.0.0.1:{server.getsockname()[1]}/0?ssl_cert_reqs=required"
        engine, celery = make_engine(Settings(redis_url=url, secret="s"))
        celery.close()
        assert examine(engine) == ()
        engine.store.close()


@pytest.mark.parametrize("module", ["api", "workers"])
@pytest.mark.parametrize("setting", ["LEADHAND_REDIS_URL", "LEADHAND_BROKER_URL"])
def test_an_untrusted_certificate_is_refused_at_start_in_one_sentence(
    tmp_path: Path, address: Address, module: str, setting: str
) -> None:
    trusted = {
        "LEADHAND_REDIS_URL": address.url("api", address.authority),
        "LEADHAND_BROKER_URL": address.url("broker", address.authority),
    }
    user = "api" if setting == "LEADHAND_REDIS_URL" else "broker"
    ended = started(tmp_path, module, **{**trusted, setting: address.url(user)})
    assert ended.returncode == 1
    [line] = [line for line in ended.stderr.splitlines() if "is not trusted" in line]
    assert setting in line
    assert "ssl_ca_certs=FILE" in line
    assert "Traceback" not in ended.stderr
    assert "of-the-tests" not in ended.stderr


def test_a_fleet_works_behind_tls(tmp_path: Path, address: Address) -> None:
    urls = [address.url(user, address.authority) for user in ("api", "broker")]
    with closing(Fleet(tmp_path, *urls, lease_s=10)) as fleet:
        fleet.worker("one")
        assert fleet.ended(fleet.loop("true", "true")).status == "completed"
        assert "insecure" not in (tmp_path / "one.log").read_text()
