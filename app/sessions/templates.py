"""Fills in the template of a graph's step: its arguments and its condition."""

from __future__ import annotations

from collections.abc import Mapping

from pydantic import JsonValue

from app.core.addresses import SessionRef
from app.core.artifacts import ArtifactSource
from app.core.program import Program, Template
from app.errors import ValueMissing
from app.history.values import NOT_RUN, StepValue, read_values
from app.store.store import Store
from leadhand.graphs.values import Held, fill, is_true, value_at
from leadhand.models.references import (
    Reference,
    ReferenceFault,
    Target,
    condition_of,
    target_of,
    whole,
)

#: The inputs that say whether the step runs, and why it does not.
WHEN, SKIPPED = "when", "skipped"


class _SkippedNeed(Exception):
    """A step that is referred to without a default was skipped."""


def fill_template(
    store: Store,
    ref: SessionRef,
    program: Program,
    template: Template,
    artifacts: ArtifactSource,
    *,
    address: str,
    item: JsonValue,
) -> dict[str, JsonValue]:
    """Returns a graph step's arguments with references filled in, or why it is skipped.

    Raises ValueMissing. A step is skipped if its condition is false, or if a step whose result it
    refers to without a default was skipped.
    """
    wanted = template.names.values()
    values = read_values(store, ref, program, wanted, artifacts, waits=template.waits)
    unmet = _unmet_join(program, template, values)
    if unmet is not None:
        return {WHEN: False, SKIPPED: unmet}
    scope = _Scope(template, values, address, item)
    try:
        if template.when is not None and not scope.is_met(template.when):
            return {WHEN: False, SKIPPED: f"its condition was not met: {template.when}"}
        return {WHEN: True, "arguments": scope.fill(template.arguments)}
    except _SkippedNeed as need:
        return {WHEN: False, SKIPPED: str(need)}
    except ReferenceFault as fault:
        raise ValueMissing(fault.text, address, fault.why) from None


def _unmet_join(
    program: Program, template: Template, values: Mapping[str, StepValue]
) -> str | None:
    """Why a step is skipped by its join; None if it is met."""
    succeeded = [_has_succeeded(values[node], template.join) for node in template.waits]
    if template.join not in ("all", "any") or (all if template.join == "all" else any)(succeeded):
        return None
    if template.join == "any":
        return "none of the steps that it waits for succeeded"
    name = program.node(template.waits[succeeded.index(False)]).label
    return f"{name!r}, for which it waits, did not succeed"


def _has_succeeded(value: StepValue, join: str | None) -> bool:
    """Whether a step succeeded; a for_each for `all` with all of its items, else with one."""
    if value.skipped is not None or value is NOT_RUN:
        return False
    return (all if join == "all" or not value.succeeded else any)(value.succeeded)


class _Scope:
    """The values that the references of one step may name."""

    def __init__(
        self,
        template: Template,
        values: Mapping[str, StepValue],
        address: str,
        item: JsonValue,
    ) -> None:
        self._template = template
        self._values = values
        self._address = address
        self._item = item

    def is_met(self, when: str) -> bool:
        """Whether a condition is met. Raises ReferenceFault."""
        condition = condition_of(when)
        reference = whole(condition.text)
        assert reference is not None
        return is_true(self._resolve(reference)) is not condition.is_negated

    def fill(self, value: JsonValue) -> JsonValue:
        """A value with all references replaced. Raises ReferenceFault."""
        return fill(value, self._resolve)

    def _resolve(self, reference: Reference) -> JsonValue:
        target = target_of(reference, self._template.names)
        return value_at(reference, target, self._held(reference, target))

    def _held(self, reference: Reference, target: Target) -> Held:
        match target.kind:
            case "input":
                return Held(self._template.inputs[target.name])
            case "item":
                return Held(self._item)
            case "index":
                return Held(int(self._address.rpartition("#")[2]))
            case _:
                found = self._values[self._template.names[target.name]]
                if found.skipped is not None and reference.default is None:
                    raise _SkippedNeed(f"{target.name!r}, to which it refers, was skipped")
                return found.held
