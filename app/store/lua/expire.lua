-- Looks at an address that the sweep found in `leases` past its time: an attempt that is lost or overdue, a parked
-- step, or the session itself (the empty address), whose time is used up.
-- Arguments: address, jitter?, gone? (a worker that is known to have ended: its leases are not waited for)
-- Returns: lost | timeout | poison | cancelled | woken | look(child, fence: of a child; neither: of a plan) | alive |
--   gone | spent | default(fence: the question's default is its answer now)
--- @requires addresses, budgets, deadlines, dispatch, events, outcomes, programs, records, transaction, usage/usage
local LOST_MAX = 5   -- an attempt that is lost more often fails

local function look_at(tx, address, at)
  redis.call('ZADD', tx.shared.leases, at, addresses.member(tx, address))
  return 'alive'
end

local function expire_session(tx)
  local due = tonumber(redis.call('HGET', tx.keys.session, 'until') or 0)
  if due > tx.now then
    budgets.watch_clock(tx, due)
    return 'alive'
  end
  budgets.stop_clock(tx)
  redis.call('ZREM', tx.shared.leases, addresses.member(tx, ''))
  if due == 0 then return 'gone' end
  budgets.note(tx, 'wall_ms', budgets.limits(tx).wall_ms)
  return 'spent'
end

local function expire_running(tx, address, step)
  local gone = tx.args.gone
  if step.lease > tx.now and (not gone or step.owner ~= gone) then return look_at(tx, address, step.lease) end
  -- Without a heartbeat after its deadline an attempt was lost, and did not take too long, however late this is.
  if (step.heard or 0) >= step.deadline then
    events.emit(tx, 'step.expired', address, {why = 'timeout', fence = step.fence})
    local r = programs.route_of(tx, address)
    outcomes.fail_attempt(tx, address, step, {code = 'timeout', at = address,
      text = 'took longer than ' .. r.timeout_ms / 1000 .. ' s'}, not r.late_is_final)
    return 'timeout'
  end
  step.lost = (step.lost or 0) + 1
  usage.tally(tx, address, 'attempts_lost')
  if step.lost > LOST_MAX then
    events.emit(tx, 'step.expired', address, {why = 'lost', fence = step.fence})
    outcomes.finish(tx, address, step, 'failed', nil, {code = 'lost', at = address,
      text = 'its worker was lost ' .. step.lost .. ' times'})
    return 'poison'
  end
  outcomes.hand_back(tx, address, step, 'step.expired', {why = 'lost'})
  return step.state == 'cancelled' and 'cancelled' or 'lost'
end

local EXPIRE = {running = expire_running, parked = deadlines.expire_parked}

return function(tx)
  local address = tx.args.address
  local step = transaction.read_session(tx) and records.load(tx, 'steps', address)
  local word
  if address == '' and tx.session.status ~= '' then
    word = expire_session(tx)
    if word ~= 'spent' then return transaction.reply(tx, word) end
  elseif not step or not EXPIRE[step.state] then
    redis.call('ZREM', tx.shared.leases, addresses.member(tx, address))
    return transaction.reply(tx, 'gone')
  else
    word = EXPIRE[step.state](tx, address, step)
  end
  dispatch.run(tx)
  transaction.flush(tx)
  return transaction.reply(tx, word)
end
