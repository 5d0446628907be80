-- The session's status: changing it, and what follows its end.
local function set_status(status, reason)
  redis.call('ZREM', GLOBAL .. 'status:' .. S.status, A.session)
  local created = redis.call('HGET', K.session, 'created')
  redis.call('ZADD', GLOBAL .. 'status:' .. status, created, A.session)
  S.status = status
  redis.call('HSET', K.session, 'status', status)
  if reason then redis.call('HSET', K.session, 'reason', cjson.encode(reason)) end
end

-- Nothing is kept for ever: an ended session is deleted by an errand; its keys' own TTL, a month later,
-- is the net below: what lists a session, and its program, go with the errand alone. One whose export is owed is never lost to that net: its errand waits until
-- the export is written.
local TELL_MS = 60000   -- one that goes at its end stays for so long, until its webhook has been told
local NET_S = 30 * 24 * 3600   -- a fleet that is down for no longer comes back to all that it has to forget
local EXPORT_S = 10 * 365 * 24 * 3600
local function keep_until_deleted()
  S.retention = redis.call('HGET', K.session, 'retention_' .. S.status) or S.retention
  local owed = redis.call('HGET', K.session, 'export') == '1'
  keep_s = S.retention + (owed and EXPORT_S or NET_S)
  local wait = S.retention * 1000
  if wait == 0 and S.rings ~= '' then wait = TELL_MS end
  redis.call('ZADD', G.errands, now + wait, 'forget|' .. A.member)
end

-- The program that the session runs from now on, with a mark of when its hash was made.
local function take_program(name, document, of_nodes)
  if redis.call('EXISTS', PROGRAM) == 0 then
    local made = redis.call('TIME')
    redis.call('HSET', PROGRAM, 'document', document, 'made', '<' .. made[1] .. '.' .. made[2] .. '<' .. A.session)
    for path, text in pairs(of_nodes) do redis.call('HSET', PROGRAM, '/' .. path, text) end
  end
  redis.call('SADD', GLOBAL .. 'users:' .. name, A.session)
  redis.call('HSET', K.session, 'made', redis.call('HGET', PROGRAM, 'made') or '')
end

-- Whether the session is still what its caller saw; those who did not look do not mind.
local function is_as_seen()
  local seen = A.seen
  local updated = redis.call('HGET', K.session, 'updated')
  return not seen or seen == cjson.null or (seen.status == S.status and seen.updated == updated)
end

local function keep_on()
  owner_works()
  for _, key in pairs(K) do redis.call('PERSIST', key) end
  redis.call('PERSIST', GLOBAL .. 'id:' .. A.session)
  redis.call('ZREM', G.errands, 'forget|' .. A.member)
end

local function forget_hints()
  for _, address in ipairs(redis.call('ZRANGE', K.live, 0, -1)) do
    redis.call('ZREM', G.ready, member(address))
    local step = load('steps', address)
    if step.waits or step.places then
      if step.waits then give_up_turn(address) end
      step.places = nil
      save('steps', address)
    end
  end
  redis.call('DEL', K.hinted, K.waiting)
end

-- The parent is told of an end, and of a stop that it may be waiting for.
local function tell_parent()
  if S.parent == '' then return end
  redis.call('ZADD', G.errands, now, 'deliver|' .. A.member)
  answer.tell = true
end

function end_session(status, reason)
  set_status(status, reason)
  redis.call('HSET', K.session, 'ended', now)
  stop_clock()
  redis.call('DEL', K.hinted, K.waiting)
  if status ~= 'failed' then redis.call('DEL', K.arrived, K.widths) end
  emit('session.ended', '', {status = status, reason = reason})
  answer.ended = status
  owner_rests()
  ring('ended', status, reason)
  if status == 'failed' then ring('failed', status, reason) end
  free_all_locks()
  owe_children('abort')
  keep_until_deleted()
  tell_parent()
end

-- The last running step of a session that is asked to stop has been handed back, and its children too.
local function stop_if_idle()
  if S.status ~= 'stopping' or redis.call('ZCARD', K.running) > 0 or children_at_work() then return end
  set_status('stopped')
  keep_until_deleted()
  free_all_locks()
  emit('session.status', '', {status = 'stopped'})
  tell_parent()
end
