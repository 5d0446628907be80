-- Records the start, the end or a quality attempt of a step of a workflow session; the record of the step is made if
-- there is none.
-- Arguments: stack, workflow? (by default the active one), op (start, complete, attempt), step, notes?, owner?, nonce?
-- Document: of `complete`, the outputs (JSON).
-- Returns: recorded(stack, count: the quality attempts) | many (the workflow session has too many steps) |
--   long (it has too many bytes of outputs) | empty (the stack) | not_on_stack
--- @requires stacks, workflow_steps

local apply = {}

-- The outputs and the end of an earlier run are kept.
function apply.start(tx, id, step)
  step.started = tx.now
  redis.call('HSET', stacks.key(tx, id), 'current_step_id', tx.args.step)
end

function apply.complete(tx, id, step)
  if not workflow_steps.save_outputs(tx, id, tx.args.step, tx.document, tx.args.notes) then return 'long' end
  step.completed = tx.now
  step.started = step.started or tx.now
end

function apply.attempt(_, _, step)
  step.attempts = step.attempts + 1
end

local function record(tx)
  local id, why = stacks.find(tx)
  if not id then return why end
  local step = workflow_steps.load(tx, id, tx.args.step)
  if not step then return 'many' end
  why = apply[tx.args.op](tx, id, step)
  if why then return why end
  workflow_steps.save(tx, id, tx.args.step, step)
  return 'recorded', id, step.attempts
end

return function(tx)
  return stacks.once(tx, record)
end
