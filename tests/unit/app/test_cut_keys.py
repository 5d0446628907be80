"""A private key whose first line is in the omitted middle of an output is redacted."""

from __future__ import annotations

import json
import time
from pathlib import Path

import pytest

from app.redaction import without_keys
from workers.processes.output import HEAD_BYTES, TAIL_BYTES, Capture

LINES = [f"{number:02}{'Qz9/+aB' * 8}Qz9/+a" for number in range(26)]
BEGIN, END = "-----BEGIN RSA PRIVATE KEY-----", "-----END RSA PRIVATE KEY-----"
GAP = "[... 17 bytes left out ...]"


def captured(tmp_path: Path, output: str) -> str:
    capture = Capture(tmp_path / "spill")
    capture.write(output.encode())
    return capture.close().text


@pytest.mark.parametrize("prefix", ["", "2026-11-22 10:00:01 api[7]: ", "   12\t"])
@pytest.mark.parametrize("offset", [0, 5, 40, 68, 70, 75, 700, 1649, 1740, 1800])
def test_wherever_the_gap_ends_within_a_key(tmp_path: Path, prefix: str, offset: int) -> None:
    key = "\n".join(f"{prefix}{line}" for line in [BEGIN, *LINES, "Ab3=", END])
    after = "\n" + "z" * (TAIL_BYTES - len(key) + min(offset, len(key) - 40) - 1)
    text = captured(tmp_path, "a" * (HEAD_BYTES * 2) + f"\n{key}{after}")
    assert "left out" in text
    clean = without_keys(text)
    assert "Qz9/+aB" not in clean
    assert clean.endswith(after)


@pytest.mark.parametrize("newline", ["\n", "\r\n", "\\n", "\\\\n", " "])
def test_the_rest_of_a_key_is_replaced_up_to_the_gap(newline: str) -> None:
    rest = newline.join(["aB", *LINES, "Ab3=", END])
    first = rest if newline != " " else newline.join([*LINES, "Ab3=", END])
    clean = without_keys(f"start\n{GAP}\n{first} and more")
    assert clean == f"start\n{GAP}\n[redacted] and more"


def test_the_rest_of_a_key_in_json_is_replaced() -> None:
    line = json.dumps({"key": "\n".join([BEGIN, *LINES, END]), "n": 1})
    clean = without_keys(f"{GAP}\n{line[100:]}")
    assert clean == f'{GAP}\n[redacted]", "n": 1}}'


def test_a_key_that_begins_before_the_gap_and_one_that_ends_after_it() -> None:
    text = "\n".join(["a", BEGIN, *LINES, GAP, *LINES, END, "b"])
    assert without_keys(text) == f"a\n[redacted]\n{GAP}\n[redacted]\nb"


@pytest.mark.parametrize(
    "text",
    [
        f"a line such as {END} ends a key",
        f"it failed\nin the end\n{END}",
        "\n".join([*LINES, "-----END CERTIFICATE-----"]),
        "\n".join(["-----BEGIN CERTIFICATE-----", *LINES, "-----END CERTIFICATE-----", END]),
        "\n".join(LINES),
    ],
)
def test_what_is_no_rest_of_a_key_stays(text: str) -> None:
    assert without_keys(f"start\n{text}\nend") == f"start\n{text}\nend"


def test_lines_before_the_rest_of_a_key_stay() -> None:
    text = "\n".join(["the output", "done", *LINES, END])
    assert without_keys(text) == "the output\ndone\n[redacted]"


@pytest.mark.parametrize("piece", [END, f"{LINES[0]}\n", f"{LINES[0]}\n{END}", f"{END} a", "\\n"])
def test_the_time_grows_no_faster_than_the_text(piece: str) -> None:
    def seconds(length: int) -> float:
        text = piece * (length // len(piece)) + END

        def measure() -> float:
            begin = time.process_time()
            without_keys(text)
            return time.process_time() - begin

        return min(measure() for _ in range(3))  # a busy machine makes one of them slow

    assert seconds(400_000) < 60 * max(seconds(20_000), 0.001)
