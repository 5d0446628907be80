-- A worker tells that its attempt lives; it is told to stop or cancel, or that it lost the step.
-- A: address, fence, nonce, lease_ms, spent? (cost and tokens that the attempt's output told of so far)
-- Returns: ok(lease) | stop(lease) | cancel(lease) | lost
local EXIT_GRACE_MS = 3000   -- the step that called exit has a moment to finish
local address = A.address
local step = session() and load('steps', address)
if not step or step.state ~= 'running' or step.fence ~= A.fence or step.nonce ~= A.nonce then
  return reply('lost')
end
step.heard, step.lease = now, math.min(now + A.lease_ms, step.deadline + GRACE_MS)
redis.call('HSET', K.steps, address, cjson.encode(step))
redis.call('ZADD', G.leases, step.lease, member(address))
if use_of_attempt(address, step, A.spent, true) then
  dispatch()
  flush()
end
answer.lease = step.lease
if not turns_open(block_of(address)) then
  local exited = tonumber(redis.call('HGET', K.session, 'exited_at') or 0)
  if S.exit_by == address and exited <= now and now < exited + EXIT_GRACE_MS then return reply('ok') end
  return reply('cancel')
end
return reply(S.status == 'stopping' and 'stop' or 'ok')
