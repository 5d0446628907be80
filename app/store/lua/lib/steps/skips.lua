-- Nodes that a user skips before they have started: each is recorded as skipped when its turn comes.
--- @requires events
local skips = {}

-- Stores that the next run of a node is to be skipped, with the reason. `lists` are the for_each nodes of its block
-- whose list it makes.
function skips.mark(tx, place, reason, lists)
  redis.call('HSET', tx.keys.skips, place, cjson.encode({reason = reason, lists = lists}))
  redis.call('HSET', tx.keys.session, 'skips', '1')
  tx.session.skips = '1'
  events.emit(tx, 'step.skipping', place, {reason = reason})
end

-- Removes the items that an older run of a step has listed: the run that is skipped lists none.
function skips.forget_lists(tx, place, lists)
  local block = place:match('^(.*/)[^/]*$') or ''
  for _, name in ipairs(lists or {}) do redis.call('HDEL', tx.keys.widths, block .. name) end
end

-- The reason for which a user skips a node that starts now; nil if none does. It holds for this run only.
function skips.take(tx, place)
  if tx.session.skips == '' then return nil end
  local text = redis.call('HGET', tx.keys.skips, place)
  if not text then return nil end
  redis.call('HDEL', tx.keys.skips, place)
  local mark = cjson.decode(text)
  skips.forget_lists(tx, place, mark.lists)
  return mark.reason
end

return skips
