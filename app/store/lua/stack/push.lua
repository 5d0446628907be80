-- Starts a workflow session: it is on top of the stack, above the one that was active.
-- Arguments: stack, workflow (a new id), job_name, workflow_name, goal, instance_id?, step, keep_s, folder? and place?
--   (of the stack), store? (the id that the caller expects), owner?, nonce?
-- Returns: started(stack) | taken (the id) | full (the stack) | other_store
--- @requires stacks, transaction

-- Writes the record of the new workflow session.
local function write(tx, id)
  local args, key = tx.args, stacks.key(tx, id)
  redis.call('HSET', key, 'id', id, 'stack', args.stack, 'status', 'active', 'job_name', args.job_name,
    'workflow_name', args.workflow_name, 'goal', args.goal, 'current_step_id', args.step, 'current_entry_index', 0,
    'started', tx.clock, 'steps', 0)
  if args.instance_id then redis.call('HSET', key, 'instance_id', args.instance_id) end
  redis.call('HSET', key, 'order', stacks.list(tx, id, tx.clock))
end

local function start(tx)
  local args, id = tx.args, tx.args.workflow
  if redis.call('EXISTS', stacks.key(tx, id), tx.prefix .. 'id:' .. id) > 0 then return 'taken' end
  if #stacks.line(tx) >= stacks.DEPTH_MAX then return 'full' end
  write(tx, id)
  stacks.push(tx, id)
  stacks.describe(tx, args.folder, args.place)
  return 'started', id
end

return function(tx)
  if transaction.is_other_store(tx) then return transaction.reply(tx, 'other_store') end
  return stacks.once(tx, start)
end
