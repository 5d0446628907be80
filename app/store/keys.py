"""Names and documents every Redis key.

Keys of one session, at ``{prefix}:{{root}}:{session}:<part>`` (a tree shares its root's tag):

=========  ======  ==================================================================
part       type    what it holds
=========  ======  ==================================================================
session    hash    status, reason, counters, parent, root, place, program; times in ms
steps      hash    address -> state, fence, nonce, attempts, lease, deadline, outcome (JSON)
turns      hash    address of a loop's or for_each's run -> state, iteration, verdict (JSON)
runs       hash    node in its block -> its newest run, if that is not the first
skips      hash    node in its block -> why its next run is skipped, and the for_each nodes whose
                   list it makes (JSON)
widths     hash    for_each node in its block -> how many items it has
items      hash    ``node#item`` -> the element of that item of a for_each (JSON)
live       zset    addresses that are ready, running or parked (ordered by name)
running    zset    those of them that a worker has claimed
parked     zset    those of them that wait for a person, a time or a child
open       zset    turns that have not closed
arrived    zset    ``join<node``: the nodes that have arrived at an incomplete join
hinted     zset    ``queue<address``: ready steps whose hint is out; ``key<address``: those that
                   are offered, or wait in the line of a limited key
waiting    zset    ``queue<order<address``, ``key<order<address``: ready steps that wait for a slot
                   of either window
out        hash    address -> outcome (JSON)
ledger     list    one entry per iteration (JSON)
events     stream  events in order
warnings   list    problems that did not end the session
children   set     child sessions
born       zset    ``address<child``: the step that started a child (ordered by name)
holding    set     ``lock<owner``: the locks that it holds
threads    hash    conversation, ``agent|identifier`` -> its agent's thread (JSON)
transcript  list   prompts and answers in order (JSON); the last 5,000 records
diffs      hash    address of a doer -> the diff of its folder (JSON, gzip, base64);
                   of no address: the order in which they came, with their sizes (JSON)
plan       hash    head: its state and settings; ``task:ID``, ``proposal:ID`` (JSON); version
startable  zset    tasks of the plan that may start, by priority and order
outputs    zset    ``address#fence`` of attempts with stored output -> the time of the last part
output:X   stream  the output of attempt X: a ring of redacted parts (TTL 24 h after the last)
artifacts  hash    ``address|name`` -> an artifact of a step (JSON); digest -> its size and type
hooks      hash    delivery of a webhook -> event, tries, the session's status then (JSON)
inbox      hash    id of a message -> the message (JSON); ``key:X`` -> the message of an
                   Idempotency-Key, and a digest; ``taken``: the last calls that took some
unread     zset    messages that no turn has acknowledged: id (12 digits), ``!`` (it escalates)
                   or ``-``, and the address of the step that has got it
request    string  the document with which it was submitted (JSON), without webhook and env
environment string the variables that its bodies get, encrypted (AES-GCM); until it cannot resume
definitions string the agents.toml and tools.toml of its folder (JSON); until it cannot resume
guard      hash    of a Stop guard: its state and the hook that runs (JSON), version; ``stop:X``,
                   ``stops``: the last decisions by stop
kv         hash    of a tree's root: key -> version, time, nonce and author (JSON), a line break and
                   the value (JSON); ``#version``: the last one; ``#deleted``: the last deletion
=========  ======  ==================================================================

They get a TTL when the session ends or is stopped; until then they belong to a live session.

Keys across sessions, at ``{prefix}:<part>``:

===========  ======  ================================================================
leases       zset    ``session|root|address`` by when an attempt or a parked step is due, and
                     ``session|root|`` by when a session's own time is over
ready        zset    the same by when a ready step is hinted (again)
holds        zset    ``lock<owner``: a turn that holds a folder, an attempt a limited key or
                     a conversation, an attempt or a session (no address) a named lock
named        hash    ``lock:ROOT:NAME`` -> the grant of a named lock, the line of those who wait
                     for it, and its last release (JSON); deleted when it has none of these
tickets      zset    ``lock<order<session|root|address``: the waiters, ordered by priority (a
                     digit) and arrival (14 digits)
called       hash    ``lock<member`` of a waiter -> when its turn came, or for a rate will come;
                     below zero: when it was passed over
waits        hash    ``session|root|address`` -> the locks that it waits for (JSON)
artifacts    zset    ``digest|session|root``: each session that refers to a digest
limits       hash    key -> concurrency, per_minute (JSON); kept until removed
rates        hash    key -> when the next attempt with it may start (deleted with the limit)
errands      zset    ``verb|session|root``: the outbox of messages between sessions
tokens       hash    API tokens by id: secret's hash, scopes ..., signed; until revoked or expired
token-uses   hash    when each was used last; deleted with it
owned:X      set     a token's sessions that have not ended; empties itself as they end
browser:X    string  a browser session, by the hash of its cookie: its token, signed (TTL 7 days)
browser-link:X string  a sign-in link, by the hash of its secret: its token, signed (TTL 60 s)
views:X      hash    a visitor's saved views of the dashboard: name -> query (TTL 400 days)
token-key:X  string  the token of an Idempotency-Key, by the key's hash (TTL 7 days)
spent:X:D    hash    a token's steps and bytes on day D (TTL 2 days)
hooks        zset    ``session|root|delivery`` by when a webhook is tried (again)
sessions     zset    session ids by creation
changes      stream  changes of sessions, for those who watch them all: session, what (about 5,000)
attention    zset    sessions that may need a person, by when they began to; readers check each
status:X     zset    session ids of one status by creation
facts        zset    ``fact<value<created<session``: kind, label and name of each session; and the
                     mark, ``~<time``, until which all sessions are listed in it
id:X         string  a session's root; reserves the id (TTL when the session ends)
label:X      string  the session that holds a label, and its base; until it stops or ends. X
                     begins with a hash of the working folder in embedded services
idem:X       string  session and body hash of an Idempotency-Key (deleted with it, TTL 7 days)
program:X    hash    a program: its document, one route per node, and a mark of when it was written
users:X      set     sessions that run the program; deleted with the last one
workers      hash    inventories, each with its time
used         hash    total usage of all sessions: cost_micros, tokens_in, tokens_out (kept)
stacks       zset    names of stacks of workflow sessions by their last change
stack:X      hash    a stack: folder, place, version and times (TTL while none is on it)
stack-line:X list    the workflow sessions on a stack, from the bottom to the top
stack-all:X  zset    ``order<id``: all workflow sessions of a stack by their start (TTL as stack:X)
stack-call:X string  ``stack:nonce``: a change that was carried out (JSON; TTL 24 h)
workflow:X   hash    a workflow session: its fields, and its steps (TTL once it has left its stack);
                     of a deleted one: when that was (TTL 7 days)
store        string  the store's id, which marks data outside Redis (kept)
secret       string  a salt, and its HMAC under each secret that the fleet accepts (kept)
secrets-used hash    salt and marks of the secrets of a process -> their expiry
asked        hash    mark -> definitions of a folder on which workers report (JSON; 15 min)
defined:X    hash    worker -> its agents and tools with the definitions of mark X (JSON; 15 min)
refused      hash    worker -> why it refused to start, and when (JSON; those of the last day)
name:X       string  the process that holds a worker's name (TTL of an inventory)
store-schema string  the form of the keys and records, a number (kept)
store-past   hash    ids that the store's id succeeds -> when that was accepted (kept)
owed         hash    session -> why its export could not be written, while it is kept for that
stats:D      hash    counts of day D (days since 1970, UTC): ends of sessions, loops and checks,
                     and usage (TTL 400 days)
damaged:X    any     a key of a wrong type that the audit moved away, by its name (TTL 7 days)
swept        string  the time of the last sweep (kept: it is one number)
epoch        hash    the server's run id, the end of the grace period after its restart, and the
                     numbers of sweeps, of tickets and of grants of named locks
===========  ======  ================================================================
"""

from __future__ import annotations

import re
from typing import NamedTuple

from app.core.addresses import SessionRef

#: The parts of a session, in the order of the table above.
SESSION_PARTS = (
    "session", "steps", "turns", "runs", "skips", "widths", "items", "live", "running", "parked",
    "open", "arrived", "hinted", "waiting", "out", "ledger", "events", "warnings", "children",
    "born", "holding", "hooks", "threads", "transcript", "diffs", "plan",
    "startable", "outputs", "artifacts", "inbox", "unread", "kv", "guard",
    "request", "environment", "definitions",
)  # fmt: skip
#: Keys across sessions that the Lua functions write.
GLOBAL_PARTS = (
    "leases", "ready", "errands", "sessions", "facts", "workers", "swept", "epoch",
    "holds", "tickets", "called", "waits", "limits", "rates", "hooks", "used", "owed", "named",
    "stacks", "artifacts",
    "changes", "attention",
)  # fmt: skip

#: Prefixes of keys with a name: a status, a session, a program, a token ...
NAMED_PARTS = (
    "status", "id", "idem", "program", "users", "owned", "spent", "token-key", "name", "label",
    "stack", "stack-line", "stack-all", "stack-call", "workflow", "stats",
    "browser", "browser-link", "views", "defined",
)  # fmt: skip
#: Keys across sessions that only Python writes.
OTHER_PARTS = (
    "tokens",
    "token-uses",
    "store",
    "store-past",
    "store-schema",
    "secret",
    "secrets-used",
    "refused",
    "asked",
)


_ROW = re.compile(r"^([a-z-]+)(?::[DX]\S*)?\s+(hash|zset|set|list|string|stream)\s", re.MULTILINE)
_OF_SESSIONS, _, _ACROSS = (__doc__ or "").partition("Keys across sessions")


def type_of(part: str, *, of_session: bool) -> str | None:
    """Returns the type that the table above gives to a part of a session's keys, or to others.

    >>> type_of("live", of_session=True), type_of("status", of_session=False)
    ('zset', 'zset')
    """
    return dict(_ROW.findall(_OF_SESSIONS if of_session else _ACROSS)).get(part)


class Keys(NamedTuple):
    """Builds key names under one prefix."""

    prefix: str

    def base(self, ref: SessionRef) -> str:
        """Return the prefix of all keys of a session."""
        return f"{self.prefix}:{{{ref.root}}}:{ref.id}:"

    def part(self, ref: SessionRef, part: str) -> str:
        """Return the key of one part of a session's data, such as `steps`."""
        return self.base(ref) + part

    def output(self, ref: SessionRef, attempt: str) -> str:
        """Return the key of the live output of an attempt."""
        return f"{self.base(ref)}output:{attempt}"

    def everywhere(self, part: str) -> str:
        """Return the key of data that all sessions share, such as `leases`; it has no hash tag."""
        return f"{self.prefix}:{part}"

    def status(self, status: str) -> str:
        """Return the key of the index of sessions with a status."""
        return f"{self.prefix}:status:{status}"

    def id(self, session: str) -> str:
        """Return the key that stores the root session of a session."""
        return f"{self.prefix}:id:{session}"

    def idempotency(self, key: str) -> str:
        """Return the Redis key that stores the session created under an Idempotency-Key."""
        return f"{self.prefix}:idem:{key}"

    def program(self, program: str) -> str:
        """Return the Redis key of a program, by the program's hash."""
        return f"{self.prefix}:program:{program}"

    def named(self, part: str, name: str) -> str:
        """Return the Redis key of a record by its kind and name, such as a stack or saved views."""
        return f"{self.prefix}:{part}:{name}"

    def owned(self, token: str) -> str:
        """Return the Redis key of the set of an API token's active sessions."""
        return f"{self.prefix}:owned:{token}"

    def token_key(self, mark: str) -> str:
        """Return the Redis key that stores the Idempotency-Key of a request for an API token."""
        return f"{self.prefix}:token-key:{mark}"

    def spent(self, token: str, day: int) -> str:
        """Return the Redis key of the usage counters of an API token on a day."""
        return f"{self.prefix}:spent:{token}:{day}"


def lua_parts() -> str:
    """Generates the Lua module `parts`, a table with the names of all key parts."""
    session = ", ".join(f"{part} = true" for part in SESSION_PARTS)
    shared = ", ".join(f"{part} = true" for part in GLOBAL_PARTS)
    return f"return {{session = {{{session}}}, shared = {{{shared}}}}}"
