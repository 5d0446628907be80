"""The write side: submit, control, attempts, answers, outbox, limits and audit."""

from __future__ import annotations
