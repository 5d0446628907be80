-- What came of a try: the webhook has arrived, waits for its next try, or is given up and that is noted.
-- A: delivery, nonce, arrived, wait_ms (until the next try), most (tries), why, host
-- Returns: arrived | later | given_up | superseded
local line = A.member .. A.delivery
local text = session() and redis.call('HGET', K.hooks, A.delivery)
local delivery = text and cjson.decode(text)
if not delivery or delivery.nonce ~= A.nonce then return reply('superseded') end
if not A.arrived and delivery.tries < A.most then
  delivery.nonce = nil
  redis.call('HSET', K.hooks, A.delivery, cjson.encode(delivery))
  redis.call('ZADD', G.hooks, now + A.wait_ms, line)
  return reply('later')
end
redis.call('HDEL', K.hooks, A.delivery)
redis.call('ZREM', G.hooks, line)
if A.arrived then return reply('arrived') end
warn('the webhook ' .. delivery.event .. ' to ' .. A.host .. ' was given up after '
  .. delivery.tries .. ' tries: ' .. A.why)
emit('webhook.given_up', '', {event = delivery.event, delivery = A.delivery, why = A.why,
  tries = delivery.tries})
flush()
return reply('given_up')
