-- Appends the output of a running body to the ring of its attempt. It is for display only: no outcome depends on it.
-- Arguments: address, fence, parts (each: seq, stream, text, dropped), oldest? (id of the oldest entry that is kept),
--   attempts (rings that a session may have), quiet_ms (a ring that is not written for so long is replaced), ttl_s
-- Returns: kept(ids) | full | superseded | unknown
--- @requires records, transaction

-- Makes room for the ring of another attempt; false if all rings are in use.
local function make_room(tx, name)
  local args, outputs = tx.args, tx.keys.outputs
  if redis.call('ZSCORE', outputs, name) or redis.call('ZCARD', outputs) < args.attempts then return true end
  local oldest = redis.call('ZRANGE', outputs, 0, 0, 'WITHSCORES')
  if tx.now - oldest[2] < args.quiet_ms then return false end
  redis.call('DEL', tx.base .. 'output:' .. oldest[1])
  redis.call('ZREM', outputs, oldest[1])
  return true
end

return function(tx)
  local args = tx.args
  if not transaction.read_session(tx) then return transaction.reply(tx, 'unknown') end
  local step = records.load(tx, 'steps', args.address)
  if not step or step.fence ~= args.fence then return transaction.reply(tx, 'superseded') end
  local name = args.address .. '#' .. string.format('%d', args.fence)
  if not make_room(tx, name) then return transaction.reply(tx, 'full') end
  local ring = tx.base .. 'output:' .. name
  tx.reply.ids = {}
  for i, part in ipairs(args.parts) do
    tx.reply.ids[i] = redis.call('XADD', ring, '*', 'n', part.seq, 's', part.stream, 't', part.text, 'd', part.dropped)
  end
  if args.oldest then redis.call('XTRIM', ring, 'MINID', args.oldest) end
  redis.call('EXPIRE', ring, args.ttl_s)
  redis.call('ZADD', tx.keys.outputs, tx.now, name)
  -- The last output of a session comes after its end.
  if not transaction.AT_WORK[tx.session.status] then transaction.expire_with_session(tx) end
  return transaction.reply(tx, 'kept')
end
