"""Faults in stacks: a session that is lost, counted twice, or in the wrong place."""

from __future__ import annotations

from tests.model.faults.fault import Fault

_MACHINE = "test_stack_is_as_a_plain_list_after_each_call"

FAULTS = (
    Fault(
        "the active workflow session is the oldest one",
        "lib/stacks",
        "    return line[#line]\n",
        "    return line[1]\n",
        found_by=_MACHINE,
    ),
    Fault(
        "a repeated call is carried out again",
        "lib/stacks",
        "  if kept then\n",
        "  if false then\n",
        found_by=_MACHINE,
    ),
    Fault(
        "a session that ends takes those above with it",
        "lib/stacks",
        "  redis.call('LREM', key_of(tx, 'stack-line'), 0, id)\n",
        "  for at, one in ipairs(line) do\n"
        "    if one == id then redis.call('LTRIM', key_of(tx, 'stack-line'), 0, at - 2) end\n"
        "  end\n",
        found_by=_MACHINE,
    ),
    Fault(
        "a session that ends is the parent of the one above",
        "lib/stacks",
        "'parent', line[at - 1] or '')",
        "'parent', id)",
        found_by=_MACHINE,
    ),
    Fault(
        "a new session is below the stack",
        "lib/stacks",
        "redis.call('RPUSH', key_of(tx, 'stack-line'), id)",
        "redis.call('LPUSH', key_of(tx, 'stack-line'), id)",
        found_by=_MACHINE,
    ),
    Fault(
        "outputs are merged by the last change",
        "lib/workflow_steps",
        "  if text then return cjson.decode(text) end\n",
        "  if text then\n"
        "    local step = cjson.decode(text)\n"
        "    step.order = redis.call('HINCRBY', key, 'steps', 1)\n"
        "    return step\n"
        "  end\n",
        found_by=_MACHINE,
    ),
    Fault(
        "a restarted step loses its end",
        "stack/step",
        "  step.started = tx.now\n",
        "  step.started, step.completed = tx.now, nil\n",
        found_by=_MACHINE,
    ),
    Fault(
        "an attempt is not counted",
        "stack/step",
        "  step.attempts = step.attempts + 1\n",
        "  step.attempts = 1\n",
        found_by="test_attempts_of_a_step_are_counted",
    ),
    Fault(
        "the end of a step moves the session to it",
        "stack/step",
        "  step.completed = tx.now\n",
        "  step.completed = tx.now\n"
        "  redis.call('HSET', stacks.key(tx, id), 'current_step_id', tx.args.step)\n",
        found_by=_MACHINE,
    ),
    Fault(
        "a session that ended stays on the stack",
        "stack/finish",
        "  stacks.remove(tx, id)\n",
        "",
        found_by=_MACHINE,
    ),
    Fault(
        "going back keeps the position",
        "stack/advance",
        ", 'current_entry_index', tx.args.index)",
        ")",
        found_by=_MACHINE,
    ),
    Fault(
        "load replaces the top without force",
        "stack/load",
        "  if top and top ~= id then return 'occupied' end\n",
        "",
        found_by="test_load_replaces_the_top_by_force_only",
    ),
    Fault(
        "load keeps what it replaces",
        "stack/load",
        "    if top then stacks.remove(tx, top) end\n",
        "",
        found_by=_MACHINE,
    ),
    Fault(
        "a loaded session is on the stack twice",
        "stack/load",
        "    stacks.remove(tx, id)   -- it may be below\n",
        "",
        found_by=_MACHINE,
    ),
    Fault(
        "a deleted session stays in the list",
        "lib/stacks",
        "  redis.call('ZREM', key_of(tx, 'stack-all'), member_of(tonumber(order) or 0, id))\n",
        "",
        found_by="test_a_deleted_session_is_in_no_list",
    ),
    Fault(
        "an id is given twice",
        "stack/push",
        "redis.call('EXISTS', stacks.key(tx, id), ",
        "redis.call('EXISTS', ",
        found_by="test_an_id_of_a_deleted_session_is_not_given_again",
    ),
)
