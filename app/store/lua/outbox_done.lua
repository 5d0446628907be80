-- Removes a command from the outbox that was carried out, unless it was queued again meanwhile.
-- Arguments: errand (the command), seen (the time at which it was due when the caller read it)
-- Returns: done | anew
--- @requires transaction
return function(tx)
  local args = tx.args
  local due = redis.call('ZSCORE', tx.shared.errands, args.errand)
  if tonumber(due or -1) ~= args.seen then return transaction.reply(tx, 'anew') end
  redis.call('ZREM', tx.shared.errands, args.errand)
  return transaction.reply(tx, 'done')
end
