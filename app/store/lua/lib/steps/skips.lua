-- Marks for the next runs of nodes and items: those that a user skips before they have started are recorded as skipped
-- when their turn comes.
--- @requires events
local skips = {}

-- Stores a mark for the next run of a node or item.
function skips.store(tx, name, mark)
  redis.call('HSET', tx.keys.skips, name, cjson.encode(mark))
  redis.call('HSET', tx.keys.session, 'skips', '1')
  tx.session.skips = '1'
end

-- Removes and returns a mark; nil if there is none.
function skips.load(tx, name)
  if tx.session.skips == '' then return nil end
  local text = redis.call('HGET', tx.keys.skips, name)
  if not text then return nil end
  redis.call('HDEL', tx.keys.skips, name)
  return cjson.decode(text)
end

-- Whether the next run of a node is to be skipped.
function skips.is_marked(tx, name)
  return tx.session.skips ~= '' and redis.call('HEXISTS', tx.keys.skips, name) == 1
end

-- Removes the marks of the items of a for_each.
function skips.forget_items(tx, place)
  if tx.session.skips == '' then return end
  for _, name in ipairs(redis.call('HKEYS', tx.keys.skips)) do
    if name:sub(1, #place + 1) == place .. '#' then redis.call('HDEL', tx.keys.skips, name) end
  end
end

-- Stores that the next run of a node is to be skipped, with the reason. `lists` are the for_each nodes of its block
-- whose list it makes.
function skips.mark(tx, place, reason, lists)
  skips.store(tx, place, {reason = reason, lists = lists})
  events.emit(tx, 'step.skipping', place, {reason = reason})
end

-- Removes the items that an older run of a step has listed: the run that is skipped lists none.
function skips.forget_lists(tx, place, lists)
  local block = place:match('^(.*/)[^/]*$') or ''
  for _, name in ipairs(lists or {}) do redis.call('HDEL', tx.keys.widths, block .. name) end
end

-- The reason for which a user skips a node that starts now; nil if none does. It holds for this run only.
function skips.take(tx, place)
  local mark = skips.load(tx, place)
  if not mark then return nil end
  skips.forget_lists(tx, place, mark.lists)
  return mark.reason
end

return skips
