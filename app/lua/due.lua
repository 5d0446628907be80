-- What is past its time, in batches; after a restart of Redis, leases have one period of grace.
-- KEYS: -, -, the base across sessions.   A: every_ms, limit, run_id, grace_ms
-- Returns: recent (somebody just looked) | due(leases, ready, errands)
local last = tonumber(redis.call('GET', G.swept) or 0)
if last <= now and now - last < A.every_ms then return reply('recent') end   -- a clock may step back
redis.call('SET', G.swept, now)
local seen = redis.call('HGET', G.epoch, 'run_id')
if seen ~= A.run_id then
  redis.call('HSET', G.epoch, 'run_id', A.run_id, 'grace', seen and now + A.grace_ms or 0)
end
local function batch(key)
  return redis.call('ZRANGEBYSCORE', key, '-inf', now, 'LIMIT', 0, A.limit)
end
local grace = tonumber(redis.call('HGET', G.epoch, 'grace') or 0)
answer.leases = now >= grace and batch(G.leases) or {}
answer.ready = batch(G.ready)
answer.errands = batch(G.errands)
return reply('due')
