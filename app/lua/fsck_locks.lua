-- The audit looks at locks: who holds them and who waits for them, against what those are.
-- A: list (holds, tickets, called, waits), lines, repair
-- Returns: looked(found, called)
local function turn_state(one, id)
  local turn = redis.call('HGET', one.base .. 'turns', id)
  return turn and cjson.decode(turn).state
end

-- An attempt holds while it runs, a turn until it is closed, or the one around it that ends with all below
-- it; a stopped session holds nothing.
local function lives(one)
  if not AT_WORK[one.status] then return false end
  local state = turn_state(one, one.address)
  if state == 'closed' and one.address ~= '' then
    for _, around in ipairs(turns_around(block_of(one.address))) do
      if turn_state(one, around.id) == 'closing' then return true end
    end
  end
  if state then return state ~= 'closed' end
  local step = step_at(one)
  return step ~= nil and step.state == 'running'
end

local function waits_for(one, lock)
  local step = step_at(one)
  if not (one.status == 'active' and step and step.state == 'ready') then return false end
  for _, name in ipairs(step.waits or {}) do
    if lock == nil or name == lock then return true end
  end
  return false
end

local look = {}
function look.holds(line)
  local lock, owner = line:match('^(.-)<(.*)$')
  local one = parted(owner)
  if not lives(one) then
    return found('holder_dead', one.id, line .. ' holds, and is over', function()
      redis.call('SREM', one.base .. 'holding', line)
      redis.call('ZREM', G.holds, line)
      call_next(lock)
    end)
  end
  if redis.call('SISMEMBER', one.base .. 'holding', line) == 0 then
    found('hold_unlisted', one.id, line .. ' holds, and its session does not know',
      function() redis.call('SADD', one.base .. 'holding', line) end)
  end
  local low, high = range_of(lock .. '<')
  for _, other in ipairs(lock:sub(1, 7) == 'folder:' and redis.call('ZRANGEBYLEX', G.holds, low, high) or {}) do
    local two = parted(other:match('<(.*)$'))
    local shared = two.root == one.root and two.id ~= one.id   -- by sessions of one tree
    if other < line and not shared and lives(two) then
      found('owner_double', one.id, line .. ' holds what ' .. two.id .. ' holds')
    end
  end
end
function look.tickets(line)
  local lock, one = line:match('^(.-)<'), parted(ticket_of(line))
  if waits_for(one, lock) then return end
  found('ticket_stray', one.id, line .. ' stands in line, and waits no more', function()
    redis.call('ZREM', G.tickets, line)
    redis.call('HDEL', G.called, lock .. '<' .. ticket_of(line))
    call_next(lock)
  end)
end
function look.called(line)
  local lock, who = line:match('^(.-)<(.*)$')
  if waits_for(parted(who), lock) then return end
  found('ticket_stray', nil, line .. ' was called, and stands in no line', function() redis.call('HDEL', G.called, line) end)
end
function look.waits(line)
  local one = parted(line)
  if waits_for(one) then return end
  found('ticket_stray', one.id, line .. ' is noted as waiting, and waits no more', function() redis.call('HDEL', G.waits, line) end)
end

local STANDS = {holds = 'ZSCORE', tickets = 'ZSCORE', called = 'HGET', waits = 'HGET'}
for _, line in ipairs(A.lines) do
  if redis.call(STANDS[A.list], G[A.list], line) then look[A.list](line) end
end
return reply('looked')
