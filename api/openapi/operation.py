"""An operation of the API and its responses, as the OpenAPI document describes them."""

from __future__ import annotations

from collections.abc import Mapping
from typing import NamedTuple

from pydantic import BaseModel

from api import requests

JSON = "application/json"


class ApiResponse(NamedTuple):
    """A response: its status, description, body by media type, and headers."""

    status: int
    what: str
    body: Mapping[str, object] = {}
    headers: tuple[str, ...] = ()


class Operation(NamedTuple):
    """An operation of the API, by endpoint."""

    endpoint: str
    method: str
    summary: str
    responses: tuple[ApiResponse, ...]
    query: type[BaseModel] | None = requests.NoQuery
    #: The type of the request body; None if it is not read.
    body: object | None = None
    body_required: bool = False
    headers: tuple[str, ...] = ()
    #: Problem statuses in addition to those implied by its parameters and body.
    refuses: tuple[int, ...] = ()
    #: The path parameter of other operations that takes the `id` of its response.
    makes: str | None = None


def replies(
    model: object, what: str, status: int = 200, *, headers: tuple[str, ...] = ()
) -> ApiResponse:
    """Declares a JSON response of an operation: its status, description and model."""
    return ApiResponse(status, what, {JSON: model}, headers)
