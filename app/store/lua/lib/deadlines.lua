-- Parked steps whose time has come: a person's deadline, a timer, or a look at a child session or a plan.
--- @requires addresses, events, outcomes, records, sessions, transcript
local deadlines = {}

-- Enters the time at which the step is looked at again.
local function look_at(tx, address, at)
  redis.call('ZADD', tx.shared.leases, at, addresses.member(tx, address))
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
    look_at(tx, address, wait.until_ms)
    return 'alive'
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

return deadlines
