-- Forget an ended session; its program goes with the last session that ran it.
-- A: session, program
-- Returns: deleted | refused(status) | unknown
local RUNS = {active = true, stopping = true, exiting = true, aborting = true}
if not session() then return reply('unknown') end
if RUNS[S.status] then answer.status = S.status return reply('refused') end
for _, address in ipairs(redis.call('ZRANGE', K.parked, 0, -1)) do
  redis.call('ZREM', G.leases, member(address))
end
redis.call('ZREM', G.errands, 'forget|' .. A.member)
owner_rests()
for _, key in pairs(K) do redis.call('DEL', key) end
redis.call('DEL', GLOBAL .. 'id:' .. A.session)
redis.call('ZREM', G.sessions, A.session)
redis.call('ZREM', GLOBAL .. 'status:' .. S.status, A.session)
redis.call('SREM', GLOBAL .. 'users:' .. A.program, A.session)
if redis.call('SCARD', GLOBAL .. 'users:' .. A.program) == 0 then redis.call('DEL', PROGRAM) end
return reply('deleted')
