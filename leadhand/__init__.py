"""What users import and type: the client, the builder and the command line."""

from __future__ import annotations
