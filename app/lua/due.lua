-- What is past its time, in batches; after a restart of Redis, leases have one period of grace, timers none.
-- KEYS: -, -, the base across sessions.   A: every_ms, limit, run_id, grace_ms, room? (only errands that make some)
-- Returns: recent (somebody just looked) | due(leases, ready, errands)
local last = tonumber(redis.call('GET', G.swept) or 0)
if last <= now and now - last < A.every_ms then return reply('recent') end   -- a clock may step back
-- The clock has stepped back: what was begun under the time that was is taken as begun now, with all of its time
-- before it; what only is to be looked at is looked at soon. So nothing waits for that time to come again.
local SOON_MS = 60000
local back = {}

function back.earlier(step, begun)
  local by = step[begun] and step[begun] - now or 0
  if by <= 0 then return end
  step[begun] = now
  if step.deadline then step.deadline = step.deadline - by end
  if step.due then step.due = step.due - by end
  if step.parked then step.parked.until_ms = step.parked.until_ms - by end
end

function back.running(step)
  back.earlier(step, 'since')
  if step.heard then step.heard = math.min(step.heard, now) end
  step.lease = math.min(step.lease, now + A.grace_ms)
  return step.lease
end

function back.parked(step)
  back.earlier(step, 'since')
  if step.parked.on == 'child' then step.parked.until_ms = math.min(step.parked.until_ms, now + SOON_MS) end
  return step.parked.until_ms
end

function back.ready(step)
  back.earlier(step, 'ready')
  if step.hinted then step.hinted = math.min(step.hinted, now) end
  return step.due and step.due > now and step.due or now + A.grace_ms
end

-- A session's own time: no more than all that it may have.
function back.session(base)
  local told = redis.call('HMGET', base .. 'session', 'until', 'budget')
  local wall = told[2] and told[2] ~= '' and cjson.decode(told[2]).wall_ms
  if not told[1] or not wall then return nil end
  local due = math.min(tonumber(told[1]), now + wall)
  redis.call('HSET', base .. 'session', 'until', string.format('%d', due))
  return due
end

function back.at(line)
  local session, root, address = line:match('^(.-)|(.-)|(.*)$')
  local base = GLOBAL .. '{' .. root .. '}:' .. session .. ':'
  if address == '' then return back.session(base) end
  local text = redis.call('HGET', base .. 'steps', address)
  local step = text and cjson.decode(text)
  if not step or not back[step.state] then return nil end
  local due = back[step.state](step)
  redis.call('HSET', base .. 'steps', address, cjson.encode(step))
  return due
end

function back.soon(line)
  return line:sub(1, 7) ~= 'forget|' and now + SOON_MS or nil
end

function back.list(key, look)
  for _, line in ipairs(redis.call('ZRANGEBYSCORE', key, '(' .. clock, '+inf')) do
    local due = look(line)
    if due then redis.call('ZADD', key, 'LT', due, line) end
  end
end

local function step_back()
  back.list(G.leases, back.at)
  back.list(G.ready, back.at)
  back.list(G.errands, back.soon)
  back.list(G.hooks, back.soon)
  local called = redis.call('HGETALL', G.called)
  for i = 1, #called, 2 do
    if tonumber(called[i + 1]) > now then redis.call('HSET', G.called, called[i], clock) end
  end
  local grace = tonumber(redis.call('HGET', G.epoch, 'grace') or 0)
  redis.call('HSET', G.epoch, 'grace', string.format('%d', math.min(grace, now + A.grace_ms)))
end

redis.call('DEL', G.swept)   -- a script that has written already may write on a server that is full
redis.call('SET', G.swept, now)
local seen = redis.call('HGET', G.epoch, 'run_id')
if seen ~= A.run_id then
  redis.call('HSET', G.epoch, 'run_id', A.run_id, 'grace', seen and now + A.grace_ms or 0)
end
if last > now then step_back() end
local function batch(key)
  return redis.call('ZRANGEBYSCORE', key, '-inf', now, 'LIMIT', 0, A.limit)
end
local grace = tonumber(redis.call('HGET', G.epoch, 'grace') or 0)
-- A lease may have passed while nobody could tell that it lives; the time of a timer has simply come.
local LOOKED_AT = 1000
local function is_timer(line)
  local session, root, address = line:match('^(.-)|(.-)|(.*)$')
  local text = redis.call('HGET', GLOBAL .. '{' .. root .. '}:' .. session .. ':steps', address)
  local parked = text and cjson.decode(text).parked
  return parked and parked.on == 'wait'
end

local function timers()
  local found = {}
  for _, line in ipairs(redis.call('ZRANGEBYSCORE', G.leases, '-inf', now, 'LIMIT', 0, LOOKED_AT)) do
    if is_timer(line) then table.insert(found, line) end
    if #found == A.limit then break end
  end
  return found
end

-- Whatever stands before them: on a full server nothing else could be done, nor put off.
local function making_room()
  local found = {}
  for _, errand in ipairs(redis.call('ZRANGEBYSCORE', G.errands, '-inf', now)) do
    if errand:sub(1, 7) == 'forget|' then table.insert(found, errand) end
    if #found == A.limit then break end
  end
  return found
end

if A.room then
  answer.errands = making_room()
  return reply('due')
end
answer.leases = now >= grace and batch(G.leases) or timers()
answer.ready = batch(G.ready)
answer.errands = batch(G.errands)
return reply('due')
