-- The holders of locks and the steps that wait for them, as the audit sees them.
--- @requires addresses, audit/findings, locks/calls, locks/folders, locks/precedence, locks/tickets, transaction
local holders = {}

-- The state of a turn; nil if there is no such turn.
local function turn_state(one, id)
  local turn = findings.field_of(one.base .. 'turns', id)
  return turn and cjson.decode(turn).state
end

-- Whether a holder may hold: an attempt while it runs, a turn until it closes, or until the turn around it that is
-- ending has closed. A stopped session holds nothing.
function holders.lives(one)
  if not transaction.AT_WORK[one.status] then return false end
  local state = turn_state(one, one.address)
  if state == 'closed' and one.address ~= '' then
    for _, around in ipairs(addresses.turns_around(addresses.block_of(one.address))) do
      if turn_state(one, around.id) == 'closing' then return true end
    end
  end
  if state then return state ~= 'closed' end
  local step = findings.step_at(one)
  return step ~= nil and step.state == 'running'
end

-- Whether a step waits for a lock, or for any if `lock` is nil.
function holders.waits_for(one, lock)
  local step = findings.step_at(one)
  if not findings.waits_to_start(one.status, step) then return false end
  for _, name in ipairs(step.waits or {}) do
    if lock == nil or name == lock then return true end
  end
  return false
end

-- Removes the tickets of steps that do not wait.
local function drop_stray_tickets(tx, lock)
  local stray = {}
  tickets.each(tx, lock, function(line)
    if not holders.waits_for(findings.parse(tx, tickets.member_of(line)), lock) then table.insert(stray, line) end
  end)
  for _, line in ipairs(stray) do
    redis.call('ZREM', tx.shared.tickets, line)
    redis.call('HDEL', tx.shared.called, lock .. '<' .. tickets.member_of(line))
  end
end

-- Calls the next tickets for a lock. Stray tickets are removed before: a call would write a step that does not wait.
function holders.call_next(tx, lock)
  if not folders.is_folder(lock) then drop_stray_tickets(tx, lock) end
  local is_folder = folders.is_folder(lock)
  for _, around in ipairs(is_folder and precedence.lines_around(tx, lock) or {}) do
    drop_stray_tickets(tx, around.lock)
  end
  calls.call_next(tx, lock)
end

return holders
