"""Flows on real workers: every example runs without a model, and files change under way."""

from __future__ import annotations

import json
import re
import shutil
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from app.core.addresses import SessionRef
from leadhand.errors import AnswerUnwanted
from leadhand.flows.documents import FlowRun
from leadhand.models.views.result import ResultView
from tests.fleet import Fleet
from tests.flows import ask, llm, loop
from tests.redis_users import of_broker
from tests.waiting import wait_until

#: Where the scripted agent begins, and what it does first while there is a file `hold`.
HOLDS = (
    "    key = os.environ",
    """    import time
    said = len(DIARY.read_text().splitlines()) if DIARY.exists() else 0
    while Path("hold").exists() and said == int(Path("hold").read_text() or -1):
        Path("held").touch()
        time.sleep(0.02)
    key = os.environ""",
)
#: The same for an agent that meets whoever else works there, and notes from when to when it was.
MEETS = (
    "    key = os.environ",
    """    import time
    session, began = os.environ["LEADHAND_SESSION"], time.monotonic()
    if prompt == "meet":
        Path(f"{session}.here").touch()
    while prompt == "meet" and len(list(Path().glob("*.here"))) < 2:
        if time.monotonic() > began + 30:
            sys.exit("nobody else came")
        time.sleep(0.02)
    with Path("times.jsonl").open("a") as times:
        times.write(json.dumps([session, prompt, began, time.monotonic()]) + "\\n")
    key = os.environ""",
)
EXAMPLES = Path(__file__).resolve().parents[3] / "examples/flows"


class Flows(Fleet):
    """A fleet whose workers know the examples' agent, with a folder of flows of its own."""

    def __init__(self, folder: Path, redis_url: str, broker_url: str) -> None:
        shutil.copytree(EXAMPLES, folder / "e")
        self.examples = folder / "e"
        super().__init__(
            folder, redis_url, broker_url, lease_s=5,
            LEADHAND_FLOWS=str(self.examples / "flows"),
            LEADHAND_AGENTS=str(self.examples / "agents.toml"),
        )  # fmt: skip

    def work(self, name: str, *answers: str) -> Path:
        """A folder to work in, with the answers that the scripted agent will give."""
        folder = self.folder / name
        folder.mkdir()
        for file in ("scripted.py", "is_there.sh"):
            shutil.copy(self.examples / file, folder)
        (folder / "answers.txt").write_text("\n".join(answers))
        return folder

    def holding(self, name: str, *answers: str, at: int) -> Path:
        """The same with an agent that hangs before it says anything in the step of this number."""
        work = self.work(name, *answers)
        script = (work / "scripted.py").read_text()
        (work / "scripted.py").write_text(script.replace(*HOLDS))
        (work / "hold").write_text(str(at))
        return work

    def meeting(self, name: str) -> Path:
        """A working folder with an agent that waits until another agent runs too."""
        work = self.work(name)
        script = (work / "scripted.py").read_text()
        (work / "scripted.py").write_text(script.replace(*MEETS))
        return work

    def start(self, flow: str, work: Path, **inputs: str) -> str:
        run = FlowRun(working_folder=str(work), inputs={**inputs})
        return self.engine.submit.flow(flow, run).session

    def write(self, name: str, *steps: dict[str, Any]) -> None:
        definition = {"agents": {"*": "scripted"}, "steps": steps}
        (self.examples / f"flows/{name}.json").write_text(json.dumps(definition))

    def done(self, session: str) -> ResultView:
        result = self.ended(session, timeout=60)
        assert result.status == "completed", result
        return result

    def texts(self, session: str) -> dict[str, str]:
        ref = SessionRef(session, self.engine.queries.session(session).root)
        found = self.engine.store.outcomes(ref)
        return {address: str(json.loads(text).get("text", "")) for address, text in found.items()}


@pytest.fixture(scope="module")
def module_flows(
    tmp_path_factory: pytest.TempPathFactory, module_store_url: str
) -> Iterator[Flows]:
    broker = of_broker(module_store_url)
    flows = Flows(tmp_path_factory.mktemp("flows"), module_store_url, broker)
    flows.worker("one", LEADHAND_CONCURRENCY="4")
    yield flows
    flows.close()


@pytest.fixture
def flows(module_flows: Flows) -> Flows:
    return module_flows


def diary(work: Path) -> list[str]:
    """The steps that spoke, in the order in which they did."""
    lines = (work / "diary.jsonl").read_text().splitlines()
    return [str(json.loads(line)["key"]).partition(":")[2] for line in lines]


@pytest.mark.timeout(90)
def test_the_review_loop_ends_when_the_reviewer_is_content(flows: Flows) -> None:
    work = flows.work("review", "no", "yes")
    session = flows.start("review", work, task="Write a haiku.")
    flows.done(session)
    assert flows.engine.queries.session(session).label == "Flow: review"
    assert diary(work) == [
        "write", "polish~1[1]/review", "polish~1[1]/content", "polish~1[1]/mend",
        "polish~1[2]/review", "polish~1[2]/content",
    ]  # fmt: skip
    assert "Write a haiku." in (work / "notes.md").read_text()


@pytest.mark.timeout(90)
def test_the_nested_loops_turn_as_their_answers_say(flows: Flows) -> None:
    work = flows.work("nested", "no", "yes", "no", "yes", "yes")
    flows.done(flows.start("nested", work))
    assert [line.rpartition("/")[2] for line in diary(work)] == [
        "plan", "page", "chapter-full", "page", "chapter-full", "book-full",
        "plan", "page", "chapter-full", "book-full",
    ]  # fmt: skip


@pytest.mark.timeout(90)
def test_a_script_decides_by_what_is_there(flows: Flows) -> None:
    work = flows.work("decide")
    flows.done(flows.start("decide", work))
    assert diary(work) == ["begin"]
    flows.done(flows.start("decide", work))
    assert diary(work) == ["begin", "go-on"]


@pytest.mark.timeout(90)
def test_a_person_is_asked_and_the_answer_is_told(flows: Flows) -> None:
    work = flows.work("question")
    session = flows.start("question", work)
    wait_until(lambda: flows.engine.queries.session(session).status == "waiting", timeout=30)
    (note,) = flows.engine.queries.session(session).notes
    assert "Which title shall it be?" in note
    with pytest.raises(AnswerUnwanted, match=r"step 'propose' is succeeded"):
        flows.engine.answers.give(session, "the second", address="propose")
    with pytest.raises(AnswerUnwanted, match="it has no step 'other'"):
        flows.engine.answers.give(session, "the second", address="other")
    flows.engine.answers.give(session, "the second", address="choose-ask")
    flows.engine.answers.give(session, "the second", address="choose-ask")
    with pytest.raises(AnswerUnwanted, match="another answer came first"):
        flows.engine.answers.give(session, "the third", address="choose-ask")
    flows.done(session)
    assert diary(work) == ["propose", "choose", "thank"]
    assert flows.texts(session)["choose"].endswith("the second")


@pytest.mark.timeout(90)
def test_subflows_run_side_by_side_and_are_counted(flows: Flows) -> None:
    session = flows.start("release", flows.work("release", "yes"))
    flows.done(session)
    assert flows.texts(session)["parts"] == "2 succeeded, 0 failed, 0 stopped"
    assert flows.texts(session)["report"].endswith("2 succeeded, 0 failed, 0 stopped")


@pytest.mark.timeout(90)
def test_subflows_in_one_folder_overlap_and_strangers_wait_for_all_of_them(flows: Flows) -> None:
    for name in ("left", "right"):
        flows.write(name, llm("meet"), llm("more"))
    both = {"type": "subflow", "label": "both", "flowNames": ["left", "right"]}
    flows.write("tree", llm("first"), both, llm("last"))
    flows.write("stranger", llm("apart"))
    work = flows.meeting("meeting")
    tree = flows.start("tree", work)
    wait_until(lambda: (work / "times.jsonl").exists(), timeout=30)
    stranger = flows.start("stranger", work)
    for session in (tree, stranger):
        flows.done(session)
    times = [json.loads(line) for line in (work / "times.jsonl").read_text().splitlines()]
    first, *between, last, apart = [told for _, told, *_ in times]
    assert (first, last, apart) == ("first", "last", "apart")
    assert sorted(between) == ["meet", "meet", "more", "more"]
    (one, _, began, ended), (other, _, began_too, ended_too) = (
        time for time in times if time[1] == "meet"
    )
    assert one != other
    assert max(began, began_too) < min(ended, ended_too)


@pytest.mark.timeout(90)
def test_a_failed_subflow_is_counted_and_the_flow_goes_on(flows: Flows) -> None:
    flows.write("bad", {"type": "check", "checker": "false"})
    flows.write("good", llm("well"))
    flows.write("both", {"type": "subflow", "label": "both", "flowNames": ["bad", "good"]})
    session = flows.start("both", flows.work("both"))
    result = flows.done(session)
    first, second = flows.texts(session)["both"].splitlines()
    assert first == "1 succeeded, 1 failed, 0 stopped"
    assert re.fullmatch(
        r"bad \(session [0-9a-f]{8}\) is failed: the check did not accept.*", second
    )
    assert any("bad" in warning for warning in result.warnings)


@pytest.mark.timeout(90)
def test_a_step_that_is_put_before_the_one_that_was_stopped_is_the_next(flows: Flows) -> None:
    pause = {"type": "human", "question": "go on?", "label": "pause"}
    first, end = llm("first", label="first"), llm("end", label="end")
    flows.write("put", first, pause, end)
    work = flows.work("put")
    session = flows.start("put", work)
    wait_until(lambda: flows.engine.queries.session(session).status == "waiting", timeout=30)
    flows.engine.control.apply(session, "stop")
    flows.write("put", first, llm("between", label="between"), pause, end)
    flows.engine.migration.resume_as_new(session)
    wait_until(lambda: flows.engine.queries.session(session).status == "waiting", timeout=30)
    flows.engine.answers.give(session, "yes")
    flows.done(session)
    assert diary(work) == ["first", "between", "end"]


@pytest.mark.timeout(90)
def test_a_file_that_changes_under_way_changes_only_the_next_run(flows: Flows) -> None:
    pause = {"type": "human", "question": "go on?"}
    flows.write("edited", llm("first"), pause, llm("old end", label="end"))
    work = flows.work("edited")
    session = flows.start("edited", work)
    wait_until(lambda: flows.engine.queries.session(session).status == "waiting", timeout=30)
    flows.write("edited", llm("first"), pause, llm("new end", label="end"))
    notes = flows.engine.queries.session(session).notes
    assert any("flow 'edited' has changed since" in note for note in notes), notes
    flows.engine.answers.give(session, "yes")
    flows.done(session)
    assert flows.texts(session)["end"].endswith("old end")
    again = flows.start("edited", work)
    wait_until(lambda: flows.engine.queries.session(again).status == "waiting", timeout=30)
    flows.engine.answers.give(again, "yes")
    flows.done(again)
    assert flows.texts(again)["end"].endswith("new end")


@pytest.mark.timeout(90)
def test_a_loop_that_nobody_ends_is_ended_by_its_ceiling(flows: Flows) -> None:
    flows.write("endless", loop(llm(), ask(on="yes"), maxIterations=2))
    work = flows.work("endless", "no", "no", "no")
    result = flows.ended(flows.start("endless", work), timeout=60)
    assert (result.status, result.verdict) == ("failed", "max_iterations")
    assert len(diary(work)) == 4


@pytest.mark.timeout(120)
@pytest.mark.slow
@pytest.mark.parametrize("at", range(10))
def test_a_worker_that_is_killed_at_any_step_changes_no_turn(flows: Flows, at: int) -> None:
    turns = [
        "plan", "page", "chapter-full", "page", "chapter-full", "book-full",
        "plan", "page", "chapter-full", "book-full",
    ]  # fmt: skip
    work = flows.holding(f"killed-{at}", "no", "yes", "no", "yes", "yes", at=at)
    flows.write("killed", *json.loads((flows.examples / "flows/nested.json").read_text())["steps"])
    victim = flows.worker(f"victim-{at}", LEADHAND_PLACE="doomed")
    run = FlowRun(working_folder=str(work), place="doomed")
    session = flows.engine.submit.flow("killed", run).session
    wait_until((work / "held").exists, timeout=60)
    flows.kill(victim)
    (work / "hold").unlink()
    flows.worker(f"heir-{at}", LEADHAND_PLACE="doomed")
    flows.done(session)
    assert [line.rpartition("/")[2] for line in diary(work)] == turns
    settled = [
        e for e in flows.engine.queries.events(session, limit=1000) if e.type == "step.settled"
    ]
    assert [str(e.address).rpartition("/")[2] for e in settled] == turns


@pytest.mark.timeout(90)
def test_an_agent_that_fails_is_asked_again_and_told_why(flows: Flows) -> None:
    work = flows.work("again")
    script = (work / "scripted.py").read_text()
    fails = 'if "no luck" not in prompt: sys.exit("no luck")\n    key = os.environ'
    (work / "scripted.py").write_text(script.replace("key = os.environ", fails, 1))
    flows.write("again", llm("try it"))
    session = flows.start("again", work)
    flows.done(session)
    assert flows.engine.queries.session(session).counters.attempts_failed == 1


@pytest.mark.timeout(90)
@pytest.mark.parametrize(
    ("folder", "why"),
    [
        ("out", "'out' is outside of the session's working folder"),
        ("gone", "'gone' is not a folder in"),
    ],
)
def test_a_step_works_beneath_the_folder_of_its_run_or_not_at_all(
    flows: Flows, folder: str, why: str
) -> None:
    work = flows.work(f"beneath-{folder}", "yes")
    (work / "out").symlink_to(flows.folder)
    flows.write(f"beneath-{folder}", llm("write", working_folder=folder))
    result = flows.ended(flows.start(f"beneath-{folder}", work), timeout=60)
    assert result.status == "failed"
    assert result.reason is not None
    assert why in result.reason.root.text
    assert "PATH" not in result.reason.root.text
