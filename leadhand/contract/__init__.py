"""What client and server agree on: each operation of the API, declared once, by noun.

A noun's module declares its operations with the models of their queries and bodies. The routes,
scopes, rights of bodies and the OpenAPI document are derived from these when the API starts. The
class of a noun has the methods of both clients.
"""

from __future__ import annotations

from leadhand.contract.task_text import generate_contract

__all__ = ["generate_contract"]
