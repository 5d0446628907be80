-- Looks at an address that the sweep found in `ready` past its time: its hint was lost, or its time has come.
-- Arguments: address, depth (messages in its queue), called? (its ticket for a lock was called)
-- Returns: hinted (or in line for a slot) | busy (its queue is long, and its last hint recent) | gone
--- @requires addresses, hints, locks/calls, programs, records, steps/last, transaction
local BUSY_DEPTH = 20
local BUSY_MS = 300000   -- while its queue is long, a hint is not repeated before this

return function(tx)
  local args = tx.args
  local address = args.address
  local step = transaction.read_session(tx) and records.load(tx, 'steps', address)
  if not step or step.state ~= 'ready' or tx.session.status ~= 'active' and not last.may_run(tx, step) then
    redis.call('ZREM', tx.shared.ready, addresses.member(tx, address))
    return transaction.reply(tx, 'gone')
  end
  local r = programs.route_of(tx, address)
  if r.queue == 'local' and redis.call('ZSCORE', tx.keys.hinted, hints.queue_of(tx, r) .. '<' .. address) then
    hints.look_again(tx, address)
    return transaction.reply(tx, 'hinted')
  end
  local kept = calls.called_until(tx, address)
  if not kept and step.hinted and args.depth > BUSY_DEPTH and tx.now - step.hinted < BUSY_MS then
    redis.call('ZADD', tx.shared.ready, tx.now + hints.MAX_MS, addresses.member(tx, address))
    if step.waits then transaction.flush(tx) end
    return transaction.reply(tx, 'busy')
  end
  local queue = hints.queue_of(tx, r)
  local out = redis.call('ZSCORE', tx.keys.hinted, queue .. '<' .. address)
  -- A step whose ticket was called does not queue behind siblings that wait for the same lock.
  if out or kept or args.called then
    if out then step.hints = (step.hints or 0) + 1 end
    hints.send(tx, address, step, r, queue)
    if kept then redis.call('ZADD', tx.shared.ready, kept, addresses.member(tx, address)) end
    records.save(tx, 'steps', address)
  else
    hints.offer(tx, address)
  end
  transaction.flush(tx)
  return transaction.reply(tx, 'hinted')
end
