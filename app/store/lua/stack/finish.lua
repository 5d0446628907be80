-- Ends a workflow session, anywhere in the stack: those above stay.
-- Arguments: stack, workflow? (by default the active one), status (completed, aborted), reason?, keep_s, owner?, nonce?
-- Returns: finished(stack) | empty (the stack) | not_on_stack
--- @requires stacks
local function finish(tx)
  local id, why = stacks.find(tx)
  if not id then return why end
  local key = stacks.key(tx, id)
  redis.call('HSET', key, 'status', tx.args.status, 'completed', tx.clock)
  if tx.args.reason then redis.call('HSET', key, 'abort_reason', tx.args.reason) end
  stacks.remove(tx, id)
  stacks.trim(tx, id)
  return 'finished', id
end

return function(tx)
  return stacks.once(tx, finish)
end
