"""Every Redis key, and what lies beneath it.

Of one session, at ``{prefix}:{{root}}:{session}:<part>`` (a tree shares its root's tag):

=========  ======  ==================================================================
part       type    what it holds
=========  ======  ==================================================================
session    hash    status, reason, counters, parent, root, place, program; times in ms
steps      hash    address -> state, fence, nonce, attempts, lease, deadline, outcome (JSON)
turns      hash    address of a loop's or for_each's run -> state, iteration, verdict (JSON)
runs       hash    node in its block -> its newest run, where that is not the first
widths     hash    for_each node in its block -> how many items it has
items      hash    ``node#item`` -> what that item of a for_each works on (JSON)
live       zset    addresses that are ready, running or parked (ordered by name)
running    zset    those of them that a worker holds
parked     zset    those of them that wait for a person, a time or a child
open       zset    turns that have not closed
arrived    zset    ``join<node``: who has arrived at a join that is not yet complete
hinted     zset    ``queue<address``: ready steps whose hint is out; ``key<address``: those that
                   are offered, or wait in the line of a limited key
waiting    zset    ``queue<order<address``, ``key<order<address``: ready steps that wait for a slot
                   of either window
out        hash    address -> outcome (JSON)
ledger     list    one entry an iteration (JSON)
events     stream  what happened, in order
warnings   list    what went wrong without ending the session
children   set     child sessions
born       zset    ``address<child``: which step started it (ordered by name)
holding    set     ``lock<owner``: the locks that it holds
threads    hash    conversation, ``agent|identifier`` -> where its agent goes on with it (JSON)
transcript  list   what was said, by whom, in order (JSON); the last 5,000 records
diffs      hash    address of a doer -> what it changed in its folder (JSON, gzip, base64);
                   of no address: the order in which they came, with their sizes (JSON)
hooks      hash    delivery of a webhook -> event, tries, what the session was (JSON)
=========  ======  ==================================================================

They get a TTL when the session ends or is stopped; until then the session itself is the reason.

Across sessions, at ``{prefix}:<part>``:

===========  ======  ================================================================
leases       zset    ``session|root|address`` by when an attempt or a parked step is due, and
                     ``session|root|`` by when a session's own time is over
ready        zset    the same by when a ready step is hinted (again)
holds        zset    ``lock<owner``: a turn that holds a folder, an attempt a limited key or
                     a conversation
tickets      zset    ``lock<order<session|root|address``: who waits for it, in order of priority (a
                     digit) and of coming (14 digits)
called       hash    ``lock<member`` of who waits for it -> when its turn came, or for a rate comes;
                     below zero: when it was passed over
waits        hash    ``session|root|address`` -> the locks that it waits for (JSON)
limits       hash    key -> concurrency, per_minute (JSON); kept until somebody takes it away
rates        hash    key -> when the next attempt with it may begin (goes with the limit)
errands      zset    ``verb|session|root``: what one session's end owes another
tokens       hash    API tokens by id: a secret's hash, scopes ..., sealed; until revoked or over
token-uses   hash    when each was used last; goes with it
owned:X      set     a token's sessions that have not ended; empties itself as they end
token-key:X  string  the token of an Idempotency-Key, by the key's hash (TTL 7 days)
spent:X:D    hash    a token's steps and bytes on day D (TTL 2 days)
hooks        zset    ``session|root|delivery`` by when a webhook is tried (again)
sessions     zset    session ids by creation
status:X     zset    session ids of one status by creation
id:X         string  a session's root; reserves the id (TTL when the session ends)
idem:X       string  session and body hash of an Idempotency-Key (TTL 7 days)
program:X    hash    a program: its document, one route per node, and a mark of when it was written
users:X      set     sessions that run the program; it goes when the last one does
workers      hash    inventories, each with its time
used         hash    what all sessions ever used: cost_micros, tokens_in, tokens_out (kept)
store        string  a name of its own, with which what lies elsewhere is marked (kept)
owed         hash    session -> why its export could not be written, while it stays for that
swept        string  when somebody swept last (kept: it is one number)
epoch        hash    the server's run id, and until when leases have grace after its restart
===========  ======  ================================================================
"""

from __future__ import annotations

from typing import NamedTuple

#: The parts of a session, in the order of the table above.
SESSION_PARTS = (
    "session", "steps", "turns", "runs", "widths", "items", "live", "running", "parked", "open",
    "arrived", "hinted", "waiting", "out", "ledger", "events", "warnings", "children", "born",
    "holding", "hooks", "threads", "transcript", "diffs",
)  # fmt: skip
#: What belongs to all sessions.
GLOBAL_PARTS = (
    "leases", "ready", "errands", "sessions", "workers", "swept", "epoch",
    "holds", "tickets", "called", "waits", "limits", "rates", "hooks", "used", "owed",
)  # fmt: skip

#: What goes by a name of its own behind these: a status, a session, a program, a token ...
NAMED_PARTS = ("status", "id", "idem", "program", "users", "owned", "spent", "token-key")
#: What belongs to all sessions and no script writes.
OTHER_PARTS = ("tokens", "token-uses", "store")


class SessionRef(NamedTuple):
    """A session and the root of its tree: what it takes to find its keys."""

    id: str
    root: str

    @property
    def member(self) -> str:
        """What stands before an address in the zsets across sessions."""
        return f"{self.id}|{self.root}|"


class Keys(NamedTuple):
    """The names, under one prefix."""

    prefix: str

    def base(self, ref: SessionRef) -> str:
        return f"{self.prefix}:{{{ref.root}}}:{ref.id}:"

    def part(self, ref: SessionRef, part: str) -> str:
        return self.base(ref) + part

    def everywhere(self, part: str) -> str:
        return f"{self.prefix}:{part}"

    def status(self, status: str) -> str:
        return f"{self.prefix}:status:{status}"

    def id(self, session: str) -> str:
        return f"{self.prefix}:id:{session}"

    def idempotency(self, key: str) -> str:
        return f"{self.prefix}:idem:{key}"

    def program(self, program: str) -> str:
        return f"{self.prefix}:program:{program}"

    def owned(self, token: str) -> str:
        return f"{self.prefix}:owned:{token}"

    def token_key(self, mark: str) -> str:
        return f"{self.prefix}:token-key:{mark}"

    def spent(self, token: str, day: int) -> str:
        return f"{self.prefix}:spent:{token}:{day}"


def lock_name(name: str) -> str:
    """A lock's name without the sign that parts it from its holder.

    >>> lock_name("folder:here:/a<b")
    'folder:here:/a%3Cb'
    """
    return name.replace("<", "%3C")


def name_of_lock(lock: str) -> str:
    """What a lock was named for.

    >>> name_of_lock(lock_name("key:a<b"))
    'key:a<b'
    """
    return lock.replace("%3C", "<")


def lua_names() -> str:
    """The Lua line that gives the parts the same names there."""
    ours = ", ".join(f"'{part}'" for part in SESSION_PARTS)
    all_ = ", ".join(f"'{part}'" for part in GLOBAL_PARTS)
    return f"local PARTS = {{session = {{{ours}}}, all = {{{all_}}}}}\n"
