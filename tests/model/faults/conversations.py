"""Faults in the transcript and in conversations."""

from __future__ import annotations

from tests.model.faults.fault import Fault

FAULTS = (
    Fault(
        "what was said is written again with each repetition",
        "settle",
        "if step.settled == args.fence then\n",
        "if step.settled == args.fence then\n  transcript.write(tx, address)\n",
    ),
    Fault(
        "what was said is not told",
        "lib/transcript",
        "events.emit(tx, 'transcript.added', address, {",
        "local _ = ({",
    ),
    Fault(
        "only the first thing that was said is written",
        "lib/transcript",
        "for n = 5, #tx.argv do",
        "for n = 5, math.min(5, #tx.argv) do",
    ),
    Fault(
        "two speak in one conversation at once",
        "lib/locks/locks",
        "  if r.talk then\n",
        "  if false then\n",
    ),
    Fault(
        "a step of a conversation goes on without its lock",
        "core/routing.py",
        "(step.limits or step.conversation)",
        "step.limits",
    ),
    Fault(
        "a failed attempt leads the conversation on",
        "settle",
        "usage.add_attempt(tx, address, step, args.usage)\n",
        "usage.add_attempt(tx, address, step, args.usage)\ntranscript.keep_thread(tx, address)\n",
    ),
    Fault(
        "a conversation cannot be forgotten",
        "lib/transcript",
        "    redis.call('HDEL', tx.keys.threads, talk)\n",
        "",
    ),
    Fault(
        "a conversation begins anew each time",
        "lib/attempts",
        "redis.call('HGET', tx.keys.threads, talk)",
        "nil",
    ),
    Fault(
        "a session that is sent back remembers what was said after that",
        "lib/resume",
        "  if threads then restore_threads(tx, threads) end\n",
        "",
        seed=56,
    ),
)
