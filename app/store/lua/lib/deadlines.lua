-- Deadlines that have passed: of the session, of an attempt, and of a parked step (a person's deadline, a timer, or a
-- look at a child session or a plan). The sweep finds them; a transition that comes before the sweep applies them
-- first, so that nothing is accepted late.
--- @requires addresses, attempts, budgets, dispatch, events, outcomes, programs, records, sessions, transaction
--- @requires transcript, turns, usage
local deadlines = {}

local LOST_MAX = 5   -- an attempt that is lost more often fails

-- Enters the time at which the step is looked at again.
local function look_at(tx, address, at)
  redis.call('ZADD', tx.shared.leases, at, addresses.member(tx, address))
  return 'alive'
end

-- Stops the session, so that a person can resume it and has the whole time again.
local function stop(tx, address, step)
  step.parked.until_ms = tx.now + step.parked.wait_ms
  records.save(tx, 'steps', address)
  look_at(tx, address, step.parked.until_ms)
  if tx.session.status ~= 'active' then return 'woken' end
  local reason = {code = 'deadline', at = address, text = 'nobody answered in time; resume it to continue'}
  sessions.set_status(tx, 'stopping', reason)
  events.emit(tx, 'session.status', '', {status = 'stopping', reason = reason})
  sessions.withdraw_all(tx)
  sessions.stop_if_idle(tx)
  return 'woken'
end

-- Applies the default of a question: `answer` lets the caller give its default answer, `approve` answers it with
-- accept, `stop` stops the session.
local function apply_default(tx, address, step)
  if step.parked.default == 'answer' then
    look_at(tx, address, tx.now + 60000)   -- again, if the caller does not give it
    tx.reply.fence = step.fence
    return 'default'
  end
  if step.parked.default ~= 'approve' then return stop(tx, address, step) end
  step.answered_by = 'deadline'
  outcomes.finish(tx, address, step, 'succeeded', 'accept', {code = 'accepted', at = address,
    text = 'nobody answered in time, and the plan approves itself then'}, '')
  return 'woken'
end

-- Ends a parked step whose time has come, or says what is to be looked at. Returns the reply of `expire`.
function deadlines.expire_parked(tx, address, step)
  local wait = step.parked
  if wait.until_ms > tx.now then
    return look_at(tx, address, wait.until_ms)
  end
  if wait.on == 'child' or wait.on == 'plan' then
    look_at(tx, address, tx.now + 60000)
    if wait.child then tx.reply.child, tx.reply.fence = wait.child, step.fence end
    return 'look'
  end
  if wait.default then return apply_default(tx, address, step) end
  step.answered_by = 'deadline'
  local is_timer = wait.on == 'wait' or wait.on == 'stop'
  local reason = not is_timer and {code = 'deadline', at = address, text = 'no answer arrived in time'} or nil
  if reason then transcript.write(tx, address) end
  outcomes.finish(tx, address, step, reason and 'failed' or 'succeeded', nil, reason, '')
  return 'woken'
end

-- Ends the time of the session, which is used up. Returns the reply of `expire`.
function deadlines.expire_session(tx)
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

-- Ends an attempt whose lease has passed: it is lost or took too long. Returns the reply of `expire`.
function deadlines.expire_running(tx, address, step)
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

local QUIET_MS = 5000   -- without a sweep for so long, Redis or all sweepers were down

-- Whether the deadline of an attempt and the grace to report it have passed. After a restart of Redis the attempts have
-- one period of grace, which begins with the next sweep: until then none is overdue.
function deadlines.is_overdue(tx, step)
  if step.state ~= 'running' or tx.now < step.deadline + attempts.GRACE_MS then return false end
  if tx.now - tonumber(redis.call('GET', tx.shared.swept) or 0) > QUIET_MS then return false end
  return tx.now >= tonumber(redis.call('HGET', tx.shared.epoch, 'grace') or 0)
end

-- Ends the session whose time is over before the sweep has seen it.
function deadlines.apply_to_session(tx)
  local due = tonumber(tx.session['until'])
  if not due or due > tx.now then return end
  deadlines.expire_session(tx)
  turns.end_if_spent(tx)
end

-- What a call brings for a step, which does not count if it comes too late.
local BROUGHT = {'word', 'verdict', 'reason', 'failure', 'text', 'usage', 'expand', 'ledger', 'busy', 'ending',
  'warning', 'take', 'thread', 'signature', 'refused_by', 'artifacts'}

-- Applies the deadline of a step that has passed before the sweep has seen it. Returns the reply of `expire`.
local function apply(tx, address, step)
  local wait = step.state == 'parked' and step.parked
  local is_late = wait and (wait.on == 'human' or wait.on == 'stop') and wait.until_ms <= tx.now
  if not is_late and not deadlines.is_overdue(tx, step) then return end
  for _, name in ipairs(BROUGHT) do tx.args[name] = nil end
  tx.document, tx.entry, tx.argv = '', '', {}
  return (wait and deadlines.expire_parked or deadlines.expire_running)(tx, address, step)
end

-- Applies the deadlines of the session and of a step, as the sweep would have done before this call. Returns the reply
-- to a call that comes too late (`default` if the caller must give the default answer of a question); nil if it is in
-- time.
function deadlines.refuse(tx, address, step, word)
  local before = step.state
  deadlines.apply_to_session(tx)
  local found = apply(tx, address, step)
  if not found and step.state == before then return nil end
  dispatch.run(tx)
  transaction.flush(tx)
  return transaction.reply(tx, found == 'default' and found or word)
end

return deadlines
