-- Records the result of a try: the webhook has arrived, waits for its next try, or is given up with a warning.
-- Arguments: delivery, nonce, arrived, wait_ms (until the next try), most (tries), why, host
-- Returns: arrived | later | given_up | superseded
--- @requires events, transaction
return function(tx)
  local args = tx.args
  local line = args.member .. args.delivery
  local text = transaction.read_session(tx) and redis.call('HGET', tx.keys.hooks, args.delivery)
  local delivery = text and cjson.decode(text)
  if not delivery or delivery.nonce ~= args.nonce then return transaction.reply(tx, 'superseded') end
  if not args.arrived and delivery.tries < args.most then
    delivery.nonce = nil
    redis.call('HSET', tx.keys.hooks, args.delivery, cjson.encode(delivery))
    redis.call('ZADD', tx.shared.hooks, tx.now + args.wait_ms, line)
    return transaction.reply(tx, 'later')
  end
  redis.call('HDEL', tx.keys.hooks, args.delivery)
  redis.call('ZREM', tx.shared.hooks, line)
  if args.arrived then return transaction.reply(tx, 'arrived') end
  events.warn(tx, 'the webhook ' .. delivery.event .. ' to ' .. args.host .. ' was given up after '
    .. delivery.tries .. ' tries: ' .. args.why)
  events.emit(tx, 'webhook.given_up', '', {event = delivery.event, delivery = args.delivery, why = args.why,
    tries = delivery.tries})
  transaction.flush(tx)
  return transaction.reply(tx, 'given_up')
end
