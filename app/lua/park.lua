-- A step waits for a person, a time or a child, and holds no worker; the new fence goes with the question.
-- A: address, fence, nonce, on (human | wait | child), until_ms, child?, child_base?, question?
-- Returns: parked(fence) | ended(status, of a child that has ended meanwhile) | superseded
local address = A.address
local step = session() and load('steps', address)
if not step or step.nonce ~= A.nonce then return reply('superseded') end
if step.state == 'parked' and step.fence == A.fence + 1 then
  answer.fence = step.fence
  return reply('parked')
end
if step.state ~= 'running' or step.fence ~= A.fence then return reply('superseded') end
if not turns_open(block_of(address)) then
  hand_back(address, step, 'step.released', {why = 'turn closed'})
  dispatch()
  flush()
  return reply('superseded')
end
if A.child and redis.call('HEXISTS', A.child_base .. 'session', 'ended') == 1 then
  answer.status = redis.call('HGET', A.child_base .. 'session', 'status')
  return reply('ended')
end
step.state, step.fence, step.lease, step.deadline = 'parked', step.fence + 1, nil, nil
step.parked = {on = A.on, until_ms = A.until_ms or now, child = A.child, question = A.question}
cjson.encode(step)   -- what cannot be written, as a number too large to be one, fails before anything is
save('steps', address)
redis.call('ZREM', K.running, address)
free_locks(address)
write_transcript(address)
redis.call('ZADD', K.parked, 0, address)
redis.call('ZADD', G.leases, step.parked.until_ms, member(address))
emit('step.parked', address, {on = A.on, until_ms = step.parked.until_ms, fence = step.fence, child = A.child})
stop_if_idle()
ring_if_waiting()
flush()
answer.fence = step.fence
return reply('parked')
