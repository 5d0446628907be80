"""The requests of a program that carries out the local steps of its session."""

from __future__ import annotations

from typing import Annotated, Literal

from pydantic import ConfigDict, Field, JsonValue, StrictBool, StringConstraints

from leadhand.models.documents import Document

#: The longest that a claim waits for a step, in seconds.
LONGEST_WAIT_S = 20.0
#: After so many seconds without a claim or beat of any worker a session with ready local steps is
#: stopped.
LOST_AFTER_S = 60.0
#: The most characters of a value as JSON.
VALUE_CHARACTERS = 2 * 1024 * 1024

#: The name of a worker, and its random word for a claim: visible ASCII without separators.
WorkerName = Annotated[str, StringConstraints(pattern=r"^[A-Za-z0-9][A-Za-z0-9_.:-]{0,99}$")]
Nonce = Annotated[str, StringConstraints(pattern=r"^[A-Za-z0-9_-]{8,100}$")]
Address = Annotated[str, StringConstraints(min_length=1, max_length=1_000)]
Why = Literal["failed_step", "timeout", "circuit_open", "invalid_answer", "declined"]


class _Request(Document):
    model_config = ConfigDict(str_strip_whitespace=False)


class ClaimWork(_Request):
    """A claim of the next ready local step."""

    #: The process that claims; attempts are listed under it.
    worker: WorkerName
    #: A new one for each claim. The same one again gets the same step.
    nonce: Nonce
    #: How long to wait for a step.
    wait_s: Annotated[float, Field(strict=True, ge=0, le=LONGEST_WAIT_S)] = 0.0
    #: Whether all other workers of this session have ended: their attempts are lost at once, and
    #: not only when their leases end.
    takes_over: StrictBool = False


class Attempt(_Request):
    """The attempt that a call is about, as its grant names it."""

    address: Address
    fence: Annotated[int, Field(strict=True, ge=1)]
    nonce: Nonce


class BeatWork(Attempt):
    """A heartbeat: it extends the lease of an attempt."""


class SettleWork(Attempt):
    """The outcome of an attempt."""

    #: released: it was interrupted and does not count; the step is ready again.
    outcome: Literal["succeeded", "failed", "released"]
    #: What the tool returned: any JSON, of at most 2 MiB.
    value: JsonValue = None
    #: The digest of an artifact with a longer value: of the UTF-8 JSON `{"nonce": N, "value": V}`,
    #: uploaded before with the work token. N is the nonce of this attempt.
    artifact: Annotated[str, StringConstraints(pattern=r"^[0-9a-f]{64}$")] | None = None
    #: Why it failed.
    error: Annotated[str, Field(max_length=20_000)] = ""
    why: Why = "failed_step"
    #: Whether the step's retries apply to the failure.
    retryable: StrictBool = True
