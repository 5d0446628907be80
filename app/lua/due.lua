-- What is past its time, in batches; after a restart of Redis, leases have one period of grace, timers none.
-- KEYS: -, -, the base across sessions.   A: every_ms, limit, run_id, grace_ms, room? (only errands that make some)
-- Returns: recent (somebody just looked) | due(leases, ready, errands)
local last = tonumber(redis.call('GET', G.swept) or 0)
if last <= now and now - last < A.every_ms then return reply('recent') end   -- a clock may step back
redis.call('DEL', G.swept)   -- a script that has written already may write on a server that is full
redis.call('SET', G.swept, now)
local seen = redis.call('HGET', G.epoch, 'run_id')
if seen ~= A.run_id then
  redis.call('HSET', G.epoch, 'run_id', A.run_id, 'grace', seen and now + A.grace_ms or 0)
end
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
