-- The audit's checks of the lists of locks: holds, tickets, called, waits.
--- @requires addresses, audit/findings, audit/holders, audit/named_locks, locks/folders, locks/named, locks/tickets
local lock_lists = {}

-- Reports a folder and one above it that different trees hold, once: for the one below.
local function check_above(tx, line, lock, one)
  folders.each_overlap(tx.shared.holds, lock, function(other, above)
    if not folders.lies_below(lock, above) then return 'lock' end
    local two = findings.parse(tx, other:match('<(.*)$'))
    if (two.root ~= one.root or two.id == one.id) and holders.lives(two) then
      findings.add(tx, 'owner_double', one.id, line .. ' overlaps ' .. above .. ', which ' .. two.id .. ' holds')
    end
  end)
end

-- Whether a session holds a folder above or below the one that it locks: it would wait for itself.
local function obstructs_itself(lock, one)
  local own = folders.is_folder(lock) and findings.field_of(one.base .. 'session', 'folder') or ''
  return own ~= '' and (folders.lies_below(own, lock) or folders.lies_below(lock, own))
end

-- A hold: its holder lives, its session notes it, and no other one holds the same.
function lock_lists.holds(tx, line)
  local lock, owner = line:match('^(.-)<(.*)$')
  local one = findings.parse(tx, owner)
  if named.is_named(lock) and named_locks.check_hold(tx, line, lock, one) then return end
  local is_own_obstacle = obstructs_itself(lock, one)
  if is_own_obstacle or not holders.lives(one) then
    local why = is_own_obstacle and ' holds, and its session works above or below that' or ' holds, and is over'
    return findings.add(tx, 'holder_dead', one.id, line .. why, function()
      redis.call('SREM', one.base .. 'holding', line)
      redis.call('ZREM', tx.shared.holds, line)
      holders.call_next(tx, lock)
    end)
  end
  if redis.call('SISMEMBER', one.base .. 'holding', line) == 0 then
    findings.add(tx, 'hold_unlisted', one.id, line .. ' holds a lock that is missing in its session',
      function() redis.call('SADD', one.base .. 'holding', line) end)
  end
  local low, high = addresses.range_of(lock .. '<')
  for _, other in ipairs(folders.is_folder(lock) and redis.call('ZRANGEBYLEX', tx.shared.holds, low, high) or {}) do
    local two = findings.parse(tx, other:match('<(.*)$'))
    local shared = two.root == one.root and two.id ~= one.id   -- sessions of one tree share
    if other < line and not shared and holders.lives(two) then
      findings.add(tx, 'owner_double', one.id, line .. ' overlaps a lock that ' .. two.id .. ' holds')
    end
  end
  if folders.is_folder(lock) then check_above(tx, line, lock, one) end
end

-- A ticket: its step waits for the lock.
function lock_lists.tickets(tx, line)
  local lock, one = line:match('^(.-)<'), findings.parse(tx, tickets.member_of(line))
  if holders.waits_for(one, lock) then return end
  findings.add(tx, 'ticket_stray', one.id, line .. ' is in the waiting line, but its step no longer waits',
    function() holders.call_next(tx, lock) end)
end

-- A call: its step waits for the lock.
function lock_lists.called(tx, line)
  local lock, who = line:match('^(.-)<(.*)$')
  if holders.waits_for(findings.parse(tx, who), lock) then return end
  findings.add(tx, 'ticket_stray', nil, line .. ' was called, but is in no waiting line',
    function() redis.call('HDEL', tx.shared.called, line) end)
end

-- The locks that a step waits for: it waits.
function lock_lists.waits(tx, line)
  local one = findings.parse(tx, line)
  if holders.waits_for(one) then return end
  findings.add(tx, 'ticket_stray', one.id, line .. ' is recorded as waiting, but its step no longer waits',
    function() redis.call('HDEL', tx.shared.waits, line) end)
end

return lock_lists
