"""Planted faults by subject: each changes one text of the scripts or of a module of app.

The tests must notice each of them. Most are noticed by random walks beside the model.
"""

from __future__ import annotations

from tests.model.faults import (
    adoption,
    artifacts,
    children,
    claims,
    control,
    conversations,
    decisions,
    events,
    folders,
    graphs,
    guards,
    inbox,
    indexes,
    joins,
    leases,
    limits,
    named_locks,
    plans,
    records,
    resume_points,
    retries,
    skips,
    stacks,
    stages,
    sweeps,
    turns,
    usage,
    windows,
)
from tests.model.faults.fault import Fault, noticed

__all__ = ["FAULTS", "Fault", "noticed"]

#: All faults; the ids of their tests follow from their names.
FAULTS: tuple[Fault, ...] = (
    *records.FAULTS,
    *claims.FAULTS,
    *leases.FAULTS,
    *sweeps.FAULTS,
    *retries.FAULTS,
    *skips.FAULTS,
    *joins.FAULTS,
    *turns.FAULTS,
    *children.FAULTS,
    *decisions.FAULTS,
    *control.FAULTS,
    *resume_points.FAULTS,
    *adoption.FAULTS,
    *artifacts.FAULTS,
    *folders.FAULTS,
    *limits.FAULTS,
    *named_locks.FAULTS,
    *guards.FAULTS,
    *windows.FAULTS,
    *conversations.FAULTS,
    *events.FAULTS,
    *inbox.FAULTS,
    *usage.FAULTS,
    *stages.FAULTS,
    *plans.FAULTS,
    *stacks.FAULTS,
    *indexes.FAULTS,
    *graphs.FAULTS,
)
