-- A hook begins a stop: it is the only one of this guard until it writes a decision or is stale. The same hook again
-- shows that it is alive.
-- Arguments: stop (the hook's own name for it), stale_ms
-- Returns: begun(guard, version) | repeated(decision) | busy | unknown
--- @requires deadlines, events, guards, records, transaction
return function(tx)
  local args, reply = tx.args, transaction.reply
  if not transaction.read_session(tx) or not guards.is_open(tx) then return reply(tx, 'unknown') end
  local stop = records.load(tx, 'steps', 'stop')
  local late = stop and deadlines.refuse(tx, 'stop', stop, 'unknown')
  if late then return late end
  tx.reply.decision = guards.decision(tx, args.stop)
  if tx.reply.decision then return reply(tx, 'repeated') end
  local hook = guards.running(tx)
  local is_own = hook and hook.stop == args.stop
  if hook and not is_own and tx.now - hook.at < args.stale_ms then return reply(tx, 'busy') end
  redis.call('HSET', tx.keys.guard, 'hook', cjson.encode({stop = args.stop, at = tx.now}))
  if not is_own then
    events.emit(tx, 'guard.begun', '', {stop = args.stop, replaced = hook and hook.stop})
    transaction.flush(tx)
  end
  tx.reply.guard = redis.call('HGET', tx.keys.guard, 'state') or nil
  tx.reply.version = tonumber(redis.call('HGET', tx.keys.guard, 'version') or 0)
  return reply(tx, 'begun')
end
