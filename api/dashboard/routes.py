"""The routes of the dashboard, under /ui."""

from __future__ import annotations

import logging
from functools import partial
from http import HTTPStatus
from pathlib import Path

from flask import Blueprint, Response, g, redirect, request

from api.dashboard import actions, render
from api.dashboard.access import Access, Hosts, NotSignedIn, SignIn
from api.dashboard.pages import (
    again,
    bulk,
    compare,
    economics,
    fleet,
    flows,
    inbox,
    plans,
    session,
    sessions,
)
from api.dashboard.saved_views import SavedViews
from api.dashboard.stream import Streams
from api.fanout import StreamLimit
from api.problems import refusal_of
from api.request_log import request_id
from app.engine import Engine
from app.security.api_tokens import Scope
from app.security.browser_sessions import BrowserSessions
from app.settings import Settings
from app.store.tokens import BrowserStore
from leadhand.errors import StoreAway
from leadhand.models.problems import Problem

log = logging.getLogger("leadhand.api")

NAME = "dashboard"
_HERE = Path(__file__).parent
#: How long a browser keeps a vendored file: its name has its version.
_VENDORED_S = 365 * 24 * 3600


def make_browsers(settings: Settings, engine: Engine) -> BrowserSessions:
    """Creates the object that manages sign-ins of browsers (links and cookies) for an API."""
    return BrowserSessions(
        engine.store.part(BrowserStore),
        engine.tokens,
        secret=settings.secret,
        other=settings.secret_other,
        operator=settings.api_token,
    )


def blueprint(
    engine: Engine, browsers: BrowserSessions, hosts: Hosts, streams: StreamLimit
) -> Blueprint:
    """Returns the Flask blueprint with the routes of the dashboard."""
    routes = Blueprint(NAME, __name__, url_prefix="/ui", template_folder="templates")
    access = Access(browsers, hosts)
    render.install(routes)
    routes.before_request(access.admit)
    routes.after_request(render.add_headers)
    routes.register_error_handler(Exception, _Errors(access).answer)
    routes.app_context_processor(lambda: _shell(engine))
    SignIn(engine, access).add_to(routes)
    for part in (
        inbox,
        sessions,
        bulk,
        session,
        again,
        compare,
        flows,
        plans,
        fleet,
        economics,
        actions,
    ):
        part.add_to(routes, engine)
    SavedViews(engine).add_to(routes)
    Streams(engine, streams).add_to(routes)
    routes.add_url_rule("/static/<path:name>", "static", _static)
    routes.add_url_rule("", "home", lambda: redirect("/ui/inbox"))
    routes.add_url_rule("/<path:rest>", "unknown", _unknown)
    return routes


def _shell(engine: Engine) -> dict[str, object]:
    """What the frame of every page shows."""
    visitor = g.get("visitor")
    if visitor is None or request.blueprint != NAME:
        return {}
    scopes = visitor.scopes
    return {
        "who": visitor.signature,
        "may_control": Scope.CONTROL in scopes,
        "may_submit": Scope.SUBMIT in scopes,
        "needing": partial(_needing, engine),
    }


def _needing(engine: Engine) -> int:
    """How many sessions need a person; 0 if that cannot be read, so that an error has its page."""
    try:
        return engine.attention.count()
    except StoreAway:
        return 0


def _static(name: str) -> Response:
    """A script, style or image of the dashboard."""
    path = (_HERE / "static" / name).resolve()
    known = _KINDS.get(path.suffix)
    if known is None or not path.is_file() or _HERE / "static" not in path.parents:
        return render.page("error.html", status=404, title="No such file", problem=None)
    response = Response(path.read_bytes(), mimetype=known)
    age = _VENDORED_S if "vendor" in name else 0
    response.headers["Cache-Control"] = f"public, max-age={age}" if age else "no-cache"
    response.add_etag()
    response.make_conditional(request)
    return response


_KINDS = {".js": "text/javascript", ".css": "text/css", ".svg": "image/svg+xml"}


def _unknown(rest: str) -> Response:
    problem = Problem(title="No such page", status=404, detail=f"/ui/{rest[:100]} is no page")
    return render.page("error.html", status=404, title="No such page", problem=problem)


class _Errors:
    """Answers failed requests with a page, or with a message for the page that sent them."""

    def __init__(self, access: Access) -> None:
        self._access = access

    def answer(self, error: Exception) -> Response:
        if isinstance(error, NotSignedIn):
            return self._sign_in(error)
        refusal = refusal_of(error)
        problem = refusal.problem.model_copy(update={"request_id": request_id()})
        title = problem.title or HTTPStatus(problem.status).phrase
        if request.headers.get("HX-Request"):
            response = render.page("notice.html", status=problem.status, problem=problem)
            response.headers["HX-Retarget"] = "#notices"
            response.headers["HX-Reswap"] = "beforeend"
        else:
            response = render.page(
                "error.html", status=problem.status, title=title, problem=problem
            )
        return response

    def _sign_in(self, error: NotSignedIn) -> Response:
        if request.headers.get("HX-Request"):
            response = Response(status=401)
            response.headers["HX-Redirect"] = "/ui/sign-in"
            return response
        return render.page("sign_in.html", status=401, why=error.why)
