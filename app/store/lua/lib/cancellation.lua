-- Cancelling what is below a turn that ends early.
--- @requires addresses, events, hints, ledger, locks/calls, locks/locks, records, steps/last
--- @requires children
local cancellation = {}

-- Cancels a step, and aborts the child that it waits for.
function cancellation.cancel_step(tx, address, step)
  if step.parked and step.parked.child then
    children.send(tx, 'abort', step.parked.child)
    table.insert(tx.reply.abort, step.parked.child)
  end
  hints.withdraw(tx, address)
  if step.waits then calls.give_up(tx, address) end
  locks.release(tx, address)
  step.state, step.ended, step.parked, step.due = 'cancelled', tx.now, nil, nil
  step.lease, step.deadline, step.given = nil, nil, nil
  records.save(tx, 'steps', address)
  for _, key in ipairs({tx.keys.live, tx.keys.parked, tx.keys.running}) do redis.call('ZREM', key, address) end
  redis.call('ZREM', tx.shared.leases, addresses.member(tx, address))
  events.emit(tx, 'step.cancelled', address)
end

-- Cancels the steps below a turn that do not run.
function cancellation.cancel_below(tx, turn)
  for _, address in ipairs(redis.call('ZRANGEBYLEX', tx.keys.live, addresses.range_below(turn))) do
    local step = records.load(tx, 'steps', address)
    if not last.keep(tx, address, step, turn) and step.state ~= 'running' then
      cancellation.cancel_step(tx, address, step)
    end
  end
end

-- Closes the turns below one that ends early; the open iteration of each is recorded as it is.
function cancellation.close_below(tx, id, low, high, verdict, reason)
  for _, inner in ipairs(redis.call('ZRANGEBYLEX', tx.keys.open, low, high)) do
    local turn = records.load(tx, 'turns', inner)
    if inner ~= id then
      if turn.state == 'open' then
        turn.verdict, turn.reason = verdict, reason
        if not turn.each then ledger.append(tx, inner, turn.iteration, verdict, reason) end
      end
      turn.state, turn.ended = 'closed', tx.now
      records.save(tx, 'turns', inner)
      redis.call('ZREM', tx.keys.open, inner)
      events.emit(tx, 'loop.closed', inner, {verdict = turn.verdict, iterations = turn.iteration, reason = turn.reason})
    end
  end
end

return cancellation
