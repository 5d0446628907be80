-- A stopped or failed session goes on by another program, which its caller found to fit what was done.
-- A: program, from (statuses), seen?, as_of (when it had changed last as it was looked at), routes, signature, source, adopts,
--    budget? (limits that the resume will raise)
-- Returns: adopted | refused(status; spent: why, text) | quota(limit) | changed(status) | moved (look again) | unknown
if not session() then return reply('unknown') end
if S.program == A.program then return reply('adopted') end   -- a repetition, or nothing new
if not is_as_seen() then answer.status = S.status return reply('changed') end
local allowed = false
for _, status in ipairs(A.from) do allowed = allowed or status == S.status end
answer.status = S.status
if not allowed then return reply('refused') end
if redis.call('HGET', K.session, 'updated') ~= A.as_of then return reply('moved') end
-- The resume that follows would be refused: then all stays as it was.
answer.limit = no_room_again()
if answer.limit then return reply('quota') end
local over = spent_before(A.budget or {})
if over then
  answer.why, answer.text = over.what, said(over)
  return reply('refused')
end
if redis.call('EXISTS', PROGRAM) == 0 then
  redis.call('HSET', PROGRAM, 'document', ARGV[3])
  for path, text in pairs(A.routes) do redis.call('HSET', PROGRAM, '/' .. path, text) end
end
local users = GLOBAL .. 'users:'
redis.call('SADD', users .. A.program, A.session)
redis.call('SREM', users .. S.program, A.session)
if redis.call('SCARD', users .. S.program) == 0 then redis.call('DEL', GLOBAL .. 'program:' .. S.program) end
redis.call('HSET', K.session, 'program', A.program, 'signature', A.signature, 'source', A.source)
emit('session.adopted', '', {program = A.program})
flush()
return reply('adopted')
