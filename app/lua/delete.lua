-- Forget an ended session; its program goes with the last session that ran it.
-- A: session, seen?, force? (of one that has not ended: it is kept no longer than it runs)
-- Returns: deleted | doomed (to be aborted) | refused(status) | changed(status) | unknown
local RUNS = {active = true, stopping = true, exiting = true, aborting = true}
if not session() then return reply('unknown') end
if not is_as_seen() then answer.status = S.status return reply('changed') end
if RUNS[S.status] and A.force then
  redis.call('HSET', K.session, 'retention', 0, 'export', '')   -- who deletes it means it
  for _, status in ipairs(A.force) do redis.call('HDEL', K.session, 'retention_' .. status) end
  redis.call('ZADD', G.errands, now, 'delete|' .. A.member)
  return reply('doomed')
end
if RUNS[S.status] then answer.status = S.status return reply('refused') end
for _, address in ipairs(redis.call('ZRANGE', K.parked, 0, -1)) do
  redis.call('ZREM', G.leases, member(address))
end
redis.call('ZREM', G.errands, 'forget|' .. A.member, 'delete|' .. A.member)
owner_rests()
if S.parent ~= '' then redis.call('SREM', cjson.decode(S.parent).base .. 'children', A.session) end
for _, key in pairs(K) do redis.call('DEL', key) end
redis.call('DEL', GLOBAL .. 'id:' .. A.session)
redis.call('HDEL', G.owed, A.session)
redis.call('ZREM', G.sessions, A.session)
redis.call('ZREM', GLOBAL .. 'status:' .. S.status, A.session)
redis.call('SREM', GLOBAL .. 'users:' .. S.program, A.session)
if redis.call('SCARD', GLOBAL .. 'users:' .. S.program) == 0 then redis.call('DEL', PROGRAM) end
return reply('deleted')
