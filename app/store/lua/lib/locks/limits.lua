-- Limits of keys, and how many may hold a lock at once.
--- @requires addresses, locks/folders
local limits = {}

-- Whether a lock has one holder: a folder, a conversation or a named lock.
local function is_exclusive(name)
  return folders.is_folder(name) or name:sub(1, 5) == 'talk:' or name:sub(1, 5) == 'lock:'
end

-- The limit of a key, nil if it has none; read once in a transaction.
function limits.limit_of(tx, key)
  if is_exclusive(key) then return nil end
  local known = tx.limits[key]
  if known == nil then
    local text = redis.call('HGET', tx.shared.limits, key)
    known = text and cjson.decode(text) or false
    tx.limits[key] = known
  end
  return known or nil
end

-- Whether a key has a limit.
function limits.is_limited(tx, key)
  return limits.limit_of(tx, key) ~= nil
end

-- How many may hold a lock at once: one for a folder or conversation, a key's `concurrency`, else any number.
function limits.capacity_of(tx, name)
  if is_exclusive(name) then return 1 end
  local limit = limits.limit_of(tx, name)
  return limit and limit.concurrency or math.huge
end

-- Whether a lock has room for a step.
function limits.has_room(tx, name, who)
  if folders.is_folder(name) then return folders.find_conflict(tx, name, who) == nil end
  local low, high = addresses.range_of(name .. '<')
  return redis.call('ZLEXCOUNT', tx.shared.holds, low, high) < limits.capacity_of(tx, name)
end

return limits
