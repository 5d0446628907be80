"""`leadhand mcp`: serves the API's operations as tools to agents."""

from __future__ import annotations

import click


@click.command("mcp")
def mcp_command() -> int:
    """Serve Leadhand's tools over MCP, on standard input and output.

    An agent's configuration starts it. Inside a session it has the session's own tools, such as
    report_status; elsewhere it uses LEADHAND_URL and LEADHAND_TOKEN, or the user's services.
    """
    import asyncio

    from leadhand.cli.connect import reach, tell
    from leadhand.client.client import AsyncClient
    from leadhand.mcp.server import serve
    from leadhand.settings import ClientSettings

    session = ClientSettings.from_env().session
    with reach(needs_worker=True) as (url, token):
        asyncio.run(serve(AsyncClient(url, token, say=tell), session))
    return 0
