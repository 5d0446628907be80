"""The Celery application and its settings, each with a reason."""

from __future__ import annotations

from urllib.parse import parse_qsl, quote, urlencode, urlsplit

from celery import Celery

from app.redis_url import tls_options
from app.settings import Settings
from tasks import transport

#: Time-out of sockets to the broker; without it a half-open one blocks for ever. A worker takes up
#: to four times as long to notice, and must be back within 30 s.
SOCKET_TIMEOUT_S = 4
CONNECT_TIMEOUT_S = 5
#: High, normal and low; 0 is first.
PRIORITIES = (0, 5, 9)
#: Seconds between checks that an idle connection still answers.
HEALTH_CHECK_S = 4


def make_celery(settings: Settings) -> Celery:
    """Creates the Celery application, makes it current and installs Leadhand's Redis transport."""
    transport.install()
    celery = Celery(
        "leadhand",
        broker=broker_address(settings.broker_url),
        backend="tasks.canvas:SettledBackend",
        set_as_current=True,
    )
    # Without it kombu does not verify the certificate of a rediss:// URL.
    celery.conf.broker_use_ssl = tls_options(settings.broker_url)
    celery.conf.update(
        # The state is in Redis and leases recover lost work, so messages are acknowledged early:
        # a late-acked task makes a 5.7.0 worker exit when Redis restarts.
        task_acks_late=False,
        task_ignore_result=True,
        task_store_errors_even_if_ignored=False,
        task_track_started=False,
        # A reserved message is stranded when its worker dies.
        worker_disable_prefetch=True,
        worker_prefetch_multiplier=1,
        task_serializer="json",
        result_serializer="json",
        accept_content=["json"],
        # For Flower and `celery inspect`.
        worker_send_task_events=True,
        task_send_sent_event=True,
        worker_enable_remote_control=True,
        # The sweep repeats a hint that cannot be sent.
        task_publish_retry_policy={"max_retries": 2, "interval_start": 0, "interval_max": 0.5},
        broker_connection_retry_on_startup=True,
        broker_connection_max_retries=None,
        broker_channel_error_retry=True,
        broker_transport_options={
            "visibility_timeout": 86_400,
            "socket_timeout": SOCKET_TIMEOUT_S,
            "socket_connect_timeout": CONNECT_TIMEOUT_S,
            "socket_keepalive": True,
            "health_check_interval": HEALTH_CHECK_S,
            # A list per queue and priority; each one is polled for, so they are few.
            "priority_steps": list(PRIORITIES),
        },
        worker_hijack_root_logger=False,
        worker_redirect_stdouts=False,
        # On a busy machine a new process may take long to come up; the default kills it after 4 s.
        worker_proc_alive_timeout=30.0,
        # SIGTERM is handled in workers/__main__.py.
        worker_max_tasks_per_child=5000,
    )
    return celery


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
