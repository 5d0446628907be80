-- Holds the name of a worker, or renews that: no two workers have one name.
-- Arguments: name, holder (this process), gone? (a holder whose process is known to have ended), ttl_ms (0: release)
-- Returns: held | taken(by)
--- @requires transaction
return function(tx)
  local args = tx.args
  local key = tx.prefix .. 'name:' .. args.name
  local by = redis.call('GET', key)
  if by and by ~= args.holder and by ~= args.gone then
    tx.reply.by = by
    return transaction.reply(tx, 'taken')
  end
  if args.ttl_ms == 0 then redis.call('DEL', key) else redis.call('SET', key, args.holder, 'PX', args.ttl_ms) end
  return transaction.reply(tx, 'held')
end
