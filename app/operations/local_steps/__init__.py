"""Local steps: what the submitter of a session carries out itself, as a worker over REST."""

from __future__ import annotations
