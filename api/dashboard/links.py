"""The REST route that makes a sign-in link for a browser."""

from __future__ import annotations

from flask import Blueprint, Response, g

from api import requests
from api.dashboard.hosts import Hosts
from api.responses import answer
from app.security.browser_sessions import LINK_S, BrowserSessions
from leadhand.models.views import SignInLink


def blueprint(browsers: BrowserSessions, hosts: Hosts) -> Blueprint:
    """Returns the Flask blueprint with the route that makes sign-in links."""
    routes = Blueprint("sign_in", __name__, url_prefix="/v1/sign-in-links")

    def link() -> Response:
        requests.query(requests.NoQuery)
        requests.body(requests.NoBody)
        hosts.check_host()
        secret = browsers.make_link(g.visitor.token)
        url = f"{hosts.base_url}/ui/sign-in#{secret}"
        return answer(SignInLink(url=url, expires_s=LINK_S), 201)

    routes.add_url_rule("", "link", link, methods=["POST"])
    return routes
