-- What a session uses, and may use: steps, iterations, cost, tokens and time. Counted once, and what
-- reaches its limit ends the session, unless the same transition ended it anyway.
local end_turn

-- The limits by name: steps, iterations, cost_micros, tokens, wall_ms, stage_stops, stops.
local function budget()
  if not S.limits then S.limits = S.budget ~= '' and cjson.decode(S.budget) or {} end
  return S.limits
end

local function note_use(what, used)
  local limit = budget()[what]
  if limit and used >= limit then reached = reached or {what = what, used = used, limit = limit} end
end

local function used(name)
  return tonumber(redis.call('HGET', K.session, name) or 0)
end

-- What one iteration used goes behind its entry, as JSON that nothing else has touched.
local function used_by(turn)
  local text = turn.cost_micros and string.format(',"cost_usd":%.6f', turn.cost_micros / 1000000) or ''
  if not (turn.tokens_in or turn.tokens_out) then return text .. '}' end
  return text .. string.format(',"input_tokens":%d,"output_tokens":%d}',
    turn.tokens_in or 0, turn.tokens_out or 0)
end

-- What still ran when a turn ended is added to the entry of its last iteration, as it tells of it.
local function amend(entry, turn)
  local text = redis.call('LINDEX', K.ledger, entry.at)
  redis.call('LSET', K.ledger, entry.at, text:sub(1, entry.length) .. used_by(turn))
end

-- A session's counter, and the same of each turn around the address.
local function tally(address, name, by)
  local total = count(name, by)
  for _, around in ipairs(turns_around(block_of(address))) do
    local turn = around.id ~= '' and load('turns', around.id)
    if turn then
      turn[name] = (turn[name] or 0) + (by or 1)
      if turn.entry then amend(turn.entry, turn) end
      save('turns', around.id)
    end
  end
  return total
end

-- Cost and tokens, with what sessions below used and have not told yet: `below/NAME` of a session.
local spending = {}

function spending.of(key)
  local told = redis.call('HMGET', key, 'cost_micros', 'below/cost_micros', 'tokens_in', 'below/tokens_in',
    'tokens_out', 'below/tokens_out')
  for i = 1, 6 do told[i] = math.max(0, tonumber(told[i] or 0)) end
  return {cost_micros = told[1] + told[2], tokens = told[3] + told[4] + told[5] + told[6]}
end

function spending.note()
  if not (budget().cost_micros or budget().tokens) then return end
  for name, total in pairs(spending.of(K.session)) do note_use(name, total) end
end

-- Every session above knows at once what was used here, though it is told, and counts it, at our end.
-- Where that reaches its limit it is told now; not where our own limit ends us anyway.
function spending.above(more)
  local parent, child = S.parent, A.session
  while parent ~= '' do
    local above = cjson.decode(parent)
    local key = above.base .. 'session'
    local told = redis.call('HMGET', key, 'budget', 'parent', 'status')
    if not told[3] then return end   -- it was deleted: what is written of it now would stay
    for name, by in pairs(more) do
      if by > 0 then redis.call('HINCRBY', key, 'below/' .. name, by) end
    end
    local spent = spending.of(key)
    for name, limit in pairs(told[1] and told[1] ~= '' and cjson.decode(told[1]) or {}) do
      if spent[name] and spent[name] >= limit and not reached then
        redis.call('ZADD', G.errands, now, 'deliver|' .. child .. A.member:match('|.*$'))
        answer.tell = answer.tell or child == A.session
      end
    end
    parent, child = told[2] or '', above.base:match(':([^:]+):$')
  end
end

-- What was used at a step: told by its attempt, or by the child session that it started.
local function use(address, step, usage)
  for name, by in pairs(usage) do
    if by > 0 then
      step[name] = (step[name] or 0) + by
      tally(address, name, by)
    end
  end
  save('steps', address)
  spending.note()
end

local function count_for_all(usage)
  for name, by in pairs(usage) do
    if by > 0 then redis.call('HINCRBY', G.used, name, by) end
  end
end

-- An attempt tells all that it used so far, in each heartbeat and at its end; what it told before is
-- counted already, and kept in mind as long as it goes on. Says whether there was more.
local TOLD = {cost_micros = 'told', tokens_in = 'told_in', tokens_out = 'told_out'}
local function use_of_attempt(address, step, usage, goes_on)
  local more, any = {}, false
  for name, field in pairs(usage and TOLD or {}) do
    more[name] = math.max(0, usage[name] - (step[field] or 0))
    any = any or more[name] > 0
    if goes_on then step[field] = math.max(usage[name], step[field] or 0) end
  end
  if not any then return false end
  count_for_all(more)
  use(address, step, more)
  spending.above(more)
  return true
end

-- A child's usage is its parent's too: as much of it as the parent has not been told before.
local function use_of_child(child, address)
  local base = BASE:sub(1, -#A.session - 2) .. child .. ':session'
  local step = load('steps', address)
  if not step or redis.call('EXISTS', base) == 0 then return end
  local more = {}
  for _, name in ipairs({'cost_micros', 'tokens_in', 'tokens_out'}) do
    local told = redis.call('HMGET', base, name, 'told_' .. name)
    more[name] = tonumber(told[1] or 0) - tonumber(told[2] or 0)
    if more[name] > 0 then
      redis.call('HSET', base, 'told_' .. name, told[1])
      redis.call('HINCRBY', K.session, 'below/' .. name, -more[name])
    end
  end
  use(address, step, more)
end

local SAID = {steps = '%d of %d steps', iterations = '%d of %d iterations', tokens = '%d of %d tokens',
  stops = '%d of %d stops', stage_stops = '%d of %d stops of one stage'}
local function said(over)
  if over.what == 'cost_micros' then
    return string.format('%.4f of %.4f USD', over.used / 1000000, over.limit / 1000000)
  elseif over.what == 'wall_ms' then
    return string.format('%.1f of %.1f s', over.used / 1000, over.limit / 1000)
  end
  return string.format(SAID[over.what], over.used, over.limit)
end

-- The wall clock of a session stands in `leases` under no address; it stands still while stopped.
local function start_clock(left)
  redis.call('HSET', K.session, 'until', now + left)
  redis.call('HDEL', K.session, 'left')
  redis.call('ZADD', G.leases, now + left, member(''))
end

local function stop_clock()
  local due = redis.call('HGET', K.session, 'until')
  if not due then return end
  redis.call('HSET', K.session, 'left', math.max(0, tonumber(due) - now))
  redis.call('HDEL', K.session, 'until')
  redis.call('ZREM', G.leases, member(''))
end

local function end_spent()
  if load('turns', '').state ~= 'open' then return end
  end_turn('', 'terminate', {code = 'budget', at = '', text = 'its budget is used up: ' .. said(reached)})
end

-- Whether no further iteration may begin; `more` are those that are about to be counted.
local function spent_up(more)
  if S.status ~= 'active' then return false end
  if budget().iterations then note_use('iterations', used('iterations') + more) end
  return reached ~= nil
end

local function end_if_spent()
  if reached and S.status == 'active' then end_spent() end
end

-- A stage is an outermost loop; a run of it that ended without accept is a stop, counted for ever. Says
-- of which limit no stop is left (reason and words), nil while there are some. A stage that is passed over
-- asks for no further run.
local function count_stop(stage, passed)
  local here, all = count('stops/' .. stage), count('stops')
  local limits = budget()
  if not passed and here >= (limits.stage_stops or math.huge) then
    return 'circuit_open', said({what = 'stage_stops', used = here, limit = limits.stage_stops})
  end
  if all < (limits.stops or math.huge) then return end
  return 'stop_limit', said({what = 'stops', used = all, limit = limits.stops})
end

-- How often that stage was stopped which was stopped most, of those that are to run anew.
local function most_stops()
  local most = 0
  for _, node in ipairs(A.again or {}) do most = math.max(most, used('stops/' .. node.name)) end
  return most
end

-- Which budget of a session that is to go on is used up already, with some of its limits changed.
local function spent_before(raised)
  local wall, left = budget().wall_ms, redis.call('HGET', K.session, 'left')
  for name, limit in pairs(raised) do budget()[name] = limit end
  S.waited = wall and left and wall - left or 0
  for name in pairs(budget()) do
    if name == 'stage_stops' then note_use(name, most_stops())
    elseif name == 'tokens' or name == 'cost_micros' then note_use(name, spending.of(K.session)[name])
    else note_use(name, name == 'wall_ms' and S.waited or used(name)) end
  end
  return reached
end

-- A session that goes on does so under the limits that were just looked at.
local function go_on_counting()
  redis.call('HSET', K.session, 'budget', cjson.encode(budget()))
  if budget().wall_ms then start_clock(math.max(0, budget().wall_ms - S.waited)) end
end
