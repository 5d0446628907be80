-- Parks a step: it waits for a person, a time or a child, and holds no worker. The new fence goes with the question.
-- Arguments: address, fence, nonce, on (human | wait | stop | child | plan), until_ms?, child? and child_base?,
--   question?, plan? (a draft that is adopted: tasks, at_once, retries, on_failure, proposals, proposal_ms?),
--   default? (of a person's deadline),
--   rules? (what a person's answer must fit, as JSON), seen? (of the work, as JSON), asked? (how often)
-- Returns: parked(fence) | ended(status of a child that has ended meanwhile) | superseded
--- @requires addresses, deadlines, dispatch, events, changes, locks/locks, outcomes, plans/progress, records
--- @requires sessions, transaction, transcript, turn_records, webhooks
return function(tx)
  local args = tx.args
  local address = args.address
  local step = transaction.read_session(tx) and records.load(tx, 'steps', address)
  if not step or step.nonce ~= args.nonce then return transaction.reply(tx, 'superseded') end
  if step.state == 'parked' and step.fence == args.fence + 1 then
    tx.reply.fence = step.fence
    return transaction.reply(tx, 'parked')
  end
  if step.state ~= 'running' or step.fence ~= args.fence then return transaction.reply(tx, 'superseded') end
  local late = deadlines.refuse(tx, address, step, 'superseded')
  if late then return late end
  if not turn_records.lets_run(tx, address, step) then
    outcomes.hand_back(tx, address, step, 'step.released', {why = 'turn closed'})
    dispatch.run(tx)
    transaction.flush(tx)
    return transaction.reply(tx, 'superseded')
  end
  if args.child and redis.call('HEXISTS', args.child_base .. 'session', 'ended') == 1 then
    tx.reply.status = redis.call('HGET', args.child_base .. 'session', 'status')
    return transaction.reply(tx, 'ended')
  end
  step.state, step.fence, step.lease, step.deadline = 'parked', step.fence + 1, nil, nil
  step.parked = {on = args.on, until_ms = args.until_ms or tx.now, child = args.child, question = args.question,
    rules = args.rules, seen = args.seen, asked = args.asked, default = args.default,
    wait_ms = args.default and args.until_ms - tx.now or nil}
  step.given, step.answered_by = nil, nil
  cjson.encode(step)   -- what JSON cannot hold, such as an infinite number, fails before anything is written
  records.save(tx, 'steps', address)
  redis.call('ZREM', tx.keys.running, address)
  locks.release(tx, address)
  transcript.write(tx, address)
  redis.call('ZADD', tx.keys.parked, 0, address)
  redis.call('ZADD', tx.shared.leases, step.parked.until_ms, addresses.member(tx, address))
  events.emit(tx, 'step.parked', address, {on = args.on, until_ms = step.parked.until_ms, fence = step.fence,
    child = args.child})
  if args.on == 'human' then changes.call_person(tx) end
  if args.plan then progress.adopt(tx, args.plan) end
  if args.on == 'plan' then
    progress.begin(tx, address)
    dispatch.run(tx)   -- a resumed plan may have nothing left to do
  end
  sessions.stop_if_idle(tx)
  webhooks.enqueue_if_waiting(tx)
  transaction.flush(tx)
  tx.reply.fence = step.fence
  return transaction.reply(tx, 'parked')
end
