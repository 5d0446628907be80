-- What attempts and child sessions use: cost and tokens. Counted for the step, the turns around it, the session, all
-- sessions, and the sessions above.
--- @requires addresses, budgets, changes, ledger, records, statistics
local usage = {}

-- Adds to a counter of the session and to the same counter of each turn around an address.
function usage.tally(tx, address, name, by)
  local total = records.count(tx, name, by)
  for _, around in ipairs(addresses.turns_around(addresses.block_of(address))) do
    local turn = around.id ~= '' and records.load(tx, 'turns', around.id)
    if turn then
      turn[name] = (turn[name] or 0) + (by or 1)
      if turn.entry then ledger.amend(tx, turn.entry, turn) end
      records.save(tx, 'turns', around.id)
    end
  end
  return total
end

-- Adds usage to each session above at once; the child reports it itself when it ends. A session above that reaches
-- a limit by it checks that now, unless this session's own limit ends it anyway.
local function add_above(tx, more)
  local parent, child = tx.session.parent, tx.args.session
  while parent ~= '' do
    local above = cjson.decode(parent)
    local key = above.base .. 'session'
    local values = redis.call('HMGET', key, 'budget', 'parent', 'status')
    if not values[3] then return end   -- deleted: a write would create it again
    for name, by in pairs(more) do
      if by > 0 then redis.call('HINCRBY', key, 'below/' .. name, by) end
    end
    local spent = budgets.spent(key)
    for name, limit in pairs(values[1] and values[1] ~= '' and cjson.decode(values[1]) or {}) do
      if spent[name] and budgets.is_nearly_used(spent[name], limit) then
        changes.call_person(tx, true, above.base:match(':([^:]+):$'))
      end
      if spent[name] and spent[name] >= limit and not tx.reached then
        redis.call('ZADD', tx.shared.errands, tx.now, 'deliver|' .. child .. tx.args.member:match('|.*$'))
        tx.reply.tell = tx.reply.tell or child == tx.args.session
      end
    end
    parent, child = values[2] or '', above.base:match(':([^:]+):$')
  end
end

-- Adds usage to a step and to everything around it.
local function add(tx, address, step, more)
  for name, by in pairs(more) do
    if by > 0 then
      step[name] = (step[name] or 0) + by
      usage.tally(tx, address, name, by)
    end
  end
  records.save(tx, 'steps', address)
  budgets.note_spent(tx)
end

-- Adds usage to the counters of all sessions together.
local function count_for_all(tx, address, more)
  statistics.count_usage(tx, address, more)
  for name, by in pairs(more) do
    if by > 0 then redis.call('HINCRBY', tx.shared.used, name, by) end
  end
end

-- The fields of a step that hold what its attempt has reported so far.
local REPORTED = {cost_micros = 'told', tokens_in = 'told_in', tokens_out = 'told_out'}

-- Adds what an attempt used since its last report. An attempt reports its whole usage in each heartbeat and at its
-- end; `goes_on` keeps it for the next report. Returns whether there was more.
function usage.add_attempt(tx, address, step, reported, goes_on)
  local more, any = {}, false
  for name, field in pairs(reported and REPORTED or {}) do
    more[name] = math.max(0, reported[name] - (step[field] or 0))
    any = any or more[name] > 0
    if goes_on then step[field] = math.max(reported[name], step[field] or 0) end
  end
  if not any then return false end
  count_for_all(tx, address, more)
  add(tx, address, step, more)
  add_above(tx, more)
  return true
end

-- Adds what a child used since its last report to the step that started it.
function usage.add_child(tx, child, address)
  local base = tx.base:sub(1, -#tx.args.session - 2) .. child .. ':session'
  local step = records.load(tx, 'steps', address)
  if not step or redis.call('EXISTS', base) == 0 then return end
  local more = {}
  for _, name in ipairs({'cost_micros', 'tokens_in', 'tokens_out'}) do
    local values = redis.call('HMGET', base, name, 'told_' .. name)
    more[name] = tonumber(values[1] or 0) - tonumber(values[2] or 0)
    if more[name] > 0 then
      redis.call('HSET', base, 'told_' .. name, values[1])
      redis.call('HINCRBY', tx.keys.session, 'below/' .. name, -more[name])
    end
  end
  add(tx, address, step, more)
end

return usage
