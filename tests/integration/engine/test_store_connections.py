"""However many threads speak to Redis at once, none of them is refused for that."""

from __future__ import annotations

import threading
from concurrent.futures import ThreadPoolExecutor

from app.core.addresses import SessionRef
from app.store.store import Store, connect

THREADS = 120


def test_many_threads_read_and_make_transitions_at_once(store_url: str) -> None:
    redis = connect(store_url)
    store, all_there = Store(redis), threading.Barrier(THREADS, timeout=20)

    def speak(_: int) -> str:
        reading = redis.connection_pool.get_connection()  # as an event stream does, for long
        try:
            all_there.wait()
            ref = SessionRef("unknown0", "unknown0")
            return store.run("control", ref, "", {"verb": "stop", "from": []}).word
        finally:
            redis.connection_pool.release(reading)

    with ThreadPoolExecutor(THREADS) as threads:
        assert set(threads.map(speak, range(THREADS))) == {"unknown"}
    redis.close()
