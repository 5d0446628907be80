"""Presenters of the records of a transcript."""

from __future__ import annotations

import json

from app.domain.clock import iso
from leadhand.models.views import TranscriptEntry


def transcript_entry(line: str, seq: int) -> TranscriptEntry:
    """Parses a stored transcript record (JSON) to an entry with this sequence number."""
    fields = json.loads(line)
    return TranscriptEntry(seq=seq, at=iso(fields.pop("at_ms")), **fields)


def dropped_note(dropped: int, at: str) -> TranscriptEntry:
    """Builds the transcript entry that says how many of the first records were dropped."""
    text = f"the first {dropped} records were dropped"
    return TranscriptEntry(
        seq=dropped, at=at, address="", label="transcript", role="note", text=text
    )
