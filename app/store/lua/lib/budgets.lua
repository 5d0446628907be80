-- Budgets of a session: steps, iterations, cost, tokens, time and stops of stages. A session that reaches a limit ends,
-- unless the same transition ends it anyway.
--- @requires addresses, changes, records
local budgets = {}

local NEARLY = 0.8   -- the part of a limit from which a person should look at the session

-- The limits by name: steps, iterations, cost_micros, tokens, wall_ms, stage_stops, stops.
function budgets.limits(tx)
  local session = tx.session
  if not session.limits then session.limits = session.budget ~= '' and cjson.decode(session.budget) or {} end
  return session.limits
end

-- Whether a limit is nearly used, or all of it.
function budgets.is_nearly_used(used, limit) return used >= NEARLY * limit end

-- Calls for a person if a limit is nearly used.
local function call_if_near(tx, what, used)
  local limit = budgets.limits(tx)[what]
  if not limit or tx.nearly or not budgets.is_nearly_used(used, limit) then return end
  tx.nearly = true
  changes.call_person(tx, true)   -- each transition from now on gets here
end

-- Notes that a limit is reached, if it is. The first one that a transition reaches counts.
function budgets.note(tx, what, used)
  local limit = budgets.limits(tx)[what]
  call_if_near(tx, what, used)
  if limit and used >= limit then tx.reached = tx.reached or {what = what, used = used, limit = limit} end
end

-- The value of a counter of the session.
function budgets.used(tx, name)
  return tonumber(redis.call('HGET', tx.keys.session, name) or 0)
end

-- Cost and tokens of a session, including what its children used and have not reported yet (`below/NAME`).
function budgets.spent(key)
  local values = redis.call('HMGET', key, 'cost_micros', 'below/cost_micros', 'tokens_in', 'below/tokens_in',
    'tokens_out', 'below/tokens_out')
  for i = 1, 6 do values[i] = math.max(0, tonumber(values[i] or 0)) end
  return {cost_micros = values[1] + values[2], tokens = values[3] + values[4] + values[5] + values[6]}
end

-- Notes the limits of cost and tokens that are reached.
function budgets.note_spent(tx)
  if not (budgets.limits(tx).cost_micros or budgets.limits(tx).tokens) then return end
  for name, total in pairs(budgets.spent(tx.keys.session)) do budgets.note(tx, name, total) end
end

local TEXTS = {steps = '%d of %d steps', iterations = '%d of %d iterations', tokens = '%d of %d tokens',
  stops = '%d of %d stops', stage_stops = '%d of %d stops of one stage'}

-- A reached limit as text: `3 of 3 steps`.
function budgets.describe(over)
  if over.what == 'cost_micros' then
    return string.format('%.4f of %.4f USD', over.used / 1000000, over.limit / 1000000)
  elseif over.what == 'wall_ms' then
    return string.format('%.1f of %.1f s', over.used / 1000, over.limit / 1000)
  end
  return string.format(TEXTS[over.what], over.used, over.limit)
end

-- Enters when the sweep looks at the wall clock: once its time is nearly used, which calls for a person, and at the
-- end.
function budgets.watch_clock(tx, due)
  local wall = budgets.limits(tx).wall_ms or 0
  local near = due - wall + math.ceil(NEARLY * wall) + 1
  if near <= tx.now then changes.call_person(tx, true) end
  redis.call('ZADD', tx.shared.leases, near > tx.now and math.min(near, due) or due, addresses.member(tx, ''))
end

-- Starts the session's wall clock: the sweep finds it in `leases` under the empty address. It does not run while the
-- session is stopped.
function budgets.start_clock(tx, left)
  redis.call('HSET', tx.keys.session, 'until', tx.now + left)
  redis.call('HDEL', tx.keys.session, 'left')
  budgets.watch_clock(tx, tx.now + left)
end

-- Stops the wall clock and stores the time that is left.
function budgets.stop_clock(tx)
  local due = redis.call('HGET', tx.keys.session, 'until')
  if not due then return end
  redis.call('HSET', tx.keys.session, 'left', math.max(0, tonumber(due) - tx.now))
  redis.call('HDEL', tx.keys.session, 'until')
  redis.call('ZREM', tx.shared.leases, addresses.member(tx, ''))
end

-- Whether the budget allows no further iteration; `more` is the number that is about to be counted, false if the next
-- one does not count.
function budgets.is_spent(tx, more)
  if tx.session.status ~= 'active' then return false end
  local limits = more and budgets.limits(tx)
  if limits and limits.iterations then budgets.note(tx, 'iterations', budgets.used(tx, 'iterations') + more) end
  return tx.reached ~= nil
end

-- Counts a stop of a stage: a run of an outermost loop that ended without accept. Returns code and text of the limit
-- that allows no further run; nil if there is none. A stage that is `passed` over needs no further run.
function budgets.count_stop(tx, stage, passed)
  local here, all = records.count(tx, 'stops/' .. stage), records.count(tx, 'stops')
  local allowed = budgets.limits(tx)
  call_if_near(tx, 'stage_stops', here)
  call_if_near(tx, 'stops', all)
  if not passed and here >= (allowed.stage_stops or math.huge) then
    return 'circuit_open', budgets.describe({what = 'stage_stops', used = here, limit = allowed.stage_stops})
  end
  if all < (allowed.stops or math.huge) then return end
  return 'stop_limit', budgets.describe({what = 'stops', used = all, limit = allowed.stops})
end

-- The stops of the stage that was stopped most often, of those that run again.
local function most_stops(tx)
  local most = 0
  for _, node in ipairs(tx.args.again or {}) do most = math.max(most, budgets.used(tx, 'stops/' .. node.name)) end
  return most
end

-- The limit that a session has used up before it resumes, with the limits in `raised` changed; nil if there is none.
function budgets.find_spent(tx, raised)
  local wall, left = budgets.limits(tx).wall_ms, redis.call('HGET', tx.keys.session, 'left')
  for name, limit in pairs(raised) do budgets.limits(tx)[name] = limit end
  tx.session.waited = wall and left and wall - left or 0
  for name in pairs(budgets.limits(tx)) do
    if name == 'stage_stops' then budgets.note(tx, name, most_stops(tx))
    elseif name == 'tokens' or name == 'cost_micros' then budgets.note(tx, name, budgets.spent(tx.keys.session)[name])
    else budgets.note(tx, name, name == 'wall_ms' and tx.session.waited or budgets.used(tx, name)) end
  end
  return tx.reached
end

-- Stores the limits that `find_spent` checked, and starts the wall clock again.
function budgets.resume(tx)
  local allowed = budgets.limits(tx)
  redis.call('HSET', tx.keys.session, 'budget', cjson.encode(allowed))
  if allowed.wall_ms then budgets.start_clock(tx, math.max(0, allowed.wall_ms - tx.session.waited)) end
end

return budgets
