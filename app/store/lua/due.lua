-- Returns what is due, in batches. After a restart of Redis leases have one period of grace, timers none.
-- Arguments: every_ms (0: at any time), limit (of each batch), run_id (of the server), grace_ms,
--   room? (only deletions: the server is full), store? (the id of the caller's store),
--   sweeps? (the lowest count of sweeps that this store may have)
-- Returns: due(leases, ready, errands, sweeps) | recent(sweeps) (another sweep was less than every_ms ago) |
--   other_store (nothing is written)
--- @requires clock_step, due_lists, transaction

-- Whether this is another store than the caller's, or an older copy of it.
local function is_other_store(tx, sweeps)
  return transaction.is_other_store(tx) or sweeps < (tx.args.sweeps or 0)
end

-- Starts the period of grace if the server has restarted.
local function note_restart(tx)
  local seen = redis.call('HGET', tx.shared.epoch, 'run_id')
  if seen == tx.args.run_id then return end
  local grace = seen and tx.now + tx.args.grace_ms or 0
  redis.call('HSET', tx.shared.epoch, 'run_id', tx.args.run_id, 'grace', grace)
end

return function(tx)
  local args, reply, shared, now = tx.args, tx.reply, tx.shared, tx.now
  reply.sweeps = tonumber(redis.call('HGET', shared.epoch, 'sweeps') or 0)
  if is_other_store(tx, reply.sweeps) then
    reply.sweeps = nil
    return transaction.reply(tx, 'other_store')
  end
  local last = tonumber(redis.call('GET', shared.swept) or 0)
  if last <= now and now - last < args.every_ms then   -- a clock may step back
    return transaction.reply(tx, 'recent')
  end
  -- Only periodic sweeps count, so that the number is also a rough age in seconds.
  if args.every_ms > 0 then reply.sweeps = redis.call('HINCRBY', shared.epoch, 'sweeps', 1) end
  redis.call('DEL', shared.swept)   -- a script that has written already may write on a full server
  redis.call('SET', shared.swept, now)
  note_restart(tx)
  if last > now then clock_step.adjust(tx) end
  if args.room then
    reply.errands = due_lists.deletions(tx)
    return transaction.reply(tx, 'due')
  end
  local grace = tonumber(redis.call('HGET', shared.epoch, 'grace') or 0)
  reply.leases = now >= grace and due_lists.batch(tx, shared.leases) or due_lists.timers(tx)
  reply.ready = due_lists.batch(tx, shared.ready)
  reply.errands = due_lists.batch(tx, shared.errands)
  return transaction.reply(tx, 'due')
end
