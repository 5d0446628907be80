-- The audit looks at steps of one session: their records against the lists that they stand in.
-- A: addresses, repair
-- Returns: looked(found) | gone
if not session() then return reply('gone') end
local LISTS = {ready = {live = true}, running = {live = true, running = true},
  parked = {live = true, parked = true}}
local queued

local function in_line(address)
  if not queued then
    queued = {}
    for _, line in ipairs(redis.call('ZRANGE', K.waiting, 0, -1)) do queued[line:match('<%d+<(.*)$')] = true end
  end
  return queued[address]
end

local function look_at_lists(address, state)
  for _, list in ipairs({'live', 'running', 'parked'}) do
    local should = (LISTS[state] or {})[list]
    local is = redis.call('ZSCORE', K[list], address)
    if should and not is then
      found('step_unlisted', A.session, address .. ' is ' .. state .. ', and not among the ' .. list,
        function() redis.call('ZADD', K[list], 0, address) end)
    elseif is and not should then
      found('step_stray', A.session, address .. ' is ' .. state .. ', and among the ' .. list,
        function() redis.call('ZREM', K[list], address) end)
    end
  end
end

local function look_at_times(address, step)
  local due = step.state == 'running' and step.lease or step.state == 'parked' and step.parked.until_ms
  local looked_at = redis.call('ZSCORE', G.leases, member(address))
  local function look_then() redis.call('ZADD', G.leases, due, member(address)) end
  if due and not looked_at then
    found('lease_lost', A.session, address .. ' is ' .. step.state .. ', and nobody looks at it again', look_then)
  elseif due and is_late(looked_at, due) then
    found('lease_late', A.session, address .. ' is ' .. step.state .. ', and looked at long after its time', look_then)
  end
  local waits = step.state == 'ready' and S.status == 'active'
  local told = redis.call('ZSCORE', G.ready, member(address))
  local function tell_now() redis.call('ZADD', G.ready, now, member(address)) end
  if waits and not told and not in_line(address) then
    found('hint_lost', A.session, address .. ' is ready, and no worker is told of it', tell_now)
  elseif waits and told and not step.waits and is_late(told, step.due) then   -- a lock may be waited for for long
    found('hint_late', A.session, address .. ' is ready, and a worker is told of it long after its time', tell_now)
  end
end

local function has_ticket(name, who)
  local has = false
  each_ticket(name, function(line) has = ticket_of(line) == who return has end)
  return has
end

local function look_at_tickets(address, step)
  for _, name in ipairs(step.waits or {}) do
    if not has_ticket(name, member(address)) then
      return found('ticket_lost', A.session, address .. ' waits for ' .. name .. ' outside its line',
        function() drop_tickets(address) save('steps', address) end)
    end
  end
end

local before = #answer.found
for _, address in ipairs(A.addresses) do
  local step = load('steps', address)
  look_at_lists(address, step and step.state or 'nowhere')
  if step then
    look_at_times(address, step)
    look_at_tickets(address, step)
  end
end
if A.repair and #answer.found > before then flush() end
return reply('looked')
