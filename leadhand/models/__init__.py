"""The models that server and client share: documents, views, problems, verdicts."""

from __future__ import annotations
