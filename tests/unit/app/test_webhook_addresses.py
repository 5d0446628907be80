"""Where webhooks may go, and where never."""

from __future__ import annotations

import pytest
from pydantic import ValidationError

from app.security.egress import destination, is_public, refusal
from app.settings import Settings
from leadhand.models.documents import LoopDocument, Webhook

NEAR_US = [
    "0.0.0.0", "0.1.2.3", "10.1.2.3", "100.64.0.1", "100.100.100.200", "127.0.0.1",
    "127.255.255.254", "168.63.129.16", "169.254.169.254", "172.16.0.1", "172.31.255.255",
    "192.0.0.192", "192.0.2.1", "192.168.1.1", "198.18.0.1", "198.51.100.7", "203.0.113.9",
    "224.0.0.1", "239.255.255.250", "240.0.0.1", "255.255.255.255",
    "::", "::1", "::127.0.0.1", "::ffff:10.0.0.1", "::ffff:127.0.0.1", "::ffff:169.254.169.254",
    "64:ff9b::7f00:1", "64:ff9b::a9fe:a9fe", "64:ff9b:1::a00:1", "100::1", "2001:db8::1",
    "2002:7f00:1::", "2002:a00:1::1", "fc00::1", "fd00:ec2::254", "fe80::1", "fe80::1%eth0",
    "fec0::1", "ff02::1", "2001:0:4136:e378:8000:63bf:80ff:fffe",
]  # fmt: skip
FAR = ["1.1.1.1", "93.184.215.14", "2606:4700:4700::1111", "64:ff9b::101:101"]


@pytest.mark.parametrize("address", NEAR_US)
def test_an_address_near_us_is_none_of_a_receivers(address):
    assert not is_public(address)


@pytest.mark.parametrize("address", FAR)
def test_an_address_of_the_internet_is(address):
    assert is_public(address)


@pytest.mark.parametrize(
    ("url", "why"),
    [
        ("http://hooks.example/x", "it is not https"),
        ("https://hooks.example:8080/x", "port 8080 is not one of 443, 8443"),
        ("https://127.0.0.1/x", "127.0.0.1 is not a public address"),
        ("https://[::1]/x", "::1 is not a public address"),
        ("https://[::ffff:10.0.0.1]/x", "::ffff:10.0.0.1 is not a public address"),
        ("https://169.254.169.254/latest", "169.254.169.254 is not a public address"),
        ("https://localhost/x", "localhost is not a public address"),
        ("https://LOCALHOST./x", "localhost is not a public address"),
        ("https://a.localhost:8443/x", "a.localhost is not a public address"),
    ],
)
def test_a_url_is_refused_for_what_it_says(url, why):
    told = refusal(destination(Webhook(url=url).url), ())
    assert told is not None
    assert told.replace("::ffff:a00:1", "::ffff:10.0.0.1") == why


@pytest.mark.parametrize("url", ["https://hooks.example/x", "https://1.1.1.1:8443/?a=b"])
def test_a_url_of_the_internet_is_not(url):
    assert refusal(destination(url), ()) is None


@pytest.mark.parametrize(
    ("named", "url", "may"),
    [
        ("127.0.0.1:9000", "http://127.0.0.1:9000/x", True),
        ("127.0.0.1:9000", "http://127.0.0.1:9001/x", False),
        ("127.0.0.1", "http://127.0.0.1:9001/x", True),
        ("[::1]:9000", "http://[::1]:9000/x", True),
        ("hooks.corp", "http://hooks.corp/x", True),
        ("hooks.corp", "http://Hooks.Corp./x", True),
        ("hooks.corp", "http://evil.hooks.corp/x", False),
        ("hooks.corp", "http://hooks.corp.evil/x", False),
    ],
)
def test_the_operator_names_hosts_that_may_be_near(named, url, may):
    assert (refusal(destination(url), [named]) is None) == may


@pytest.mark.parametrize(
    "url",
    [
        "", "hooks.example", "ftp://hooks.example/", "https://", "https:///x", "//hooks.example",
        "https://user:word@hooks.example/", "https://user@hooks.example/", "https://a/x#y",
        "https://a/x y", "https://a/x\r\nHost: b", "https://bücher.example/", "https://a:0/",
        "https://a:70000/", "https://a:x/", "https://[::1/", "https://a\\@b/",
        "https://" + "a" * 2000,
        "javascript:alert(1)", "file:///etc/passwd",
    ],
)  # fmt: skip
def test_a_url_that_cannot_be_called_is_refused(url):
    with pytest.raises(ValidationError):
        Webhook(url=url)


@pytest.mark.parametrize(
    "wrong",
    [
        {"events": []},
        {"events": ["started"]},
        {"secret": "short"},
        {"headers": {}},
    ],
)
def test_a_webhook_that_asks_for_what_there_is_not_is_refused(wrong):
    hook = {"url": "https://hooks.example/x", **wrong}
    with pytest.raises(ValidationError):
        LoopDocument.model_validate({"task": "x", "checkers": ["true"], "webhook": hook})


def test_a_webhook_prints_neither_where_it_goes_nor_its_secret():
    hook = Webhook(url="https://hooks.example/T0KEN", secret="a secret of mine")
    assert "T0KEN" not in repr(hook)
    assert "a secret" not in repr(hook)


def test_hosts_are_read_from_the_environment():
    settings = Settings.from_env({"LEADHAND_WEBHOOK_HOSTS": "127.0.0.1:9000, hooks.corp,[::1]"})
    assert settings.webhook_hosts == ("127.0.0.1:9000", "hooks.corp", "[::1]")
