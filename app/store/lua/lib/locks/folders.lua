-- Folder locks overlap: a folder conflicts with itself, with each folder above it and with each one below it.
-- Locks are named `folder:PLACE:/path`; holds and tickets are lines `lock<...` of sorted sets ordered by name.
--- @requires addresses
local folders = {}

-- Whether a lock is the lock of a folder.
function folders.is_folder(name)
  return name:sub(1, 7) == 'folder:'
end

-- The prefix of all names below a folder: `/runs` -> `/runs/`, `/` -> `/`.
local function below_prefix(name)
  return name:sub(-1) == '/' and name or name .. '/'
end

-- Whether a folder is below another one.
function folders.lies_below(inner, outer)
  local prefix = below_prefix(outer)
  return inner ~= outer and inner:sub(1, #prefix) == prefix
end

-- Compares bytes, as Redis orders its lines: Lua's own comparison depends on the locale of the server.
local function precedes(one, other)
  for at = 1, math.min(#one, #other) do
    local a, b = one:byte(at), other:byte(at)
    if a ~= b then return a < b end
  end
  return #one < #other
end

-- The prefixes of all lines of overlapping folders, in order: those below, the folder itself, each folder above.
local function starts_of(name)
  local place, path = name:match('^(folder:[^:]*:)(.*)$')
  if not place then place, path = name, '' end
  local starts = {below_prefix(name)}
  if path ~= '/' then table.insert(starts, name .. '<') end
  for at in path:gmatch('()/') do
    local above = at == 1 and '/' or path:sub(1, at - 1)
    if above ~= path then table.insert(starts, place .. above .. '<') end
  end
  table.sort(starts, precedes)
  return starts, place
end

-- The bound from which the search continues behind an unrelated line.
local function next_start(starts, line)
  for _, start in ipairs(starts) do
    if precedes(line, start) then return '[' .. start end
  end
end

-- Calls look(line, lock) for each line of an overlapping folder. `look` returns true to stop, 'lock' to skip the
-- other lines of that lock. The search jumps over unrelated lines: their number does not add to its cost.
function folders.each_overlap(key, name, look)
  local starts, place = starts_of(name)
  local from, part, _, last = '[' .. starts[1], 1, addresses.range_of(place)
  while from do
    local lines = redis.call('ZRANGEBYLEX', key, from, last, 'LIMIT', 0, part)
    from = #lines == part and '(' .. lines[part] or nil
    for _, line in ipairs(lines) do
      local lock = line:match('^(.-)<')
      if lock ~= name and not folders.lies_below(lock, name) and not folders.lies_below(name, lock) then
        from = next_start(starts, line)
        break
      end
      local answered = look(line, lock)
      if answered == true then return end
      if answered == 'lock' then
        from = '[' .. lock .. '='
        break
      end
      part = 256
    end
  end
end

-- The first line of an overlapping folder; nil if there is none.
function folders.first_overlap(key, name)
  local found
  folders.each_overlap(key, name, function(line)
    found = line
    return true
  end)
  return found
end

-- Session and root of a member: session|root|address.
function folders.tree_of(who)
  return who:match('^(.-)|(.-)|')
end

local DEEPEST = 100   -- sessions, each the parent of the next

-- Whether a session is below another one of its tree.
local function is_below(tx, session, root, other)
  for _ = 1, DEEPEST do
    local parent = redis.call('HGET', tx.prefix .. '{' .. root .. '}:' .. session .. ':session', 'parent')
    if not parent or parent == '' then return false end
    session = cjson.decode(parent).session or ''
    if session == other then return true end
  end
  return false
end

-- Whether a folder is for one session at a time, also within its tree: the one in which a plan merges.
local function is_exclusive(name)
  return (name .. '/'):find('/.merge/', 1, true) ~= nil
end

-- The hold that keeps a folder from a step: of the same folder, or of one above or below it; nil if there is none.
-- A session shares with its parent, its children and their children, not with another turn of its own. The folder in
-- which a plan merges is shared with sessions below the holder only. Also returns whether its tree holds the folder
-- already, by itself or by one above it.
function folders.find_conflict(tx, name, who)
  local session, root = folders.tree_of(who)
  local conflict, covered = nil, false
  folders.each_overlap(tx.shared.holds, name, function(held, lock)
    local other, their_root = folders.tree_of(held:sub(#lock + 2))
    if their_root ~= root or other == session then conflict = held return true end
    if is_exclusive(lock) and not is_below(tx, session, root, other) then conflict = held return true end
    covered = covered or not folders.lies_below(lock, name)
  end)
  return conflict, covered
end

-- Whether a session, or one that waits for its end, holds a folder. If it were kept back for an earlier ticket, that
-- ticket could wait for the folder that is held here: a deadlock.
function folders.holds_around(tx, who)
  local session, root = folders.tree_of(who)
  for _ = 1, DEEPEST do
    local values = redis.call('HMGET', tx.prefix .. '{' .. root .. '}:' .. session .. ':session', 'folder', 'parent')
    local low, high = addresses.range_of((values[1] or '') .. '<' .. session .. '|' .. root .. '|')
    if #redis.call('ZRANGEBYLEX', tx.shared.holds, low, high, 'LIMIT', 0, 1) > 0 then return true end
    if not values[2] or values[2] == '' then return false end
    session = cjson.decode(values[2]).session or ''
  end
  return true
end

return folders
