"""Starts one process of the server: `python -P -m leadhand.serve api|worker|probe|...`.

The server's packages have common names (app, api, tasks, workers), so a wheel holds them in
`leadhand/_server`, where no other program can import them by accident. This module puts that folder
(in a checkout: the root of the repository) first on the `sys.path` of its own process and runs the
service. PYTHONPATH stays as it is: the programs that a worker starts do not inherit the folder.
"""

from __future__ import annotations

import runpy
import sys
from collections.abc import Sequence
from pathlib import Path

#: The module that each service runs.
SERVICES = {
    "api": "api",
    "worker": "workers",
    "probe": "workers.probe",
    "chat": "workers.agents.chat_completion",
    "mcp-client": "workers.tool_servers.client",
    "request": "workers.tools.http_request",
}
#: The exit code of a command line that cannot be used, as argparse has it.
_USAGE = 2


def server_root(package: Path) -> Path:
    """Returns the folder that contains the server's packages."""
    packed = package / "_server"
    return packed if packed.is_dir() else package.parent


def main(arguments: Sequence[str]) -> int:
    """Run the service that the first argument names; the others are its own arguments."""
    name, *own = arguments or [""]
    if name not in SERVICES:
        names = ", ".join(SERVICES)
        sys.stderr.write(f"leadhand.serve: {name!r} is not a service: name one of {names}\n")
        return _USAGE
    sys.path.insert(0, str(server_root(Path(__file__).resolve().parent)))
    sys.argv[1:] = own
    runpy.run_module(SERVICES[name], run_name="__main__", alter_sys=True)
    return 0


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
