-- Migration: a session that resumes continues by another program. The caller has checked that it fits what is done.
--- @requires addresses, cancellation, events, programs, records, resume
local migrate = {}

-- Ends what is not done, while the old program still describes it: the new one may not contain it.
local function clear(tx)
  for _, id in ipairs(redis.call('ZRANGE', tx.keys.open, 0, -1)) do
    if id ~= '' and addresses.block_of(id) == '' then resume.supersede(tx, id, records.load(tx, 'turns', id)) end
  end
  for _, address in ipairs(redis.call('ZRANGE', tx.keys.live, 0, -1)) do
    cancellation.cancel_step(tx, address, records.load(tx, 'steps', address))
  end
end

-- Replaces the program of the session.
local function change_program(tx, other)
  local users, old = tx.prefix .. 'users:', tx.session.program
  tx.program, tx.routes, tx.session.program = tx.prefix .. 'program:' .. other.program, {}, other.program
  programs.attach(tx, other.program, other.document, other.routes)
  redis.call('SREM', users .. old, tx.args.session)
  if redis.call('SCARD', users .. old) == 0 then redis.call('DEL', tx.prefix .. 'program:' .. old) end
  redis.call('HSET', tx.keys.session, 'program', other.program, 'schema', other.schema)
  events.emit(tx, 'session.adopted', '', {program = other.program})
end

-- Continues by another program.
function migrate.adopt(tx, other)
  if other.afresh then clear(tx) end
  if other.program ~= tx.session.program then change_program(tx, other) end
  redis.call('HSET', tx.keys.session, 'signature', other.signature, 'source', other.source)
end

-- Takes over the definitions of the session's folder as they are now; an empty mark means that there are none.
function migrate.define(tx, now)
  redis.call('HSET', tx.keys.session, 'definitions', now.mark, 'signature', now.signature)
  if now.mark == '' then return redis.call('DEL', tx.keys.definitions) end
  redis.call('SET', tx.keys.definitions, now.text)
end

return migrate
