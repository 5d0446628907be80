-- Audits lines of a list across sessions: whether each names something that belongs there, and its time.
-- Arguments: list (leases, ready, errands, hooks), lines, repair
-- Returns: looked(found)
--- @requires audit/findings, locks/named, transaction
local STRAY = {leases = 'is checked, but has no lease and no deadline',
  ready = 'is a message for a step that is not ready',
  errands = 'is a command for a deleted session', hooks = 'is a webhook without a delivery'}
local LATE = {errands = 'is a command that is delivered too late', hooks = 'is a webhook that is retried too late'}
-- A command is due at once, a webhook is tried again within the hour; a deletion is checked with its session.
local LONGEST_MS = {errands = 0, hooks = 3600000}
local LOCK_MS = 3600000   -- the longest time for which a named lock is taken
local SWEEP_MS = 60000

-- Whether a line belongs to the list.
local belongs = {}

function belongs.leases(one)
  if one.address == '' then return redis.call('HEXISTS', one.base .. 'session', 'until') == 1 end
  local step = findings.step_at(one)
  return step and (step.state == 'running' or step.state == 'parked')
end

function belongs.ready(one)
  return findings.waits_to_start(one.status, findings.step_at(one))
end

function belongs.hooks(one)
  return redis.call('HEXISTS', one.base .. 'hooks', one.address) == 1
end

-- A due command for a deleted session is removed by the sweep. A named lock outlives the root of its tree.
function belongs.errands(one, tx, due, line)
  if line:sub(1, 5) == 'lock|' and redis.call('HEXISTS', tx.shared.named, named.lock_of_errand(line)) == 1 then
    return true
  end
  return one.status ~= '' or (tx.now >= due and tx.now - due < SWEEP_MS)
end

local function is_late(tx, line, due)
  local most = line:sub(1, 5) == 'lock|' and LOCK_MS or LONGEST_MS[tx.args.list]
  return most and line:sub(1, 7) ~= 'forget|' and findings.is_late(tx, due, tx.now + most)
end

local function check(tx, list, line)
  local key = tx.shared[list]
  local due = redis.call('ZSCORE', key, line)
  if not due then return end
  local one = findings.parse(tx, list == 'errands' and (line:match('^.-|(.*)$') or '') or line)
  if not belongs[list](one, tx, tonumber(due), line) then
    findings.add(tx, list .. '_stray', one.id, line .. ' ' .. STRAY[list], function() redis.call('ZREM', key, line) end)
  elseif is_late(tx, line, due) then
    findings.add(tx, list .. '_late', one.id, line .. ' ' .. LATE[list],
      function() redis.call('ZADD', key, tx.now, line) end)
  end
end

return function(tx)
  findings.begin(tx)
  for _, line in ipairs(tx.args.lines) do check(tx, tx.args.list, line) end
  return transaction.reply(tx, 'looked')
end
