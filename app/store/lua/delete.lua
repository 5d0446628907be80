-- Deletes an ended session; its program goes with the last session that uses it.
-- Arguments: session, seen? (the state that the caller saw), force? (statuses: a session that has not ended is
--   aborted and then deleted at once)
-- Returns: deleted | doomed (to be aborted) | refused(status) | changed(status) | unknown
--- @requires addresses, parts, quotas, sessions, transaction

local function refuse(tx, word)
  tx.reply.status = tx.session.status
  return transaction.reply(tx, word)
end

return function(tx)
  local args = tx.args
  if not transaction.read_session(tx) then return transaction.reply(tx, 'unknown') end
  if not sessions.is_as_seen(tx) then return refuse(tx, 'changed') end
  if transaction.AT_WORK[tx.session.status] and args.force then
    redis.call('HSET', tx.keys.session, 'retention', 0, 'export', '')   -- nor kept for its export
    for _, status in ipairs(args.force) do redis.call('HDEL', tx.keys.session, 'retention_' .. status) end
    redis.call('ZADD', tx.shared.errands, tx.now, 'delete|' .. args.member)
    return transaction.reply(tx, 'doomed')
  end
  if transaction.AT_WORK[tx.session.status] then return refuse(tx, 'refused') end
  for _, address in ipairs(redis.call('ZRANGE', tx.keys.parked, 0, -1)) do
    redis.call('ZREM', tx.shared.leases, addresses.member(tx, address))
  end
  for _, delivery in ipairs(redis.call('HKEYS', tx.keys.hooks)) do
    redis.call('ZREM', tx.shared.hooks, addresses.member(tx, delivery))
  end
  redis.call('ZREM', tx.shared.errands, 'forget|' .. args.member, 'delete|' .. args.member)
  quotas.release_session(tx)
  local parent = tx.session.parent
  if parent ~= '' then redis.call('SREM', cjson.decode(parent).base .. 'children', args.session) end
  for _, attempt in ipairs(redis.call('ZRANGE', tx.keys.outputs, 0, -1)) do
    redis.call('DEL', tx.base .. 'output:' .. attempt)
  end
  sessions.unlist(tx)
  sessions.forget_key(tx)
  for part in pairs(parts.session) do redis.call('DEL', tx.keys[part]) end
  redis.call('DEL', tx.prefix .. 'id:' .. args.session)
  redis.call('HDEL', tx.shared.owed, args.session)
  redis.call('SREM', tx.prefix .. 'users:' .. tx.session.program, args.session)
  if redis.call('SCARD', tx.prefix .. 'users:' .. tx.session.program) == 0 then redis.call('DEL', tx.program) end
  return transaction.reply(tx, 'deleted')
end
