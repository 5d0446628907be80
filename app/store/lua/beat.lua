-- Renews the lease of an attempt. The reply tells the worker to stop or cancel it, or that it lost the step.
-- Arguments: address, fence, nonce, lease_ms, spent? (cost and tokens that the attempt has used so far),
--   compared? (the folder is as a person has approved it), changed? (it is not)
-- Returns: ok(lease) | stop(lease) | cancel(lease), each with children (whether one that the attempt started is at
--   work), and bound if the folder has changed (whether that is no work of a step beside it) | lost
--- @requires addresses, attempts, deadlines, dispatch, records, transaction, children, turn_records, usage
--- @requires work_diffs
local EXIT_GRACE_MS = 3000   -- the step that called exit has this long to finish

return function(tx)
  local args = tx.args
  local address = args.address
  local step = transaction.read_session(tx) and records.load(tx, 'steps', address)
  if not step or step.state ~= 'running' or step.fence ~= args.fence or step.nonce ~= args.nonce then
    return transaction.reply(tx, 'lost')
  end
  local late = deadlines.refuse(tx, address, step, 'lost')
  if late then return late end
  if args.compared then work_diffs.end_binding(tx, address, args.fence) end
  if args.changed then tx.reply.bound = work_diffs.is_bound(tx, address, args.fence) end
  step.heard, step.lease = tx.now, math.min(tx.now + args.lease_ms, step.deadline + attempts.GRACE_MS)
  redis.call('HSET', tx.keys.steps, address, cjson.encode(step))
  redis.call('ZADD', tx.shared.leases, step.lease, addresses.member(tx, address))
  if usage.add_attempt(tx, address, step, args.spent, true) or tx.reached then
    dispatch.run(tx)
    transaction.flush(tx)
  end
  tx.reply.lease = step.lease
  tx.reply.children = children.any_of_attempt(tx, address)
  if not turn_records.lets_run(tx, address, step) then
    local exited = tonumber(redis.call('HGET', tx.keys.session, 'exited_at') or 0)
    if tx.session.exit_by == address and exited <= tx.now and tx.now < exited + EXIT_GRACE_MS then
      return transaction.reply(tx, 'ok')
    end
    return transaction.reply(tx, 'cancel')
  end
  return transaction.reply(tx, tx.session.status == 'stopping' and not step.last and 'stop' or 'ok')
end
