"""The lower bound: a bare loop with one Lua transition and one push and pop per step.

A system that stores steps in Redis and queues them cannot do less. As a program it is one loop:
``python -P -m benchmarks.floor URL``; there are as many of them as a worker has processes.
"""

from __future__ import annotations

import json
import sys
import time

from redis import Redis

QUEUE = "floor:queue"
DONE = "floor:done"

_TRANSITION = """
local state, fence = unpack(redis.call('HMGET', KEYS[1], ARGV[1], ARGV[1] .. ':fence'))
if state == 'done' then return 0 end
redis.call('HSET', KEYS[1], ARGV[1], 'done', ARGV[1] .. ':fence', (fence or 0) + 1)
redis.call('XADD', KEYS[2], '*', 't', 'done', 'a', ARGV[1])
return 1
"""


def send(redis: Redis, steps: int, name: str) -> None:
    """Queue the first of a sequence of steps."""
    redis.lpush(QUEUE, json.dumps([name, 1, steps, time.time()]))


def main(url: str) -> None:
    """Carry out steps until it is killed."""
    redis = Redis.from_url(url, decode_responses=True, socket_timeout=None)
    transition = redis.register_script(_TRANSITION)
    while True:
        _, text = redis.brpop([QUEUE], timeout=0)
        name, step, steps, began = json.loads(text)
        transition(keys=[f"floor:{name}", f"floor:{name}:events"], args=[f"step{step}"])
        if step < steps:
            redis.lpush(QUEUE, json.dumps([name, step + 1, steps, began]))
        else:
            redis.zadd(DONE, {name: time.time() - began})


if __name__ == "__main__":
    main(sys.argv[1])
