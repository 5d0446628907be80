-- A session that is resumed goes on by another program, which its caller found to fit what is done.
local adopt
do   -- a script may have 200 locals: these are seen here alone

-- What is not done goes: it may be gone from the new program, or be another thing there. Its own program still
-- says what it was.
local function clear()
  for _, id in ipairs(redis.call('ZRANGE', K.open, 0, -1)) do
    if id ~= '' and block_of(id) == '' then anew.supersede(id, load('turns', id)) end
  end
  for _, address in ipairs(redis.call('ZRANGE', K.live, 0, -1)) do cancel(address, load('steps', address)) end
end

local function take_over(other)
  local users, old = GLOBAL .. 'users:', S.program
  PROGRAM, routes, S.program = GLOBAL .. 'program:' .. other.program, {}, other.program
  take_program(other.program, other.document, other.routes)
  redis.call('SREM', users .. old, A.session)
  if redis.call('SCARD', users .. old) == 0 then redis.call('DEL', GLOBAL .. 'program:' .. old) end
  redis.call('HSET', K.session, 'program', other.program, 'schema', other.schema)
  emit('session.adopted', '', {program = other.program})
end

function adopt(other)
  if other.afresh then clear() end
  if other.program ~= S.program then take_over(other) end
  redis.call('HSET', K.session, 'signature', other.signature, 'source', other.source)
end
end
