-- A deliverer takes a webhook for one try: until its time has moved past again, nobody else does.
-- A: delivery, nonce, hold_ms, most (tries)
-- Returns: taken(delivery) | spent (the last taker never told; taken, to be given up) | early | gone
local line = A.member .. A.delivery
local due = redis.call('ZSCORE', G.hooks, line)
local text = due and session() and redis.call('HGET', K.hooks, A.delivery)
if not text then
  redis.call('ZREM', G.hooks, line)
  return reply('gone')
end
local delivery = cjson.decode(text)
local again = delivery.nonce == A.nonce
if not again and tonumber(due) > now then return reply('early') end
if not again and delivery.tries >= A.most then
  delivery.spent = true
elseif not again then
  delivery.tries = delivery.tries + 1
end
delivery.nonce = A.nonce
redis.call('HSET', K.hooks, A.delivery, cjson.encode(delivery))
redis.call('ZADD', G.hooks, now + A.hold_ms, line)
answer.delivery = delivery
return reply(delivery.spent and 'spent' or 'taken')
