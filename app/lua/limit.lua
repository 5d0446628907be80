-- Set a key's limit or take it away, unless it is no longer what its caller saw.
-- KEYS: -, -, the base across sessions.   A: key, limit? (JSON; absent: away with it), seen? ('any', or JSON texts)
-- Returns: done (there was none) | replaced | changed
local held = redis.call('HGET', G.limits, A.key)
if A.seen then
  local as_seen = A.seen == 'any' and held
  for _, text in ipairs(A.seen == 'any' and {} or A.seen) do as_seen = as_seen or text == held end
  if not as_seen then return reply('changed') end
end
if A.limit then
  redis.call('HSET', G.limits, A.key, A.limit)
else
  redis.call('HDEL', G.limits, A.key)
  redis.call('HDEL', G.rates, A.key)   -- the pace went with the limit
end
return reply(held and 'replaced' or 'done')
