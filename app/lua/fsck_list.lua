-- The audit looks at lines of a list across sessions: whether what they speak of is there, and so.
-- A: list (leases, ready, errands, hooks), lines, repair
-- Returns: looked(found)
local stands = {}
function stands.leases(one)
  if one.address == '' then return redis.call('HEXISTS', one.base .. 'session', 'until') == 1 end
  local step = step_at(one)
  return step and (step.state == 'running' or step.state == 'parked')
end
function stands.ready(one)
  local step = step_at(one)
  return one.status == 'active' and step and step.state == 'ready'
end
function stands.hooks(one)
  return redis.call('HEXISTS', one.base .. 'hooks', one.address) == 1
end
-- What one session owes another is due at once, a webhook is tried again within the hour; when a session goes, it says.
local LONGEST_MS = {errands = 0, hooks = 3600000}
local LATE = {errands = 'is owed, and seen to long after its time', hooks = 'is tried again long after its time'}
local function is_far(line, score)
  local most = LONGEST_MS[A.list]
  return most and line:sub(1, 7) ~= 'forget|' and is_late(score, now + most)
end

local WHAT = {leases = 'is looked at in vain', ready = 'is told of in vain', errands = 'is owed to a session that is gone',
  hooks = 'is a webhook of nobody'}

-- What is due is the sweep's: it takes what nobody is there for off the list.
local SWEEP_MS = 60000
local function is_swept(due)
  return now >= due and now - due < SWEEP_MS
end

for _, line in ipairs(A.lines) do
  local errand = A.list == 'errands'
  local one = parted(errand and (line:match('^.-|(.*)$') or '') or line)
  local is = redis.call('ZSCORE', G[A.list], line)
  local sound
  if errand then sound = one.status ~= '' or (is and is_swept(tonumber(is))) else sound = stands[A.list](one) end
  if is and not sound then
    found(A.list .. '_stray', one.id, line .. ' ' .. WHAT[A.list], function() redis.call('ZREM', G[A.list], line) end)
  elseif is and is_far(line, is) then
    found(A.list .. '_late', one.id, line .. ' ' .. LATE[A.list], function() redis.call('ZADD', G[A.list], now, line) end)
  end
end
return reply('looked')
