-- Child sessions: whether they are at work, and the commands that are queued for them in the outbox.
--- @requires addresses, transaction
local children = {}

local OPPOSITE = {stop = 'resume', resume = 'stop'}

-- Queues a command (stop, resume, abort) for a child; it replaces an opposite one that is still queued.
function children.send(tx, verb, child)
  local whom = '|' .. child .. tx.args.member:match('|.*$')
  if OPPOSITE[verb] then redis.call('ZREM', tx.shared.errands, OPPOSITE[verb] .. whom) end
  redis.call('ZADD', tx.shared.errands, tx.now, verb .. whom)
end

-- Queues a command for each child but those that `is_spared(tx, child)` names.
function children.send_all(tx, verb, is_spared)
  for _, child in ipairs(redis.call('SMEMBERS', tx.keys.children)) do
    if not (is_spared and is_spared(tx, child)) then children.send(tx, verb, child) end
  end
end

-- The key of a child's fields.
function children.key_of(tx, child)
  return tx.base:sub(1, -#tx.args.session - 2) .. child .. ':session'
end

-- The status of a child session; false if it is deleted.
function children.status_of(tx, child)
  return redis.call('HGET', children.key_of(tx, child), 'status')
end

-- What becomes of a child that a body started once its parent ends: `abort` or `let-go-on`; '' for other children.
local function policy_of(tx, child)
  return redis.call('HGET', children.key_of(tx, child), 'on_parent_end') or ''
end

-- Whether a child continues after the end of what started it.
function children.outlives(tx, child)
  return policy_of(tx, child) == 'let-go-on'
end

-- Whether a child session is at work: a parent stops and ends after its children.
function children.any_at_work(tx)
  for _, child in ipairs(redis.call('SMEMBERS', tx.keys.children)) do
    if transaction.AT_WORK[children.status_of(tx, child)] then return true end
  end
  return false
end

-- The children of the lines between two bounds of `born`.
local function born_between(tx, low, high)
  local found = {}
  for _, line in ipairs(redis.call('ZRANGEBYLEX', tx.keys.born, low, high)) do
    table.insert(found, line:match('<(.*)$'))
  end
  return found
end

-- The children that steps below a turn have started.
local function started_below(tx, turn)
  if turn.id == '' then return redis.call('SMEMBERS', tx.keys.children) end
  return born_between(tx, addresses.range_below(turn))
end

-- Aborts a child that is at work or may be resumed. Returns whether it is at work.
local function abort(tx, child)
  local status = children.status_of(tx, child)
  if transaction.AT_WORK[status] and status ~= 'aborting' or status == 'stopped' then
    children.send(tx, 'abort', child)
    table.insert(tx.reply.abort, child)
  end
  return transaction.AT_WORK[status]
end

-- Aborts the children below a turn that ends early, but those that `is_spared(tx, child)` names. Returns whether one
-- of them is still at work.
function children.abort_below(tx, turn, is_spared)
  local working = false
  for _, child in ipairs(started_below(tx, turn)) do
    local continues = children.outlives(tx, child) or is_spared and is_spared(tx, child)
    if not continues and abort(tx, child) then working = true end
  end
  return working
end

-- Whether a child that a step started is at work.
function children.any_of_attempt(tx, address)
  for _, child in ipairs(born_between(tx, addresses.range_of(address .. '<'))) do
    if transaction.AT_WORK[children.status_of(tx, child)] then return true end
  end
  return false
end

-- Aborts the children that a body's attempt started, because it was lost, handed back or has failed: the next attempt
-- starts its own. Child steps keep theirs, which their next attempt finds.
function children.abort_of_attempt(tx, address)
  for _, child in ipairs(born_between(tx, addresses.range_of(address .. '<'))) do
    if policy_of(tx, child) == 'abort' then abort(tx, child) end
  end
end

return children
