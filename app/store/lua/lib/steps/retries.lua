-- Retries: makes a step ready again, and decides how long a failed or busy one waits.
--- @requires addresses, events, hints, locks/locks, sessions, children, turn_records
local retries = {}

-- Removes a step from the lists of its state, and releases its locks.
function retries.leave(tx, address, state)
  if state ~= 'running' and state ~= 'parked' then hints.withdraw(tx, address) end
  locks.release(tx, address)
  if state ~= 'parked' then redis.call('ZREM', tx.keys.running, address) end
  if state ~= 'running' then redis.call('ZREM', tx.keys.parked, address) end
  redis.call('ZREM', tx.keys.live, address)
  redis.call('ZREM', tx.shared.leases, addresses.member(tx, address))
end

-- Makes a step ready again, at a time if `due` is given.
function retries.make_ready(tx, address, step, due)
  retries.leave(tx, address, step.state)
  children.abort_of_attempt(tx, address)
  step.lease, step.deadline, step.parked, step.due = nil, nil, nil, due
  hints.make_ready(tx, address, step)
end

-- Retries a step after a wait.
local function retry_later(tx, address, step, reason, wait)
  events.emit(tx, 'step.retried', address, {reason = reason, wait_ms = wait, fence = step.fence})
  retries.make_ready(tx, address, step, math.floor(tx.now + wait))
  sessions.stop_if_idle(tx)
end

-- Retries a step whose service was busy. That is no failed attempt, and has a number of tries of its own.
function retries.retry_busy(tx, address, step, reason)
  local busy, before = tx.args.busy, step.busy or 0
  local may_start = turn_records.lets_run(tx, address, step)
  if not busy or before >= busy.tries or not may_start then return false end
  step.busy = before + 1
  retry_later(tx, address, step, reason, busy.after_ms or math.min(1000 * 2 ^ before, 60000))
  return true
end

-- Retries a step after a failed attempt, by its route's policy: the wait doubles with each failure.
function retries.retry_failed(tx, address, step, reason, route)
  local wait = math.min(route.backoff_ms * 2 ^ (step.failed - 1), route.max_backoff_ms)
  retry_later(tx, address, step, reason, wait * (tx.args.jitter or 1))
end

return retries
