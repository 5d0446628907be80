-- Calls: when a lock becomes free, the next step in its line is hinted. The engine does it at once, the sweep repeats
-- it.
--- @requires addresses, locks/folders, locks/limits, locks/precedence, locks/rates, locks/tickets, records
local calls = {}

-- When the holder of a ticket can take all of its locks: now, or at the next slot of a rate. Nil if one of them has no
-- room, and then whether an earlier ticket keeps it back.
local function free_at(tx, who)
  local at = tx.now
  for _, name in ipairs(tickets.waits_of(tx, who)) do
    if folders.is_folder(name) then
      local conflict, covered = folders.find_conflict(tx, name, who)
      if conflict then return nil end
      if not covered and precedence.is_kept_back(tx, name, who, 9) then return nil, true end
    elseif not limits.has_room(tx, name, who) then
      return nil
    end
    local _, slot = rates.slots_of(tx, name)
    at = math.max(at, math.ceil(slot))
  end
  return at
end

-- Calls a ticket for a time; it keeps the lock for a while from then on. Returns false for one that is not called again
-- yet: it was passed over or refused.
local function call(tx, name, who, at)
  local before = tonumber(redis.call('HGET', tx.shared.called, tickets.called_field(name, who)))
  if before and before < 0 and tx.now < -before then return false end
  if before and before > 0 and before <= at then return true end
  redis.call('HSET', tx.shared.called, tickets.called_field(name, who), at)
  redis.call('ZADD', tx.shared.ready, at, who)
  if at <= tx.now then table.insert(tx.reply.called, who) end
  return true
end

-- Calls the next tickets in the line of one lock. If the lock has a rate, one is always called for the next slot.
local function call_line(tx, name)
  local low, high = addresses.range_of(name .. '<')
  local slots, slot = rates.slots_of(tx, name)
  local room = limits.capacity_of(tx, name) - redis.call('ZLEXCOUNT', tx.shared.holds, low, high)
  local free = math.min(room, math.max(1, slots))
  if free <= 0 then return end
  local has, tree = true, nil
  if folders.is_folder(name) then has, tree = precedence.tree_with_room(tx, name) end
  if not has then return end
  tickets.each(tx, name, function(line)
    local who = tickets.member_of(line)
    local _, root = folders.tree_of(who)
    if tree and root ~= tree then return false end
    local at, kept_back = free_at(tx, who)
    if kept_back and folders.is_folder(name) then return true end   -- and so are those behind it
    if at and at > math.max(tx.now, math.ceil(slot)) then
      redis.call('ZADD', tx.shared.ready, 'LT', at, who)   -- it waits for another key's rate, and blocks nothing here
    elseif at and call(tx, name, who, at) then
      free = free - 1
    end
    return free <= 0
  end)
end

-- Calls the next tickets for a lock that became free; for a folder, also those for folders above and below it.
function calls.call_next(tx, name)
  if not folders.is_folder(name) then return call_line(tx, name) end
  for _, line in ipairs(precedence.lines_around(tx, name)) do call_line(tx, line.lock) end
end

-- Calls a ticket for the next slot of each rate among these locks.
function calls.call_for_rates(tx, names)
  for _, name in ipairs(names) do
    if rates.slots_of(tx, name) < math.huge then calls.call_next(tx, name) end
  end
end

-- Until when a lock is kept for a step whose ticket was called; nil if none is. A ticket that was called and let its
-- time pass is passed over, so that it does not block those behind it.
function calls.called_until(tx, address)
  local step, kept = records.load(tx, 'steps', address), nil
  for _, name in ipairs(step.waits or {}) do
    local at = tickets.called_at(tx, name, addresses.member(tx, address))
    if at > 0 and tx.now - at > tickets.CALLED_MS and (step.hinted or 0) >= at then
      tickets.each(tx, name, function(line)
        if tickets.member_of(line) ~= addresses.member(tx, address) then return false end
        step.tickets[name] = tickets.pass_over(tx, line)
        return true
      end)
      records.save(tx, 'steps', address)
      calls.call_next(tx, name)
    elseif at > 0 and at <= tx.now then
      if tx.now - at > tickets.CALLED_MS then   -- no sweep ran meanwhile
        at = tx.now
        redis.call('HSET', tx.shared.called, tickets.called_field(name, addresses.member(tx, address)), at)
      end
      kept = math.max(kept or 0, at + tickets.CALLED_MS + 1)
    end
  end
  return kept
end

-- Calls the tickets of the same tree of sessions for a folder that the tree holds now, wherever they are in the line;
-- also for folders above and below it.
function calls.call_kin(tx, name)
  local _, root = folders.tree_of(tx.args.member)
  for _, around in ipairs(precedence.lines_around(tx, name)) do
    local lock = around.lock
    local is_held = folders.first_overlap(tx.shared.holds, lock)   -- if not, the next in line has been called
    if is_held then tickets.each(tx, lock, function(line)
      local who = tickets.member_of(line)
      local _, theirs = folders.tree_of(who)
      if theirs == root and free_at(tx, who) == tx.now then call(tx, lock, who, tx.now) end
    end) end
  end
end

-- Whether the session has a parent or children.
function calls.has_kin(tx)
  return tx.session.parent ~= '' or redis.call('EXISTS', tx.keys.children) == 1
end

-- Removes the tickets of a step that no longer waits, and calls the next ones.
function calls.give_up(tx, address)
  local names = records.load(tx, 'steps', address).waits or {}
  tickets.drop(tx, address)
  for _, name in ipairs(names) do calls.call_next(tx, name) end
end

return calls
