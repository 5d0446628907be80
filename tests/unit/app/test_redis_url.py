"""URLs of Redis: one spelling for both clients, and errors that name the parameter."""

from __future__ import annotations

import pytest
from redis.connection import SSLConnection

from app.redis_url import normalize, tls_options
from app.settings import Settings
from leadhand.errors import SettingInvalid


@pytest.mark.parametrize(
    ("url", "normalized"),
    [
        ("redis://h:6379/0", "redis://h:6379/0"),
        ("redis://h?db=2", "redis://h/2"),
        ("redis://h/0?username=u&password=a%2Fb", "redis://u:a%2Fb@h/0"),
        ("rediss://:p@h/1", "rediss://:p@h/1?ssl_cert_reqs=required"),
        ("rediss://h/0?ssl_cert_reqs=CERT_NONE", "rediss://h/0?ssl_cert_reqs=none"),
        ("unix:///run/redis.sock?db=1", "unix:///run/redis.sock?db=1"),
        ("unix://:p%2Fw@/run/redis.sock", "unix://:p%2Fw@/run/redis.sock"),
        ("amqp://h//?ssl=1", "amqp://h//?ssl=1"),
    ],
)
def test_each_parameter_has_one_spelling(url: str, normalized: str) -> None:
    assert normalize(url, "LEADHAND_REDIS_URL") == normalized


@pytest.mark.parametrize(
    "query",
    [
        "ssl_ca_data=-----BEGIN%20CERTIFICATE-----%0Aabc%0A",
        "ssl_include_verify_flags=VERIFY_X509_STRICT",
        "ssl_exclude_verify_flags=VERIFY_X509_STRICT%2CVERIFY_X509_PARTIAL_CHAIN",
        "ssl_min_version=771&ssl_ciphers=DEFAULT&ssl_password=p",
    ],
)
def test_each_parameter_of_tls_is_that_of_both_clients(query: str) -> None:
    url = normalize(f"rediss://h/0?{query}&ssl_cert_reqs=none", "LEADHAND_REDIS_URL")
    options = tls_options(url)
    assert options is not None
    assert {"ssl_cert_reqs", *(one.partition("=")[0] for one in query.split("&"))} == {*options}
    SSLConnection(**options)  # type: ignore[arg-type]


@pytest.mark.parametrize(
    ("url", "text"),
    [
        ("rediss://:secret@h/0?ssl_cert_reqs=maybe", "give required, optional or none"),
        ("rediss://:secret@h/0?ssl_ca_cert=/x", "did you mean ssl_ca_certs?"),
        ("rediss://:secret@h/0?ssl_ca_certs=/nowhere/ca.pem", "/nowhere/ca.pem"),
        ("redis://:secret@h/0?ssl_cert_reqs=none", "TLS needs the scheme rediss://"),
        ("redis://:secret@h/0?colour=red", "there is no such parameter"),
        ("redis://:secret@h:port/0", "port"),
        ("redis://:secret@h/0?socket_timeout=1", "socket_timeout=...': Leadhand sets this itself"),
        ("rediss://:secret@h/0?health_check_interval=5", "Leadhand sets this itself"),
        ("redis://:secret@h/0?protocol=3", "Leadhand sets this itself"),
        ("redis://:secret@h/0?max_connections=3", "Leadhand sets this itself"),
        ("rediss://:secret@h/0?ssl_validate_ocsp=1", "Leadhand asks no OCSP server"),
        ("rediss://:secret@h/0?ssl_include_verify_flags=NEW", "ssl_include_verify_flags"),
        ("rediss://:secret@h/0?ssl_min_version=new", "ssl_min_version"),
    ],
)
@pytest.mark.parametrize("setting", ["LEADHAND_REDIS_URL", "LEADHAND_BROKER_URL"])
def test_what_cannot_be_used_is_named_without_the_password(
    setting: str, url: str, text: str
) -> None:
    with pytest.raises(SettingInvalid) as caught:
        Settings.from_env({"LEADHAND_REDIS_URL": "redis://h/0", "HOME": "/h", setting: url})
    assert setting in str(caught.value)
    assert text in str(caught.value)
    assert "secret" not in str(caught.value)
