-- The end of a session for its children: each is aborted, or continues by itself if its policy is to let it continue.
--- @requires budgets, transaction, children, usage
local detachment = {}

-- Moves the rest of the budget that a child asked for from the sessions above it, which have it no more.
local function move_budget(tx, key)
  local own = redis.call('HGET', key, 'own_budget') or ''
  local base = own ~= '' and tx.base or nil
  local rest = own ~= '' and cjson.decode(own) or {}
  local spent = base and budgets.spent(key) or {}
  while base do
    local values = redis.call('HMGET', base .. 'session', 'budget', 'parent')
    local limits = values[1] and values[1] ~= '' and cjson.decode(values[1]) or {}
    for name, limit in pairs(rest) do
      if limits[name] and spent[name] then
        limits[name] = math.max(1, limits[name] - math.max(0, limit - spent[name]))
      end
    end
    if values[1] then redis.call('HSET', base .. 'session', 'budget', cjson.encode(limits)) end
    base = values[2] and values[2] ~= '' and cjson.decode(values[2]).base or nil
  end
end

-- Detaches a child: it is no child any more, and nothing that is queued for it as a child happens.
local function detach(tx, child, key, address)
  usage.add_child(tx, child, address)   -- what it used until now, its parent used
  move_budget(tx, key)
  redis.call('HSET', key, 'parent', '', 'detached_from', tx.args.session)
  redis.call('SREM', tx.keys.children, child)
  redis.call('ZREM', tx.keys.born, address .. '<' .. child)
  local detached = redis.call('HGET', tx.keys.session, 'detached') or ''
  redis.call('HSET', tx.keys.session, 'detached', detached .. ' ' .. child)
  local whom = '|' .. child .. tx.args.member:match('|.*$')
  for _, verb in ipairs({'stop', 'resume', 'abort', 'deliver'}) do
    redis.call('ZREM', tx.shared.errands, verb .. whom)
  end
end

-- Ends what the session has with its children, at its own end.
function detachment.end_children(tx)
  for _, child in ipairs(redis.call('SMEMBERS', tx.keys.children)) do
    local status = children.status_of(tx, child)
    local goes_on = transaction.AT_WORK[status] or status == 'stopped'
    local key = children.key_of(tx, child)
    local parent = redis.call('HGET', key, 'parent') or ''   -- '' if the list of children is wrong
    if goes_on and parent ~= '' and children.outlives(tx, child) then
      detach(tx, child, key, cjson.decode(parent).address)
    else
      children.send(tx, 'abort', child)
    end
  end
end

return detachment
