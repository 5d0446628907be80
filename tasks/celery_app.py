"""The Celery application, and the settings that matter; each has a measured reason."""

from __future__ import annotations

from celery import Celery

from app.settings import Settings
from tasks import transport

#: Seconds that a socket to the broker may stay silent. Without it a half-open one hangs for ever.
#: A worker needs up to four times as long to be sure, and must be back within 30 s.
SOCKET_TIMEOUT_S = 4
CONNECT_TIMEOUT_S = 5
#: High, normal and low; 0 goes first.
PRIORITIES = (0, 5, 9)
#: Seconds between checks that an idle connection still answers.
HEALTH_CHECK_S = 4


def make_celery(settings: Settings) -> Celery:
    """A Celery application for these settings; workers and publishers use the same."""
    transport.install()
    celery = Celery(
        "leadhand",
        broker=settings.broker_url,
        backend="tasks.backend:SettledBackend",
        set_as_current=True,
    )
    celery.conf.update(
        # Redis holds the truth and leases find lost work, so messages are acknowledged at once:
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
        # Flower and `celery inspect` see what happens.
        worker_send_task_events=True,
        task_send_sent_event=True,
        worker_enable_remote_control=True,
        # A hint that cannot be sent soon is sent by the sweep.
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
        # TERM is ours to answer: see workers/drain.py.
        worker_max_tasks_per_child=5000,
    )
    return celery
