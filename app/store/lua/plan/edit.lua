-- Changes the tasks of a plan: all operations or none.
-- Arguments: operations (add, change, drop, move, retry, decide), by, version? (the one that the caller saw)
-- Returns: edited(version) | stale(version) | refused(why, number: of the operation) | no_plan | ended(status)
--- @requires dispatch, inbox, plans/edits, plans/progress, plans/tasks, transaction
local EDITABLE = {active = true, stopping = true, stopped = true, failed = true}

return function(tx)
  local args = tx.args
  if not transaction.read_session(tx) or not tasks.head(tx) then return transaction.reply(tx, 'no_plan') end
  if not EDITABLE[tx.session.status] then
    tx.reply.status = tx.session.status
    return transaction.reply(tx, 'ended')
  end
  tx.reply.version = tonumber(redis.call('HGET', tx.keys.plan, 'version'))
  if args.version and args.version ~= tx.reply.version then return transaction.reply(tx, 'stale') end
  local refused = edits.apply(tx, args.operations)
  if refused then
    tx.reply.why, tx.reply.number, tx.reply.text = refused.why, refused.number, refused.id
    return transaction.reply(tx, 'refused')
  end
  for _, one in ipairs(tx.plan.decided or {}) do
    redis.call('HSET', tx.keys.plan, one[1], cjson.encode(one[2]))
    inbox.stop_calling(tx, one[2].message)
  end
  progress.relist(tx)
  progress.advance(tx)
  tasks.write(tx, 'edited', args.by)
  dispatch.run(tx)
  transaction.flush(tx)
  return transaction.reply(tx, 'edited')
end
