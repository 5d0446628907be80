-- Accepts the store as it is now: gives it a new id, as the successor of other ids.
-- Arguments: seen (the id that the caller found; '' for none), id (the new one), past (the ids that it succeeds),
--   schema (of a store that has no id: it is empty)
-- Returns: accepted | changed, each with the store's id before this call
--- @requires transaction
return function(tx)
  local args = tx.args
  local there = redis.call('GET', tx.prefix .. 'store') or ''
  tx.reply.store = there
  if there == args.id then return transaction.reply(tx, 'accepted') end   -- a repeated call
  if there ~= args.seen then return transaction.reply(tx, 'changed') end
  for _, id in ipairs(args.past) do redis.call('HSET', tx.prefix .. 'store-past', id, tx.clock) end
  if there == '' then redis.call('SET', tx.prefix .. 'store-schema', args.schema) end
  redis.call('SET', tx.prefix .. 'store', args.id)
  return transaction.reply(tx, 'accepted')
end
