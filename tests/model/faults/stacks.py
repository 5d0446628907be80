"""Faults in stacks: a session that is lost, counted twice, or in the wrong place."""

from __future__ import annotations

from tests.model.faults.fault import Fault

_MACHINE = "test_stack_is_as_a_plain_list_after_each_call"

FAULTS = (
    Fault(
        "the active workflow session is the oldest one",
        "core/stacks.py",
        "    return stack.asked or stack.ids[-1]\n",
        "    return stack.asked or stack.ids[0]\n",
        found_by=_MACHINE,
    ),
    Fault(
        "a repeated call is carried out again",
        "lib/stacks",
        "  local call = kept and cjson.decode(kept) or nil\n",
        "  local call = nil\n",
        found_by=_MACHINE,
    ),
    Fault(
        "a stack that changed meanwhile is written over",
        "lib/stacks",
        "(version or 0) ~= args.version",
        "(version or 0) < args.version",
        found_by="test_change_between_the_read_and_the_write_of_another_is_kept",
    ),
    Fault(
        "a session that ends takes those above with it",
        "core/stacks.py",
        "stack.line[:at] + stack.line[at + 1 :]",
        "stack.line[:at]",
        found_by=_MACHINE,
    ),
    Fault(
        "a session that ends is the parent of the one above",
        "core/stacks.py",
        '{"parent": ids[at - 1] if at else ""}',
        '{"parent": id_}',
        found_by=_MACHINE,
    ),
    Fault(
        "a new session is below the stack",
        "core/stacks.py",
        "    line = (*stack.line, stack.workflow)\n",
        "    line = (stack.workflow, *stack.line)\n",
        found_by=_MACHINE,
    ),
    Fault(
        "outputs are merged by the last change",
        "core/stacks.py",
        "        return StoredStep.model_validate_json(text)\n",
        '        order = {"order": int(stack.workflow["revision"])}\n'
        "        return StoredStep.model_validate_json(text).model_copy(update=order)\n",
        found_by=_MACHINE,
    ),
    Fault(
        "a restarted step loses its end",
        "core/stacks.py",
        'update={"started": stack.now}',
        'update={"started": stack.now, "completed": None}',
        found_by=_MACHINE,
    ),
    Fault(
        "an attempt is not counted",
        "core/stacks.py",
        '"attempts": step.attempts + 1',
        '"attempts": 1',
        found_by="test_attempts_of_a_step_are_counted",
    ),
    Fault(
        "the end of a step moves the session to it",
        "core/stacks.py",
        '{**texts, "bytes": str(size)}',
        '{**texts, "bytes": str(size), "current_step_id": name}',
        found_by=_MACHINE,
    ),
    Fault(
        "a session that ended stays on the stack",
        "core/stacks.py",
        'return _remove(_edit(stack, id_, {**fields, "completed": str(stack.now)}), id_)',
        'return _edit(stack, id_, {**fields, "completed": str(stack.now)})',
        found_by=_MACHINE,
    ),
    Fault(
        "going back keeps the position",
        "core/stacks.py",
        '{"current_step_id": step, "current_entry_index": str(index)}',
        '{"current_step_id": step}',
        found_by=_MACHINE,
    ),
    Fault(
        "load replaces the top without force",
        "core/stacks.py",
        "None if force else top,",
        "None,",
        found_by="test_load_replaces_the_top_by_force_only",
    ),
    Fault(
        "load keeps what it replaces",
        "core/stacks.py",
        "stack if top is None else _remove(stack, top)",
        "stack",
        found_by=_MACHINE,
    ),
    Fault(
        "a loaded session is on the stack twice",
        "core/stacks.py",
        "    stack = _remove(stack, id_)  # it may be below\n",
        "",
        found_by=_MACHINE,
    ),
    Fault(
        "a deleted session stays in the list",
        "lib/stacks",
        "  redis.call('ZREM', key_of(tx, 'stack-all', tx.args.stack), tx.args.entry)\n",
        "",
        found_by="test_a_deleted_session_is_in_no_list",
    ),
    Fault(
        "an id is given twice",
        "lib/stacks",
        "  redis.call('HSET', key, 'deleted', tx.clock)\n",
        "",
        found_by="test_an_id_of_a_deleted_session_is_not_given_again",
    ),
)
