-- The sweep found an address in `ready` past its time: its hint was lost, or its time to wait is over.
-- A: address, depth (messages that stand in its queue), called? (its turn for a lock has come)
-- Returns: hinted (or in line for a slot) | busy (its queue is long, the last hint is young) | gone
local BUSY_DEPTH = 20
local address = A.address
local step = session() and load('steps', address)
if not step or step.state ~= 'ready' or S.status ~= 'active' then
  redis.call('ZREM', G.ready, member(address))
  return reply('gone')
end
local r = route(path_of(address))
local kept = called_until(address)
if not kept and step.hinted and A.depth > BUSY_DEPTH and now - step.hinted < HINT_BUSY_MS then
  redis.call('ZADD', G.ready, now + HINT_MAX_MS, member(address))
  if step.waits then flush() end
  return reply('busy')
end
local queue = queue_of(r)
local out = redis.call('ZSCORE', K.hinted, queue .. '<' .. address)
-- A step whose turn for a lock has come does not stand behind its siblings that wait for it too.
if out or kept or A.called then
  if out then step.hints = (step.hints or 0) + 1 end
  hint(address, step, r, queue)
  if kept then redis.call('ZADD', G.ready, kept, member(address)) end
  save('steps', address)
else
  offer(address)
end
flush()
return reply('hinted')
