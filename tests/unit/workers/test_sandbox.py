"""Real processes in the sandbox: how they end, and that nothing of them stays."""

from __future__ import annotations

import os
import resource
import signal
import subprocess
import sys
import threading
import time
from collections.abc import Callable
from pathlib import Path

import psutil
import pytest

from workers.processes.output import HEAD_BYTES, SPILL_BYTES, TAIL_BYTES
from workers.processes.process import Command, ProcessResult, run

PYTHON = sys.executable


def wait_until(what: Callable[[], object], timeout_s: float = 10) -> None:
    deadline = time.monotonic() + timeout_s
    while not what():
        assert time.monotonic() < deadline, "it did not happen in time"
        threading.Event().wait(0.02)


def alive(pid: int) -> bool:
    try:
        return psutil.Process(pid).status() != psutil.STATUS_ZOMBIE
    except psutil.NoSuchProcess:
        return False


@pytest.fixture
def sandbox(tmp_path: Path):
    def start(
        line: str | tuple[str, ...], *, cancel: threading.Event | None = None, **given
    ) -> ProcessResult:
        command = {
            "line": line,
            "cwd": tmp_path,
            "env": {"PATH": os.environ["PATH"]},
            "spill": tmp_path / "spill",
            "timeout_s": 20.0,
            **given,
        }
        return run(Command(**command), cancel or threading.Event())

    return start


def pids_in(path: Path, count: int) -> list[int]:
    lines = path.read_text().split() if path.exists() else []
    return [int(line) for line in lines] if len(lines) >= count else []


def test_outputs_are_kept_apart_and_the_exit_code_told(sandbox) -> None:
    result = sandbox("echo good; echo bad >&2; exit 3")
    assert (result.stdout.text, result.stderr.text) == ("good\n", "bad\n")
    assert (result.exit_code, result.signal, result.not_started) == (3, None, None)
    assert result.started_ms <= result.ended_ms
    assert not result.succeeded


def test_arguments_reach_the_program_untouched_by_a_shell(sandbox) -> None:
    told = ("$HOME; rm -rf x", "two words", "", "*")
    result = sandbox((PYTHON, "-c", "import sys; print(sys.argv[1:])", *told))
    assert result.stdout.text == f"{list(told)}\n"


def test_a_signal_that_ended_the_command_is_told(sandbox) -> None:
    assert sandbox("kill -SEGV $$").signal == signal.SIGSEGV


def test_the_prompt_is_standard_input_and_a_file_too(sandbox, tmp_path) -> None:
    result = sandbox('cat; echo; cat "$LEADHAND_PROMPT_FILE"', prompt="do it \N{SNOWMAN}")
    assert result.stdout.text == "do it \N{SNOWMAN}\ndo it \N{SNOWMAN}"
    assert (tmp_path / "spill" / "prompt.md").stat().st_mode & 0o777 == 0o600


def test_a_child_that_never_reads_a_long_prompt_is_no_trouble(sandbox) -> None:
    assert sandbox("exec 0<&-; echo done", prompt="x" * 3_000_000).stdout.text == "done\n"


def test_without_a_prompt_standard_input_is_empty(sandbox) -> None:
    assert sandbox("cat; echo ${LEADHAND_PROMPT_FILE-none}").stdout.text == "none\n"


def test_the_environment_is_what_was_given_and_a_mark(sandbox) -> None:
    os.environ["LEADHAND_SECRET"] = "hush"
    try:
        told = sandbox(("/usr/bin/env",), env={"PATH": "/bin", "ONE": "1"}).stdout.text
    finally:
        del os.environ["LEADHAND_SECRET"]
    names = {line.partition("=")[0] for line in told.splitlines()}
    assert names - {"LC_CTYPE"} == {"PATH", "ONE", "LEADHAND_TREE"}


def test_a_command_starts_with_default_signals(sandbox) -> None:
    before = signal.signal(signal.SIGUSR1, signal.SIG_IGN)
    try:
        assert sandbox("kill -USR1 $$; echo survived").signal == signal.SIGUSR1
    finally:
        signal.signal(signal.SIGUSR1, before)


@pytest.mark.parametrize(
    ("line", "why"),
    [
        (("no-such-program",), "cannot run 'no-such-program': No such file or directory"),
        (("/etc/passwd",), "cannot run '/etc/passwd': Permission denied"),
        (("/etc",), "cannot run '/etc': it is a folder"),
        (("echo", "x" * 300_000), "its arguments are too long; use standard input"),
        (("echo", "a\0b"), "embedded null byte"),
    ],
)
def test_what_cannot_start_says_why(sandbox, line, why) -> None:
    result = sandbox(line)
    assert why in result.not_started
    assert result.exit_code is None
    assert not result.succeeded


def test_a_missing_working_folder_is_named(sandbox, tmp_path) -> None:
    result = sandbox("true", cwd=tmp_path / "gone")
    assert result.not_started == (
        f"cannot work in {str(tmp_path / 'gone')!r}:"
        " there is no such folder; create it or name another"
    )
    file = tmp_path / "file"
    file.touch()
    assert sandbox("true", cwd=file).not_started == (
        f"cannot work in {str(file)!r}: it is a file; name a folder"
    )
    assert result.lacks == "folder"
    assert sandbox(("no-such-program-xyz",)).lacks == "program"
    assert sandbox((__file__,)).lacks == "permission"
    assert sandbox(("/etc",)).lacks == "program"
    assert sandbox(("echo", "a\0b")).lacks is None


def test_binary_output_becomes_text_that_everybody_can_bear(sandbox) -> None:
    text = sandbox(r"printf '\377\000\200ok\n'").stdout.text
    assert text == "\N{REPLACEMENT CHARACTER}" * 3 + "ok\n"


def test_a_flood_stays_bounded_in_memory_and_on_disk(sandbox, tmp_path) -> None:
    before = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss
    result = sandbox("echo first; yes 0123456789abcde | head -c 200000000; echo last")
    assert resource.getrusage(resource.RUSAGE_SELF).ru_maxrss - before < 30_000
    assert result.stdout.size == 200_000_011
    assert result.stdout.text.startswith("first\n")
    assert result.stdout.text.endswith("last\n")
    left_out = 200_000_011 - HEAD_BYTES - TAIL_BYTES
    assert f"[... {left_out} bytes left out ...]" in result.stdout.text
    assert result.stdout.spill == tmp_path / "spill" / "stdout.log"
    assert result.stdout.spill.stat().st_size == SPILL_BYTES


def test_the_deadline_ends_the_command(sandbox) -> None:
    result = sandbox("echo begun; sleep 100", timeout_s=0.5)
    assert result.timed_out
    assert not result.cancelled
    assert result.signal == signal.SIGTERM
    assert result.stdout.text == "begun\n"


def test_a_child_that_ignores_sigterm_is_killed_after_the_grace(sandbox) -> None:
    before = time.monotonic()
    result = sandbox("trap '' TERM; sleep 100; sleep 100", timeout_s=0.3, grace_s=0.5)
    assert result.timed_out
    assert result.signal == signal.SIGKILL
    assert 0.8 <= time.monotonic() - before < 8


def test_a_child_that_cleans_up_on_sigterm_has_the_time_to(sandbox) -> None:
    result = sandbox(
        "trap 'echo cleaned; exit 5' TERM; echo up; while :; do sleep 0.05; done", timeout_s=0.5
    )
    assert result.timed_out
    assert result.exit_code == 5
    assert result.stdout.text == "up\ncleaned\n"


def test_a_stopped_child_can_be_ended(sandbox) -> None:
    assert sandbox("kill -STOP $$", timeout_s=0.5, grace_s=1).timed_out


def test_a_cancel_in_the_middle_ends_the_command(sandbox, tmp_path) -> None:
    cancel = threading.Event()
    results: list[ProcessResult] = []
    body = threading.Thread(
        target=lambda: results.append(sandbox("echo $$ > pid; exec sleep 100", cancel=cancel))
    )
    body.start()
    wait_until(lambda: pids_in(tmp_path / "pid", 1))
    cancel.set()
    body.join(5)
    assert results[0].cancelled
    assert not results[0].timed_out
    assert not alive(pids_in(tmp_path / "pid", 1)[0])


#: Starts helpers in ever more stubborn ways and writes their pids to a file.
FAMILY = """
echo $$ > pids
sleep 300 & echo $! >> pids
setsid sh -c 'echo $$ >> pids; exec sleep 300' &
(setsid sh -c 'trap "" TERM HUP; echo $$ >> pids; while :; do sleep 1; done' &) &
python3 - <<'END'
import os, time
if os.fork() == 0:
    os.setsid()
    if os.fork() == 0:
        os.environ.clear()
        with open("pids", "a") as file:
            file.write(f"{os.getpid()}\\n")
        time.sleep(300)
    os._exit(0)
END
"""
MEMBERS = 5


def test_the_whole_tree_goes_with_a_cancel(sandbox, tmp_path) -> None:
    cancel = threading.Event()
    given = {"cancel": cancel, "grace_s": 0.5}
    body = threading.Thread(target=sandbox, args=(FAMILY + "sleep 300",), kwargs=given)
    body.start()
    wait_until(lambda: pids_in(tmp_path / "pids", MEMBERS))
    cancel.set()
    body.join(10)
    assert [pid for pid in pids_in(tmp_path / "pids", MEMBERS) if alive(pid)] == []


def test_helpers_that_stay_behind_neither_hang_us_nor_survive(sandbox, tmp_path) -> None:
    wait = f"while [ $(wc -l < pids) -lt {MEMBERS} ]; do sleep 0.05; done; echo done"
    result = sandbox(FAMILY + wait, grace_s=0.5)
    assert (result.exit_code, result.stdout.text) == (0, "done\n")
    assert not result.timed_out
    assert [pid for pid in pids_in(tmp_path / "pids", MEMBERS) if alive(pid)] == []


PARENT = """
import sys, threading
from pathlib import Path
from workers.processes.process import Command, run
import os
here = Path(sys.argv[1])
run(
    Command(sys.argv[2], here, {"PATH": os.environ["PATH"]}, here / "spill", 300, grace_s=0.5),
    threading.Event(),
)
"""


def family_of(tmp_path: Path) -> tuple[subprocess.Popen[bytes], list[int]]:
    parent = subprocess.Popen([PYTHON, "-c", PARENT, str(tmp_path), FAMILY + "sleep 300"])
    wait_until(lambda: pids_in(tmp_path / "pids", MEMBERS))
    return parent, pids_in(tmp_path / "pids", MEMBERS)


def test_a_killed_worker_leaves_nothing_behind(tmp_path) -> None:
    parent, pids = family_of(tmp_path)
    assert all(alive(pid) for pid in pids)
    parent.kill()
    parent.wait()
    wait_until(lambda: not [pid for pid in pids if alive(pid)])


def test_a_killed_launcher_takes_the_command_along_and_strays_are_found(tmp_path) -> None:
    parent, pids = family_of(tmp_path)
    (launcher,) = psutil.Process(parent.pid).children()
    launcher.kill()
    parent.wait(10)
    assert parent.returncode == 0
    assert [pid for pid in pids if alive(pid)] == []


def test_nothing_of_ours_stays_open(sandbox) -> None:
    sandbox("true")
    us = psutil.Process()
    before = us.num_fds(), us.children()  # a server of other tests may be among them
    for line in ("true", ("no-such-program",), ("echo", "x" * 300_000), "setsid sleep 9 &"):
        sandbox(line)
    assert (us.num_fds(), us.children()) == before


def test_many_at_once_do_not_hold_each_other_up(sandbox, tmp_path) -> None:
    results: list[ProcessResult] = []

    def body(number: int) -> None:
        line = f"echo {number}; setsid sleep 300 &"
        results.append(sandbox(line, spill=tmp_path / f"spill{number}"))

    threads = [threading.Thread(target=body, args=(number,)) for number in range(12)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join(20)
    assert sorted(int(result.stdout.text) for result in results) == list(range(12))
    assert all(result.succeeded for result in results)


def test_a_command_does_not_outlive_a_launcher_that_nobody_watches(tmp_path) -> None:
    parent, pids = family_of(tmp_path)
    (launcher,) = psutil.Process(parent.pid).children()
    parent.send_signal(signal.SIGSTOP)
    launcher.kill()
    wait_until(lambda: not alive(pids[0]))
    parent.send_signal(signal.SIGCONT)
    parent.wait(10)
    assert [pid for pid in pids if alive(pid)] == []
