"""Reads messages of ours as they lie in a list: kombu's envelope around Celery's protocol 2."""

from __future__ import annotations

import base64
import binascii
import json
from typing import NamedTuple

from app.keys import SessionRef

#: What the names of our tasks begin with; others' messages may stand at the same broker.
OURS = "leadhand."


class Message(NamedTuple):
    """A hint: look at this step."""

    id: str
    task: str
    ref: SessionRef
    address: str


def read(raw: bytes | str) -> Message | None:
    """The message; None where it is not one of ours."""
    try:
        envelope = json.loads(raw)
        headers = envelope["headers"]
        if not str(headers["task"]).startswith(OURS):
            return None
        session, root, address = json.loads(base64.b64decode(envelope["body"]))[0]
    except (ValueError, KeyError, TypeError, IndexError, binascii.Error):
        return None
    ref = SessionRef(str(session), str(root))
    return Message(str(headers["id"]), str(headers["task"]), ref, str(address))
