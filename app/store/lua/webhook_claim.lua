-- Claims a webhook delivery for one try: no other process takes it until its time has passed again.
-- Arguments: delivery, nonce, hold_ms, most (tries)
-- Returns: taken(delivery) | spent(delivery) (its tries are used up: to be given up) | early | gone
--- @requires transaction
return function(tx)
  local args = tx.args
  local line = args.member .. args.delivery
  local due = redis.call('ZSCORE', tx.shared.hooks, line)
  local text = due and transaction.read_session(tx) and redis.call('HGET', tx.keys.hooks, args.delivery)
  if not text then
    redis.call('ZREM', tx.shared.hooks, line)
    return transaction.reply(tx, 'gone')
  end
  local delivery = cjson.decode(text)
  local again = delivery.nonce == args.nonce
  if not again and tonumber(due) > tx.now then return transaction.reply(tx, 'early') end
  if not again and delivery.tries >= args.most then
    delivery.spent = true
  elseif not again then
    delivery.tries = delivery.tries + 1
  end
  delivery.nonce = args.nonce
  redis.call('HSET', tx.keys.hooks, args.delivery, cjson.encode(delivery))
  redis.call('ZADD', tx.shared.hooks, tx.now + args.hold_ms, line)
  tx.reply.delivery = delivery
  return transaction.reply(tx, delivery.spent and 'spent' or 'taken')
end
