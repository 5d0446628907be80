-- The lists of what is due, in batches.
local due_lists = {}

-- The lines of a list that are due.
function due_lists.batch(tx, key)
  return redis.call('ZRANGEBYSCORE', key, '-inf', tx.now, 'LIMIT', 0, tx.args.limit)
end

local LOOKED_AT = 1000   -- leases that are searched for timers

-- Whether a line of `leases` is a step that waits for a time, as a guard does.
local function is_timer(tx, line)
  local session, root, address = line:match('^(.-)|(.-)|(.*)$')
  local text = redis.call('HGET', tx.prefix .. '{' .. root .. '}:' .. session .. ':steps', address)
  local parked = text and cjson.decode(text).parked
  return parked and (parked.on == 'wait' or parked.on == 'stop')
end

-- The timers that are due. In the period of grace only these are: a lease may have passed while no heartbeat could be
-- stored, a timer has simply come.
function due_lists.timers(tx)
  local found = {}
  for _, line in ipairs(redis.call('ZRANGEBYSCORE', tx.shared.leases, '-inf', tx.now, 'LIMIT', 0, LOOKED_AT)) do
    if is_timer(tx, line) then table.insert(found, line) end
    if #found == tx.args.limit then break end
  end
  return found
end

-- The deletions that are due, wherever they are in the outbox: a full server accepts nothing else.
function due_lists.deletions(tx)
  local found = {}
  for _, errand in ipairs(redis.call('ZRANGEBYSCORE', tx.shared.errands, '-inf', tx.now)) do
    if errand:sub(1, 7) == 'forget|' then table.insert(found, errand) end
    if #found == tx.args.limit then break end
  end
  return found
end

return due_lists
