-- Moves a workflow session to another step: forwards or back.
-- Arguments: stack, workflow? (by default the active one), step, index, owner?, nonce?
-- Returns: advanced(stack) | empty (the stack) | not_on_stack
--- @requires stacks
local function advance(tx)
  local id, why = stacks.find(tx)
  if not id then return why end
  redis.call('HSET', stacks.key(tx, id), 'current_step_id', tx.args.step, 'current_entry_index', tx.args.index)
  return 'advanced', id
end

return function(tx)
  return stacks.once(tx, advance)
end
