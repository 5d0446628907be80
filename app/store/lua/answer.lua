-- Ends a parked step: its answer, its time or its child's end has come. The first one wins.
-- Arguments: address, fence, word, by, verdict?, reason?, text?, child? (its usage is counted), expand?, take,
--   lease_ms, artifacts? (of the outcome: name, digest, size, media_type), plan_version? (the one that was approved)
-- Returns: settled | superseded(state; by: who answered first) | default(fence: the question's time is over, and its
--   default is its answer now) | stale(version: of the plan, which is another one now)
--- @requires budgets, deadlines, dispatch, outcomes, records, transaction, transcript, usage/usage
return function(tx)
  local args = tx.args
  local address = args.address
  local step = transaction.read_session(tx) and records.load(tx, 'steps', address)
  if not step then return transaction.reply(tx, 'superseded') end
  if step.state ~= 'parked' or step.fence ~= args.fence then
    tx.reply.state, tx.reply.by = step.state, step.answered_by
    return transaction.reply(tx, 'superseded')
  end
  local late = args.by ~= 'deadline' and deadlines.refuse(tx, address, step, 'superseded')
  if late then return late end
  if args.plan_version then
    tx.reply.version = tonumber(redis.call('HGET', tx.keys.plan, 'version'))
    if tx.reply.version ~= args.plan_version then return transaction.reply(tx, 'stale') end
  end
  step.answered_by = args.by
  if args.child then usage.add_child(tx, args.child, address) end
  if tx.reached and args.word == 'failed' then   -- the child had all that was left
    args.reason = {code = 'budget', at = address, text = 'its budget is used up: ' .. budgets.describe(tx.reached),
      beneath = args.reason and args.reason.beneath}
  end
  transcript.write(tx, address)
  outcomes.finish(tx, address, step, args.word, args.verdict, args.reason, args.text)
  dispatch.run(tx)
  transaction.flush(tx)
  return transaction.reply(tx, 'settled')
end
