-- Writes the state of a guard as its caller has computed it: after a stop, with the decision and an entry of the
-- ledger, or after an event or a reset.
-- Arguments: version (that the caller saw), idle_ms, warnings?, event? (fields), kind (of the event), frees? (takes the
--   place of a hook that runs), stop? and decision? (JSON; only the hook of this stop may write it)
-- Document: the state (JSON). Entry of the ledger: of a stop.
-- Returns: written(version) | repeated(decision) | changed | superseded | unknown
--- @requires deadlines, events, guards, records, transaction
return function(tx)
  local args, reply = tx.args, transaction.reply
  if not transaction.read_session(tx) or not guards.is_open(tx) then return reply(tx, 'unknown') end
  local stop = records.load(tx, 'steps', 'stop')
  local late = stop and deadlines.refuse(tx, 'stop', stop, 'unknown')
  if late then return late end
  local key = tx.keys.guard
  if args.stop then
    tx.reply.decision = guards.decision(tx, args.stop)
    if tx.reply.decision then return reply(tx, 'repeated') end
    local hook = guards.running(tx)
    if not hook or hook.stop ~= args.stop then return reply(tx, 'superseded') end
  end
  if tonumber(redis.call('HGET', key, 'version') or 0) ~= args.version then return reply(tx, 'changed') end
  redis.call('HSET', key, 'state', tx.document)
  tx.reply.version = redis.call('HINCRBY', key, 'version', 1)
  if args.stop then
    guards.keep_decision(tx, args.stop, args.decision)
    redis.call('RPUSH', tx.keys.ledger, tx.entry)
    records.count(tx, 'iterations')
  end
  if args.stop or args.frees then redis.call('HDEL', key, 'hook') end
  for _, text in ipairs(args.warnings or {}) do events.warn(tx, text) end
  events.emit(tx, args.kind, '', args.event)
  guards.postpone_end(tx, args.idle_ms)
  transaction.flush(tx)
  return reply(tx, 'written')
end
