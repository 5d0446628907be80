"""A pool process that is done with its message takes the next one itself, while some stand there.

Of a short step, Celery's parent is most of the cost: it takes a message, tells its pool, hears of
its end, and does so for all processes of the pool. With a backlog, a process that is free anyway
reads the queues as the parent does, what is urgent first, and leaves to the parent what it is for:
to wait for messages, and to end. It does so for at most `TAKING_S` behind one message of Celery's,
whose own end Celery hears of so much later. What is taken is told in task events like any other.
"""

from __future__ import annotations

import logging
import threading
import time
from collections import deque
from collections.abc import Callable, Sequence
from contextlib import suppress
from typing import Any

from celery import Celery
from celery.signals import task_postrun, task_prerun
from kombu.exceptions import OperationalError

from tasks.celery_app import PRIORITIES
from tasks.messages import Message, read
from tasks.sending import Lists, connected, from_no_task, post_of
from tasks.steps import BOUND

log = logging.getLogger(__name__)

#: Nothing more is taken so many seconds after the beginning of Celery's message.
TAKING_S = 1.0
#: Events are sent when so many seconds have gone by, or so many of them have come together.
TELL_S = 0.1
TELL_AT_ONCE = 100
#: The kind of event that is sent in batches.
_TASKS = "task"


class Taking:
    """Takes messages for one pool process, from these queues."""

    def __init__(
        self,
        celery: Celery,
        queues: Sequence[str],
        *,
        hostname: str,
        draining: Callable[[], bool] = lambda: False,
    ) -> None:
        self._celery = celery
        self._queues = deque(queues)
        #: The command that takes a message, by the queue that has its turn to be the first.
        self._take: dict[str, Any] = {}
        self._hostname = hostname
        self._draining = draining
        self._begun = 0.0
        self._pending = threading.Event()
        self._teller: threading.Thread | None = None
        self._possible = True
        with celery.connection_for_write() as connection:
            #: What a broker that is away raises.
            self._lost: tuple[type[BaseException], ...] = (
                *connection.connection_errors,
                *connection.channel_errors,
                OperationalError,
                OSError,
            )
        self._events: Any = None

    def begin(self) -> None:
        """Go on behind each message that Celery carries out in this process, from now on."""
        task_prerun.connect(self._before, weak=False)
        task_postrun.connect(self._after, weak=False)

    def go_on(self, since: float) -> int:
        """Carry out what stands in the queues, behind a message that began then; says how many."""
        taken = 0
        try:
            while self._goes_on(since) and (message := self._next()) is not None:
                self._carry_out(message)
                taken += 1
            self._tell()
        except self._lost as error:  # the sweep sends again what went with it
            log.warning("messages not taken", extra={"why": type(error).__name__})
            self.let_go()
        except Exception:
            log.exception("message not carried out, goes on")
            self.let_go()
        return taken

    def let_go(self) -> None:
        """End the connection that events go by; the next message makes a new one."""
        events, self._events = self._events, None
        with suppress(Exception):
            events.connection.collect()

    def _before(self, **_: object) -> None:
        self._begun = time.monotonic()

    def _after(self, **_: object) -> None:
        # What Celery's message carries on has been sent by now.
        self.go_on(self._begun)

    def _goes_on(self, since: float) -> bool:
        young = time.monotonic() - since < TAKING_S
        return young and self._possible and not self._draining()

    def _next(self) -> Message | None:
        """The next message of ours; another's goes back to where it stood."""
        lists = post_of(self._celery).lists()
        if lists is None:
            self._possible = False  # no Redis
            return None
        self._tell_from_now_on()
        self._queues.rotate(-1)  # each of them has its turn to be the first
        try:
            with connected(lists.pool) as connection:
                found = _answer(connection, self._packed(lists, connection))
                message = read(found[1][0]) if found else None
                if found and message is None:
                    _answer(connection, connection.pack_command("RPUSH", found[0], *found[1]))
        except lists.refused as error:
            log.info("messages are left to Celery", extra={"why": str(error)})
            self._possible = False  # Redis before 7
            return None
        return message

    def _packed(self, lists: Lists, connection: Any) -> Any:
        first = self._queues[0]
        if first not in self._take:
            keys = [lists.name(queue, pri) for pri in PRIORITIES for queue in self._queues]
            self._take[first] = connection.pack_command("LMPOP", len(keys), *keys, "RIGHT")
        return self._take[first]

    def _carry_out(self, message: Message) -> None:
        assert BOUND.carry is not None
        begun = time.monotonic()
        self._say("task-received", message, name=message.task, args=_shown(message), kwargs="{}")
        self._say("task-started", message)
        try:
            hints = BOUND.carry(message.ref, message.address)
            # What the message carries beyond its own step stays here: all that was released is
            # sent, and not by the task that Celery carried out before.
            with from_no_task():
                if hints:
                    BOUND.carry.publish(message.ref, hints)
        except Exception as error:
            self._say("task-failed", message, exception=repr(error), traceback="")
            raise
        result = "ignored" if hints is None else "None"
        self._say("task-succeeded", message, result=result, runtime=time.monotonic() - begun)

    def _say(self, kind: str, message: Message, **fields: object) -> None:
        if self._events is not None:
            self._events.send(kind, uuid=message.id, **fields)
            self._pending.set()

    def _tell(self) -> None:
        events = self._events
        if events is not None:
            events.flush()

    def _keep_telling(self) -> None:
        """Events wait for others, but not for the end of a long step."""
        while True:
            self._pending.wait()
            time.sleep(TELL_S)
            self._pending.clear()
            with suppress(Exception):  # who took them sees that the broker is away
                self._tell()

    def _tell_from_now_on(self) -> None:
        if self._events is not None or not self._celery.conf.worker_send_task_events:
            return
        self._events = self._celery.events.Dispatcher(
            self._celery.connection_for_write(),
            hostname=self._hostname,
            buffer_group=frozenset({_TASKS}),
            buffer_limit=TELL_AT_ONCE,
        )
        if self._teller is None:
            self._teller = threading.Thread(target=self._keep_telling, name="tell", daemon=True)
            self._teller.start()


def _answer(connection: Any, command: Any) -> Any:
    connection.send_packed_command(command)
    return connection.read_response()


def _shown(message: Message) -> str:
    """A task's arguments, as Celery's events show them."""
    return repr((*message.ref, message.address))
