-- Which session has made a stack, whose bodies alone may use it then. A call of a body has its session as `owner`; the
-- stacks of folders have no maker.
local makers = {}

local function key_of(tx)
  return tx.prefix .. 'stack:' .. tx.args.stack
end

-- Whether the call has an owner, and the stack exists and was not made by that.
function makers.is_foreign(tx)
  local created, maker = unpack(redis.call('HMGET', key_of(tx), 'created', 'made_by'))
  return tx.args.owner and created and maker ~= tx.args.owner
end

-- Records who has made a stack, after a change of it. Once another caller changes it, it belongs to no session.
function makers.note(tx, is_new)
  if is_new and tx.args.owner then redis.call('HSET', key_of(tx), 'made_by', tx.args.owner) end
  if not tx.args.owner then redis.call('HDEL', key_of(tx), 'made_by') end
end

return makers
