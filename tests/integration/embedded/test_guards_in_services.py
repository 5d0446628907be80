"""Stop guards in the services of a folder."""

from __future__ import annotations

from leadhand.client.client import Client
from leadhand.local.api_probe import LocalApi
from leadhand.models.guards import StopReport
from tests.http_world import TOKEN, served


def test_guards_do_not_keep_the_services_of_a_folder_running(store_url: str) -> None:
    with served(store_url) as running, Client(running.url, TOKEN) as client:
        probe = LocalApi(running.port, TOKEN)
        client.report_stop("s-1", StopReport(stop="one"))
        assert not probe.has_live_session()
        running.submit()
        client.report_stop("s-2", StopReport(stop="one"))  # a guard is the newest session
        assert probe.has_live_session()
