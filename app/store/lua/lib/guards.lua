-- The record of a Stop guard: its state, which only Python reads, and the one hook that may run.
--- @requires addresses, records
local guards = {}

local DECISIONS_KEPT = 50   -- a hook that repeats its call is never so far behind

-- Whether the session is a guard whose agent may still stop.
function guards.is_open(tx)
  return tx.session.status == 'active' and redis.call('HGET', tx.keys.session, 'kind') == 'guard'
end

-- The hook that runs, as {stop, at}; nil if none does.
function guards.running(tx)
  local text = redis.call('HGET', tx.keys.guard, 'hook')
  return text and cjson.decode(text) or nil
end

-- The decision about a stop (JSON) if it was made before; else nil.
function guards.decision(tx, stop) return redis.call('HGET', tx.keys.guard, 'stop:' .. stop) or nil end

-- Keeps the decision about a stop, for a hook that repeats its call.
function guards.keep_decision(tx, stop, decision)
  redis.call('HSET', tx.keys.guard, 'stop:' .. stop, decision)
  local kept = cjson.decode(redis.call('HGET', tx.keys.guard, 'stops') or '[]')
  table.insert(kept, stop)
  if #kept > DECISIONS_KEPT then redis.call('HDEL', tx.keys.guard, 'stop:' .. table.remove(kept, 1)) end
  redis.call('HSET', tx.keys.guard, 'stops', cjson.encode(kept))
end

-- Begins the time again after which a guard without stops ends.
function guards.postpone_end(tx, idle_ms)
  local step = records.load(tx, 'steps', 'stop')
  if not step or step.state ~= 'parked' then return end
  step.parked.until_ms = tx.now + idle_ms
  records.save(tx, 'steps', 'stop')
  redis.call('ZADD', tx.shared.leases, step.parked.until_ms, addresses.member(tx, 'stop'))
end

return guards
