-- Ends a parked step: its answer, its time or its child's end has come. The first one wins. A person's answer to a
-- question about the folder is kept with the step, which becomes ready: its next attempt compares the folder first.
-- Arguments: address, fence, word, by, verdict?, reason?, text?, child? (its usage is counted), expand?, take,
--   lease_ms, artifacts? (of the outcome: name, digest, size, media_type), plan_version? (the one that was approved)
-- Returns: settled | superseded(state; by: who answered first) | default(fence: the question's time is over, and its
--   default is its answer now) | stale(version: of the plan, which is another one now)
--- @requires budgets, deadlines, dispatch, changes, outcomes, records, steps/shares, transaction, transcript
--- @requires usage

-- Whether an answer counts only if the folder is still as the question showed it; one that asks for changes does not.
local function is_bound(args, wait)
  return wait.seen ~= nil and args.word == 'succeeded' and args.verdict ~= 'retry' and args.by ~= 'deadline'
end

-- Keeps the answer for the next attempt at the step.
local function keep(tx, address, step)
  step.given = {outcome = tx.document, seen = step.parked.seen, asked = step.parked.asked}
  shares.leave_out_wait(tx, step)
  changes.add(tx, 'answered')
  outcomes.hand_back(tx, address, step, 'step.released', {why = 'answered'})
end

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
  if is_bound(args, step.parked) then
    keep(tx, address, step)
  else
    outcomes.finish(tx, address, step, args.word, args.verdict, args.reason, args.text)
  end
  dispatch.run(tx)
  transaction.flush(tx)
  return transaction.reply(tx, 'settled')
end
