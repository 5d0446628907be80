-- Set a key's limit or take it away, unless it is no longer what its caller saw.
-- KEYS: -, -, the base across sessions.   A: key, limit? (JSON; absent: away with it), seen? ('any', or JSON texts)
-- Returns: done (there was none) | replaced | changed; those who may go on now are called
local held = redis.call('HGET', G.limits, A.key)
if A.seen then
  local as_seen = A.seen == 'any' and held
  for _, text in ipairs(A.seen == 'any' and {} or A.seen) do as_seen = as_seen or text == held end
  if not as_seen then return reply('changed') end
end
local function per_minute(text)
  return text and cjson.decode(text).per_minute or 0
end
-- A slot of the old pace is none of the new one.
if per_minute(held) ~= per_minute(A.limit) then redis.call('HDEL', G.rates, A.key) end
if A.limit then
  redis.call('HSET', G.limits, A.key, A.limit)
else
  redis.call('HDEL', G.limits, A.key)
end
call_next(A.key)
return reply(held and 'replaced' or 'done')
