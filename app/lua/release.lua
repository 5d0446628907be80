-- A worker hands its attempt back, not counted: on drain, on stop, or because the turn ends.
-- Also where its folder turns out to be another one by its real path, as only its place can tell: the
-- session's lock becomes that of the real folder, once, and the step waits for that one.
-- A: address, fence, nonce, why, usage?, digest?, changed?, folder? (the lock's name by the real path)
-- Returns: released | kept (nothing is handed back: go on) | superseded
local address = A.address
local step = session() and load('steps', address)
if not step or step.state ~= 'running' or step.fence ~= A.fence or step.nonce ~= A.nonce then
  return reply('superseded')
end
if A.folder then
  local known = S.folder == '' or S.folder == A.folder or redis.call('HEXISTS', K.session, 'resolved') == 1
  if known or redis.call('ZCARD', K.running) > 1 or children_at_work() then return reply('kept') end
  forget_hints()
  free_all_locks()
  S.folder = A.folder
  redis.call('HSET', K.session, 'folder', A.folder, 'resolved', 1)
  for _, other in ipairs(redis.call('ZRANGE', K.live, 0, -1)) do
    if load('steps', other).state == 'ready' then table.insert(released, other) end
  end
end
step.attempt = step.attempt - 1
use_of_attempt(address, step, A.usage)
keep_work(address)
hand_back(address, step, 'step.released', {why = A.why})
dispatch()
flush()
return reply('released')
