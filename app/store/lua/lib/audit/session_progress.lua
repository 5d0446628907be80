-- The audit's checks of one session: what keeps it from going on.
--- @requires addresses, audit/findings, records, sessions, steps/last, children
--- @requires turns
local session_progress = {}

-- Whether the end of a child is still being reported.
local function hears_soon(tx)
  for _, child in ipairs(redis.call('SMEMBERS', tx.keys.children)) do
    if redis.call('ZSCORE', tx.shared.errands, 'deliver|' .. child .. tx.args.member:match('|.*$')) then return true end
  end
end

-- Checks that turns that are ending can close, and that the session has work or ends.
local function check_turns(tx)
  for _, id in ipairs(redis.call('ZRANGE', tx.keys.open, 0, -1)) do
    local turn = records.load(tx, 'turns', id)
    if turn then turn.id = id end
    if not turn or turn.state == 'closed' then
      findings.add(tx, 'turn_stray', tx.args.session, id .. ' is closed, but is listed as open',
        function() redis.call('ZREM', tx.keys.open, id) end)
    elseif turn.state == 'closing' and redis.call('ZLEXCOUNT', tx.keys.running, addresses.range_below(turn)) == 0
      and not (id == '' and (children.any_at_work(tx) or hears_soon(tx) or last.any_at_work(tx))) then
      local what = (id == '' and 'it' or id) .. ' is closing, but no step below it runs'
      findings.add(tx, 'turn_stuck', tx.args.session, what,
        function() turns.try_close(tx, id, turn) end)
    end
    if turn then turn.id = nil end
  end
  if redis.call('ZCARD', tx.keys.running) > 0 or children.any_at_work(tx) or hears_soon(tx) then return end
  if last.any_at_work(tx) then return end
  if tx.session.status == 'stopping' then
    findings.add(tx, 'stop_stuck', tx.args.session, 'it is stopping, but no step runs', sessions.stop_if_idle)
  elseif tx.session.status == 'active' and redis.call('ZCARD', tx.keys.live) == 0
    and (records.load(tx, 'turns', '') or {}).state == 'open' then
    findings.add(tx, 'session_stuck', tx.args.session, 'it is active, but no step is ready, running or parked')
  end
end

-- Checks that the deadline of the session is in `leases`.
local function check_clock(tx)
  local due = redis.call('HGET', tx.keys.session, 'until')
  local looked_at = redis.call('ZSCORE', tx.shared.leases, addresses.member(tx, ''))
  local function look_then() redis.call('ZADD', tx.shared.leases, due, addresses.member(tx, '')) end
  if due and not looked_at then
    findings.add(tx, 'lease_lost', tx.args.session, 'it has a deadline, but no sweep checks it', look_then)
  elseif due and findings.is_late(tx, looked_at, due) then
    findings.add(tx, 'lease_late', tx.args.session, 'it has a deadline, but the sweep checks it long after that',
      look_then)
  end
end

-- Checks that slots of windows are taken by ready steps, and that no step waits for a free one.
local function check_slots(tx)
  local taken = {}
  for _, slot in ipairs(redis.call('ZRANGE', tx.keys.hinted, 0, -1)) do
    local queue, address = slot:match('^(.-)<(.*)$')
    local step = records.load(tx, 'steps', address)
    if step and step.state == 'ready' then
      taken[queue] = true
    else
      local what = address .. ' is not ready, but takes a slot of ' .. queue
      findings.add(tx, 'slot_stray', tx.args.session, what, function()
        redis.call('ZREM', tx.keys.hinted, slot)
        tx.freed[queue] = true
      end)
    end
  end
  local queues = {}
  for _, line in ipairs(redis.call('ZRANGE', tx.keys.waiting, 0, -1)) do
    local queue, address = line:match('^(.-)<%d+<(.*)$')
    if findings.waits_to_start(tx.session.status, records.load(tx, 'steps', address)) then queues[queue] = true end
  end
  for queue in pairs(queues) do
    if not taken[queue] and not tx.freed[queue] then
      findings.add(tx, 'line_stuck', tx.args.session, 'steps wait for ' .. queue .. ', but its slots are free',
        function() tx.freed[queue] = true end)
    end
  end
end

function session_progress.check(tx)
  check_turns(tx)
  check_clock(tx)
  check_slots(tx)
end

return session_progress
