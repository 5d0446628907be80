-- Which of the steps that wait for overlapping folders goes first: an earlier ticket goes before a later one, so that
-- a wide folder is not starved by folders below it.
--- @requires locks/folders, locks/limits, locks/rates, locks/tickets
local precedence = {}

-- Whether a ticket waits for its folder only: its other locks have room.
local function waits_for_folder(tx, lock, who)
  for _, name in ipairs(tickets.waits_of(tx, who)) do
    if not folders.is_folder(name) and (not limits.has_room(tx, name, who) or rates.slots_of(tx, name) < 1) then
      return false
    end
  end
  return folders.find_conflict(tx, lock, who) ~= nil
end

-- Whether an earlier ticket for a folder keeps another step from an overlapping one: it was called, or it waits for a
-- held folder, so that later steps could starve it.
local function keeps_back(tx, line, lock, who)
  local first = tickets.member_of(line)
  local _, root = folders.tree_of(who)
  local _, their_root = folders.tree_of(first)
  if root == their_root then return false end
  local called = tickets.called_at(tx, lock, first)
  if called > 0 then return tx.now - called <= tickets.CALLED_MS end
  if called < 0 and tx.now < -called then return false end
  return waits_for_folder(tx, lock, first) and not folders.holds_around(tx, who)
end

-- The order of a step's ticket in the line of a lock; behind its priority if it has none yet.
local function order_in(tx, name, who, priority)
  local order
  tickets.each(tx, name, function(line)
    if tickets.member_of(line) ~= who then return false end
    order = tickets.order_of(line)
    return true
  end)
  return order or string.format('%d', priority) .. ('9'):rep(14)
end

local LOOK_MOST = 64   -- tickets that are looked at, at most

-- Whether an earlier ticket for a folder above or below goes first.
function precedence.is_kept_back(tx, name, who, priority)
  local order, kept, looked = nil, false, 0
  folders.each_overlap(tx.shared.tickets, name, function(_, lock)
    if lock == name then return 'lock' end
    order = order or order_in(tx, name, who, priority)
    tickets.each(tx, lock, function(line)
      looked = looked + 1
      kept = tickets.order_of(line) < order and keeps_back(tx, line, lock, who)
      return kept or looked >= LOOK_MOST or tickets.order_of(line) >= order
    end)
    return kept or looked >= LOOK_MOST or 'lock'
  end)
  return kept
end

-- Returns whether a tree of sessions may have a folder now, and its root if it is only one: that which holds folders
-- below it. The tree of a held folder, or of one above it, was called when it took that.
function precedence.tree_with_room(tx, name)
  local held = folders.first_overlap(tx.shared.holds, name)
  if not held then return true end
  local lock, who = held:match('^(.-)<(.*)$')
  local _, root = folders.tree_of(who)
  return folders.lies_below(lock, name), root
end

-- The locks whose tickets may have waited for a folder: its own, those above and those below, the earliest first.
function precedence.lines_around(tx, name)
  local found = {}
  folders.each_overlap(tx.shared.tickets, name, function(line, lock)
    table.insert(found, {order = tickets.order_of(line), lock = lock})
    return 'lock'
  end)
  table.sort(found, function(one, other) return one.order < other.order end)
  return found
end

-- Whether a step may take a folder, and the hold that conflicts. A step does not queue for a folder that its tree
-- holds already.
function precedence.may_take(tx, lock, who)
  local conflict, covered = folders.find_conflict(tx, lock.name, who)
  if conflict or covered then return not conflict, conflict end
  local priority = tonumber(tx.session.priority) or 5
  return tickets.has_turn(tx, lock, 1, who) and not precedence.is_kept_back(tx, lock.name, who, priority)
end

return precedence
