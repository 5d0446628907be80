-- Sets or removes the limit of a key, unless it is not what the caller saw.
-- Arguments: key, limit? (JSON; absent: removed), seen? ('any', or a list of JSON texts), store? (the id of the
--   caller's store)
-- Returns: done (there was none) | replaced | changed | other_store; steps that may run now are called
--- @requires locks/calls, transaction

local function per_minute(text)
  return text and cjson.decode(text).per_minute or 0
end

return function(tx)
  local args = tx.args
  if transaction.is_other_store(tx) then return transaction.reply(tx, 'other_store') end
  local held = redis.call('HGET', tx.shared.limits, args.key)
  if args.seen then
    local as_seen = args.seen == 'any' and held
    for _, text in ipairs(args.seen == 'any' and {} or args.seen) do as_seen = as_seen or text == held end
    if not as_seen then return transaction.reply(tx, 'changed') end
  end
  -- A slot of the old rate is no slot of the new one.
  if per_minute(held) ~= per_minute(args.limit) then redis.call('HDEL', tx.shared.rates, args.key) end
  if args.limit then
    redis.call('HSET', tx.shared.limits, args.key, args.limit)
  else
    redis.call('HDEL', tx.shared.limits, args.key)
  end
  calls.call_next(tx, args.key)
  return transaction.reply(tx, held and 'replaced' or 'done')
end
