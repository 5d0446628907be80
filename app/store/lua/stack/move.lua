-- Gives a stack another name, and another folder: that of a project which was renamed or moved.
-- Arguments: stack, to (the new name), folder?, place?, owner?, nonce?
-- Returns: moved(stack: under its new name) | missing (there is none of the old name) | occupied (there is one of the
--   new name)
--- @requires stacks
local KINDS = {'stack', 'stack-line', 'stack-all'}

local function exists(key)
  return redis.call('EXISTS', key) == 1
end

-- Renames the keys of a stack, and records the new name in all of its workflow sessions.
local function rename(tx, old, new)
  for _, member in ipairs(redis.call('ZRANGE', tx.prefix .. 'stack-all:' .. old, 0, -1)) do
    local id = member:match('<(.*)$')
    if stacks.exists(tx, id) then redis.call('HSET', stacks.key(tx, id), 'stack', new) end
  end
  for _, kind in ipairs(KINDS) do
    local key = tx.prefix .. kind .. ':'
    if exists(key .. old) then redis.call('RENAME', key .. old, key .. new) end
  end
  redis.call('ZREM', tx.shared.stacks, old)
end

local function move(tx)
  local old, new = tx.args.stack, tx.args.to
  if not exists(tx.prefix .. 'stack:' .. old) then return 'missing' end
  if exists(tx.prefix .. 'stack:' .. new) then return 'occupied' end
  rename(tx, old, new)
  redis.call('HDEL', tx.prefix .. 'stack:' .. new, 'folder', 'place')
  tx.args.stack = new   -- the call has the new name from here on
  stacks.describe(tx, tx.args.folder, tx.args.place)
  return 'moved', ''
end

return function(tx)
  return stacks.once(tx, move)
end
