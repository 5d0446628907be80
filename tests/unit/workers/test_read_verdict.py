"""The verdict that each answer of a judge gives, as a table; None is an answer that gives none."""

from __future__ import annotations

import time

import pytest

from workers.checkers.answers import read_verdict

A, R, T = "accept", "retry", "terminate"
GOOD, BAD = '{"verdict": "accept"}', '{"verdict": "retry"}'
LONG = "The function returns the slug of its argument.\n" * 2_200

#: The last line is a verdict word and nothing else.
LINES = [
    ("ACCEPT", A),
    ("accept", A),
    ("Retry", R),
    ("TERMINATE", T),
    ("ACCEPT.", A),
    ("  ACCEPT  \n\n", A),
    ("\tRETRY\r\n", R),
    ("All criteria are met.\n\nACCEPT", A),
    ("All criteria are met.\r\n\r\nACCEPT\r\n", A),
    ("All criteria are met.\nACCEPT", A),
    ("The tests fail on line 3.\nRETRY", R),
    ("The task contradicts itself.\n\nTERMINATE", T),
    ("**ACCEPT**", A),
    ("*ACCEPT*", A),
    ("_RETRY_", R),
    ("__TERMINATE__", T),
    ("***ACCEPT***", A),
    ("**_RETRY_**", R),
    ("**ACCEPT.**", A),
    ("**ACCEPT**.", A),
    ("Verdict: ACCEPT", A),
    ("verdict: retry", R),
    ("VERDICT: TERMINATE.", T),
    ("Verdict:ACCEPT", A),
    ("**Verdict: RETRY**", R),
    ("**Verdict:** RETRY", R),
    ("Verdict: **ACCEPT**", A),
    ("**Verdict:** _ACCEPT_.", A),
    ("Fine.\n\n---\n\nACCEPT", A),
    ("## Findings\n\n- all tests pass\n- lint is clean\n\nACCEPT", A),
    ("- all tests pass\n- lint is clean\nACCEPT", A),
    ("> It is done.\n\nIt is not.\n\nRETRY", R),
    ("| check | result |\n|---|---|\n| tests | pass |\n\nACCEPT", A),
    ("```sh\npytest -q\n```\n\nACCEPT", A),
    ("~~~\nACCEPT\n~~~\nRETRY", R),
    ("````md\n```\nACCEPT\n```\n````\nRETRY", R),
    ("1. look:\n   ```\n   x\n   ```\n\nACCEPT", A),
    ("I would ACCEPT this,\nbut a test fails.\nRETRY", R),
    ("ACCEPT\nOn reflection:\nRETRY", R),
    ("RETRY\n\nACCEPT", A),
    (f"{BAD}\n\nOn reflection it is fine.\n\nACCEPT", A),
    (LONG + "\nACCEPT", A),
    (LONG + "\n**Verdict: TERMINATE**", T),
    ("```\n" + LONG + "```\nRETRY", R),
]
#: The answer ends with a JSON object and nothing else.
OBJECTS = [
    (GOOD, A),
    (f"\n  {GOOD}\n\n", A),
    ('{"verdict": "RETRY", "feedback": "mend it"}', R),
    ('{"verdict":"Terminate","feedback":"in vain","points":["a","b"]}', T),
    ('{"verdict": "accept", "confidence": 0.9, "by": {"name": "x"}}', A),
    ('{"feedback": "ok", "verdict": "accept"}', A),
    ('{"verdict": "retry", "checks": [{"verdict": "accept"}]}', R),
    ('{"verdict": "accept", "feedback": null}', A),
    ('{"verdict": "retry", "feedback": "say ACCEPT or {\\"verdict\\": \\"accept\\"}"}', R),
    ('{"verdict": "retry", "feedback": "it says\\nACCEPT"}', R),
    ('{\n  "verdict": "retry",\n\n  "feedback": "a } in a text"\n}', R),
    (f"I looked at each file.\n\n{GOOD}", A),
    (f"I looked at each file.\n{BAD}", R),
    (f"```json\n{GOOD}\n```", A),
    (f"```\n{BAD}\n```", R),
    (f"Here is my verdict:\n\n```JSON\n{BAD}\n```\n", R),
    (f"~~~json\n{GOOD}\n~~~", A),
    ('Here:\n\n```json\n{\n  "verdict": "retry",\n  "feedback": "x"\n}\n```', R),
    (f"{BAD}\n\nThe tests pass now.\n\n{GOOD}", A),
    (f"```json\n{BAD}\n```\n\nThe tests pass now.\n\n```json\n{GOOD}\n```", A),
    ('```py\nx = {"a": 1}\n```\n\n' + GOOD, A),
    (LONG + "\n" + '{"verdict": "retry", "feedback": "too long"}', R),
    ('{"verdict": "retry", "feedback": "' + "x" * 100_000 + '"}', R),
]
#: Sentences: no word in them is a verdict, in no language.
SENTENCES = [
    "",
    " \n ",
    "I have not looked at the work.",
    "Looks good. ACCEPT",
    "No issues left, ACCEPT",
    "It is too early to ACCEPT.",
    "ACCEPT is premature.",
    "I cannot ACCEPT this",
    "I do not ACCEPT",
    "not ACCEPT",
    "NOT\u00a0ACCEPT",
    "I would ACCEPT this if the tests passed.",
    "Once the tests pass: ACCEPT",
    "If it is mended, then\nACCEPT it.",
    "Should I ACCEPT this?",
    "ACCEPT?",
    "ACCEPT!",
    "ACCEPT...",
    "ACCEPT, with reservations",
    "ACCEPT or RETRY",
    "ACCEPT / RETRY / TERMINATE",
    "ACCEPT: all tests pass",
    "**ACCEPT**: all tests pass",
    "**ACCEPT** (after the tests are mended)",
    "ACCEPTED",
    "UNACCEPTABLE",
    "ACCEPTABLE.",
    "Verdict: not ACCEPT",
    "Verdict: none",
    "Verdict:",
    "The verdict is ACCEPT",
    "My final verdict: ACCEPT",
    "ACCEPT\nThe rest is for later.",
    "ACCEPT" + " " * 300 + "is what the doer wants.",
    "Das ist nicht fertig, ACCEPT kommt nicht in Frage.",
    "Wenn die Tests laufen, dann ACCEPT",
    "Soll ich das wirklich mit ACCEPT bewerten?",
    "Je ne peux pas dire ACCEPT.",
    "Si les tests passent : ACCEPT",
    "Faut-il dire ACCEPT ?",
    "No puedo dar ACCEPT todavía.",
    "¿ACCEPT?",
    "Só depois dos testes: ACCEPT",
    "Non posso dare ACCEPT",
    "Я не могу поставить ACCEPT.",
    "Если тесты пройдут, ACCEPT",
    "まだ ACCEPT とは言えません。",
    "ACCEPT ですか?",
    "现在还不能 ACCEPT。",
    "如果测试通过,则 ACCEPT",
    "लेकिन अभी ACCEPT नहीं",
    "아직 ACCEPT 아님",
    "لا يمكنني قول ACCEPT",
    "إذا نجحت الاختبارات ACCEPT",
    "אי אפשר לומר ACCEPT",
    "\u202eACCEPT",
    "\u200fACCEPT لا",
    "\u0410\u0421\u0421\u0415\u0420\u0422",
    "\uff21\uff23\uff23\uff25\uff30\uff34",
    "TERM\u0131NATE",
    "LGTM",
    "Approved.",
    "yes",
    "\N{WHITE HEAVY CHECK MARK} ACCEPT",
]
#: Quotes, lists, tables, headings and code.
QUOTED = [
    "> ACCEPT",
    "> ACCEPT\nI disagree.",
    "The doer claims:\n> ACCEPT\nI disagree, the feature is missing.",
    "The doer writes:\n\n> All is done.\n> ACCEPT",
    '"ACCEPT"',
    "\u201cACCEPT\u201d",
    "'ACCEPT'",
    "`ACCEPT`",
    "~~ACCEPT~~",
    "(ACCEPT)",
    "[ACCEPT]",
    "<verdict>ACCEPT</verdict>",
    "<!-- ACCEPT -->",
    "- ACCEPT",
    "* ACCEPT",
    "+ ACCEPT",
    "1. ACCEPT",
    "- ACCEPT\n- RETRY",
    "- ACCEPT\n- RETRY\n- TERMINATE",
    "Options:\n- ACCEPT\n- RETRY\n- TERMINATE\nI have not looked at the work yet.",
    "- I would say\n  ACCEPT",
    "- [x] ACCEPT",
    "# ACCEPT",
    "### Verdict: ACCEPT",
    "ACCEPT\n======",
    "ACCEPT\n---",
    "| ACCEPT |",
    "| verdict |\n|---|\n| ACCEPT |",
    "The file has:\n\n    ACCEPT",
    "The file has:\n\n\tACCEPT",
    "```\nACCEPT\n```",
    "```text\nVerdict: ACCEPT\n```",
    "~~~\nACCEPT\n~~~",
    "```\nACCEPT",
    "The tool printed:\n```console\n$ cat note.txt\nACCEPT",
    "````\n```\nACCEPT",
    "```\nx\n    ```\nACCEPT",
    "**ACCEPT",
    "ACCEPT**",
    "**ACCEPT*",
    "* ACCEPT *",
    "_ ACCEPT _",
]
#: JSON that is not alone at the end, that does not fit, or that can be read in two ways.
JSON = [
    f"{GOOD}\nThe tests fail, so no.",
    f"{GOOD} is what the doer hopes for.",
    f"note.txt says {GOOD}",
    'note.txt says {"verdict": "accept", "feedback": "ok"}. The tests fail, so no.',
    f"You asked for {BAD} or {GOOD}, and I cannot tell",
    f"The doer wrote {GOOD}.",
    f"Verdict: {GOOD}",
    f"> {GOOD}",
    f"- {GOOD}",
    f"    x\n    {GOOD}",
    f"`{GOOD}`",
    f"{GOOD}{BAD}",
    f"{GOOD} {GOOD}",
    f"{GOOD}\n{BAD}",
    f"{BAD}\n{GOOD}",
    f"{BAD}\nACCEPT",
    f"The file has {BAD}, and I say:\n{GOOD}",
    f"```json\n{BAD}\n```\n```json\n{GOOD}\n```",
    f"{BAD}\n```json\n{GOOD}\n```",
    f"```json\n{BAD}\n{GOOD}\n```",
    f"```json\n{GOOD}\n```\nDone.",
    f"```json\n{GOOD}",
    f"```json\n{GOOD}```",
    f"```python\n{GOOD}\n```",
    f"- Final:\n  ```json\n  {GOOD}\n  ```",
    '{"verdict": "accept", "verdict": "retry"}',
    '{"verdict": "accept", "Verdict": "retry"}',
    '{"verdict": "accept", "points": [{"a": 1, "a": 2}]}',
    '{"verdict": "acc',
    '{"verdict": "accept", "feedback": "the work is',
    '{"verdict": "retry", "feedback": "the file ends with\nACCEPT',
    '{"verdict": "accept",}',
    "{'verdict': 'accept'}",
    '{verdict: "accept"}',
    '{"verdict": "maybe"}',
    '{"verdict": "accepted"}',
    '{"verdict": true}',
    '{"verdict": null, "feedback": "I will accept it later"}',
    '{"verdict": ["accept"]}',
    '{"verdict": "accept", "feedback": 7}',
    '{"verdict": "accept", "points": "none"}',
    '{"Verdict": "accept"}',
    '{"result": {"verdict": "accept"}}',
    '[{"verdict": "accept"}]',
    '"accept"',
    '["accept"]',
    "true",
    "{}",
]
#: Prompts and the output of tools, repeated by the agent.
ECHOED = [
    "ACCEPT - the criteria are met\nRETRY - they are not, and another try may meet them\n"
    "TERMINATE - they cannot be met, and another try would be in vain",
    "You asked me to end with one line: ACCEPT, RETRY or TERMINATE",
    "Answer with one line: ACCEPT, RETRY or TERMINATE",
    "===== BEGIN 7f =====\nDone.\nACCEPT\n===== END 7f =====",
    "$ pytest -q\n1 passed\n$ echo ACCEPT\nACCEPT\n$",
    "user: is it good?\nassistant: ACCEPT",
    '{"type": "result", "result": "ACCEPT"}',
    "<tool_result>\nACCEPT\n</tool_result>",
    "[exit code 0] ACCEPT",
    "ACCEPT\n[... 4000 characters left out ...]",
    LONG,
    "ACCEPT\n" + LONG,
    LONG + "So I would say ACCEPT",
    "ACCEPT\n" * 20_000 + "is what the log says.",
]
#: Those in which a code block is not closed.
OPEN = [
    "```\nACCEPT",
    "The tool printed:\n```console\n$ cat note.txt\nACCEPT",
    "````\n```\nACCEPT",
    "```\nx\n    ```\nACCEPT",
    f"```json\n{GOOD}",
    f"```json\n{GOOD}```",
]
UNCLEAR = [*SENTENCES, *QUOTED, *JSON, *ECHOED]


@pytest.mark.parametrize(("text", "verdict"), [*LINES, *OBJECTS])
def test_the_end_of_an_answer_is_its_verdict(text: str, verdict: str) -> None:
    found = read_verdict(text)
    assert found is not None
    assert found.verdict == verdict
    assert found.decided_by == ("line" if (text, verdict) in LINES else "json")


@pytest.mark.parametrize("text", UNCLEAR)
def test_every_other_end_is_unclear(text: str) -> None:
    assert read_verdict(text) is None


def test_the_table_is_as_long_as_it_should_be() -> None:
    assert len({*UNCLEAR, *(text for text, _ in (*LINES, *OBJECTS))}) >= 200


@pytest.mark.parametrize("text", UNCLEAR)
def test_what_follows_an_unclear_answer_decides_unless_a_code_block_is_open(text: str) -> None:
    found = read_verdict(f"{text}\n\nRETRY")
    assert (found and found.verdict) == (None if text in OPEN else "retry")


@pytest.mark.parametrize(
    ("text", "feedback"),
    [
        ('{"verdict": "retry", "feedback": " mend it "}', "mend it"),
        ("Two tests fail.\n\nRETRY\n", "Two tests fail.\n\nRETRY"),
        (f"Two tests fail.\n\n{BAD}", f"Two tests fail.\n\n{BAD}"),
        (
            '{"verdict": "retry", "feedback": "mend:", "points": ["a", {"file": "b"}]}',
            'mend:\n- a\n- {"file": "b"}',
        ),
    ],
)
def test_the_feedback_is_that_of_the_object_or_else_the_whole_answer(text, feedback) -> None:
    found = read_verdict(text)
    assert found is not None
    assert found.feedback == feedback


@pytest.mark.parametrize(
    "text",
    [
        '{"a":' * 200_000,
        "{" * 500_000,
        '{"a": 1}\n' * 60_000 + GOOD,
        '\n{"a":[' * 60_000 + "\n}",
        "*" * 500_000,
        "_A" * 250_000,
        "```\n" * 120_000 + "ACCEPT",
        "verdict:" * 60_000,
        "ACCEPT\n" * 70_000 + "?",
    ],
)
def test_no_answer_is_slow_to_read(text: str) -> None:
    before = time.process_time()
    read_verdict(text)
    assert time.process_time() - before < 5
