-- The audit's checks of one step: the lists by state, its times, its tickets.
--- @requires addresses, audit/findings, locks/tickets, records
local step_lists = {}

local LISTS = {ready = {live = true}, running = {live = true, running = true}, parked = {live = true, parked = true}}

-- Checks the session's lists of live, running and parked steps.
function step_lists.check_states(tx, address, state)
  local session = tx.args.session
  for _, list in ipairs({'live', 'running', 'parked'}) do
    local should = (LISTS[state] or {})[list]
    local is = redis.call('ZSCORE', tx.keys[list], address)
    if should and not is then
      findings.add(tx, 'step_unlisted', session, address .. ' is ' .. state .. ', but is not listed as ' .. list,
        function() redis.call('ZADD', tx.keys[list], 0, address) end)
    elseif is and not should then
      findings.add(tx, 'step_stray', session, address .. ' is ' .. state .. ', but is listed as ' .. list,
        function() redis.call('ZREM', tx.keys[list], address) end)
    end
  end
end

-- Checks that a running or parked step is in `leases`, and its time there.
local function check_lease(tx, address, step)
  local due = step.state == 'running' and step.lease or step.state == 'parked' and step.parked.until_ms
  if not due then return end
  local who = addresses.member(tx, address)
  local looked_at = redis.call('ZSCORE', tx.shared.leases, who)
  local what = address .. ' is ' .. step.state
  local function repair() redis.call('ZADD', tx.shared.leases, due, who) end
  if not looked_at then
    findings.add(tx, 'lease_lost', tx.args.session, what .. ', but no sweep checks it', repair)
  elseif findings.is_late(tx, looked_at, due) then
    findings.add(tx, 'lease_late', tx.args.session, what .. ', but the sweep checks it too late', repair)
  end
end

-- The steps that are in line for a slot of a window.
function step_lists.read_line(tx)
  local waiting = {}
  for _, line in ipairs(redis.call('ZRANGE', tx.keys.waiting, 0, -1)) do waiting[line:match('<%d+<(.*)$')] = true end
  return waiting
end

-- When a ready step is looked at without a call: at its time, or at the next slot of a rate that it waits for. A step
-- that waits for a folder is not called once a turn around it holds that.
local function next_look(tx, step)
  local due = step.due or 0
  for _, name in ipairs(step.waits or {}) do
    due = math.max(due, tonumber(redis.call('HGET', tx.shared.rates, name)) or 0)
  end
  return due
end

-- Checks that a ready step is in `ready` or in line for a slot, and its time there.
local function check_hint(tx, address, step, waiting)
  if not findings.waits_to_start(tx.session.status, step) then return end
  local who = addresses.member(tx, address)
  local hinted_at = redis.call('ZSCORE', tx.shared.ready, who)
  local function repair() redis.call('ZADD', tx.shared.ready, tx.now, who) end
  if not hinted_at then
    if waiting[address] then return end
    findings.add(tx, 'hint_lost', tx.args.session,
      address .. ' is ready, but no message to a worker is scheduled', repair)
  elseif findings.is_late(tx, hinted_at, next_look(tx, step)) then
    findings.add(tx, 'hint_late', tx.args.session,
      address .. ' is ready, but its message to a worker is scheduled too late', repair)
  end
end

function step_lists.check_times(tx, address, step, waiting)
  check_lease(tx, address, step)
  check_hint(tx, address, step, waiting)
end

-- Checks that a step that waits for locks has a ticket for each.
function step_lists.check_tickets(tx, address, step)
  local who = addresses.member(tx, address)
  for _, name in ipairs(step.waits or {}) do
    local has_ticket = false
    tickets.each(tx, name, function(line)
      has_ticket = tickets.member_of(line) == who
      return has_ticket
    end)
    if not has_ticket then
      local what = address .. ' waits for ' .. name .. ', but is not in its waiting line'
      return findings.add(tx, 'ticket_lost', tx.args.session, what,
        function()
          tickets.drop(tx, address)
          records.save(tx, 'steps', address)
        end)
    end
  end
end

return step_lists
