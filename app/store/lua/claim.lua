-- Claims a ready step for a worker: it runs under a new fence, a lease and a hard deadline.
-- Arguments: address, nonce, worker, lease_ms, schema (the newest that the worker knows), place?, is_local? (the
--   submitter's own worker, which gets local steps only, and all others none of these)
-- Returns: granted(grants) | refused(why; of a lock or rate: lock) | superseded
--- @requires addresses, attempts, deadlines, dispatch, hints, locks/calls, locks/locks, programs, records, steps/last
--- @requires transaction, turn_records

-- Why the step cannot be claimed now; nil if it can, as far as its locks allow it.
local function reason_to_refuse(tx, address, step)
  local args, session = tx.args, tx.session
  if session.status ~= 'active' and not last.may_run(tx, step) then return 'session ' .. session.status end
  if step.state ~= 'ready' then return step.state end
  if hints.is_early(tx, step) then return 'early' end
  if session.place ~= '' and args.place and args.place ~= session.place then return 'place' end
  if tonumber(redis.call('HGET', tx.keys.session, 'schema')) > args.schema then return 'schema' end
  if not turn_records.lets_run(tx, address, step) then return 'turn closed' end
end

local function refuse(tx, why, changed)
  tx.reply.why = why
  if changed then
    dispatch.run(tx)
    transaction.flush(tx)
  end
  return transaction.reply(tx, 'refused')
end

return function(tx)
  local args = tx.args
  local address = args.address
  local step = transaction.read_session(tx) and records.load(tx, 'steps', address)
  if not step then return refuse(tx, 'unknown') end
  if step.nonce == args.nonce then
    if step.state ~= 'running' or step.lease <= tx.now then return transaction.reply(tx, 'superseded') end
    tx.reply.grants = {attempts.terms(tx, address, step)}
    return transaction.reply(tx, 'granted')
  end
  deadlines.apply_to_session(tx)
  local r = programs.route_of(tx, address)
  local why = reason_to_refuse(tx, address, step) or (r.queue == 'local') ~= (args.is_local or false) and 'queue'
  if why then return refuse(tx, why, tx.reached) end

  local lock, again, paced = locks.take(tx, address, r)
  if lock then   -- while it waits, its slot of the window goes to another step
    hints.withdraw(tx, address, true)
    hints.take_places(tx, address, step, r, true)
    redis.call('ZADD', tx.shared.ready, again, addresses.member(tx, address))
    step.hinted = nil
    records.save(tx, 'steps', address)
    calls.call_for_rates(tx, step.waits)
    dispatch.run(tx)
    transaction.flush(tx)
    tx.reply.lock = lock
    return refuse(tx, paced and 'rate' or 'lock')
  end
  tx.reply.grants = {attempts.grant(tx, address, args.nonce)}
  hints.withdraw(tx, address)
  dispatch.run(tx)
  transaction.flush(tx)
  return transaction.reply(tx, 'granted')
end
