-- Deletes the record of a workflow session; if it is on the stack it leaves it, and those above stay.
-- Arguments: stack, workflow, keep_s, owner?, nonce?
-- Returns: deleted(stack) | unknown
--- @requires stacks
local function delete(tx)
  local id = tx.args.workflow
  if redis.call('HGET', stacks.key(tx, id), 'stack') ~= tx.args.stack then return 'unknown' end
  stacks.remove(tx, id)
  stacks.unlist(tx, id)
  stacks.bury(tx, id)
  return 'deleted', id
end

return function(tx)
  return stacks.once(tx, delete)
end
