-- Create a session, all or nothing; the same idempotency key again finds it, and so does the same
-- nonce (a field of the session): a call that was repeated because its reply was lost.
-- A: session, member, key?, body, program, fields, routes, document, parent?, owner? (token, size, quotas)
-- Returns: created | exists(session) | conflict | taken | refused | quota(why)
if A.key then
  local known = redis.call('GET', GLOBAL .. 'idem:' .. A.key)
  local made = known and known:match('^(.-)|')
  if made and redis.call('EXISTS', GLOBAL .. 'id:' .. made) == 1 then
    answer.session = made
    return reply(known:match('|(.*)$') == A.body and 'exists' or 'conflict')
  end
end
if A.parent then
  local text = redis.call('HGET', A.parent.base .. 'steps', A.parent.address)
  local step = text and cjson.decode(text)
  local active = redis.call('HGET', A.parent.base .. 'session', 'status') == 'active'
  if not (active and step and step.state == 'running' and step.fence == A.parent.fence) then
    return reply('refused')
  end
end
-- What a child costs is its parent's cost: it may use as much as that one has left.
local function lend(base, budget)
  local limits = budget ~= '' and cjson.decode(budget) or {}
  local above = redis.call('HGET', base .. 'session', 'budget')
  local most = above and above ~= '' and cjson.decode(above) or {}
  for what, spent in pairs(spending.of(base .. 'session')) do
    local left = most[what] and most[what] - spent
    if left then limits[what] = math.max(1, math.min(left, limits[what] or left)) end
  end
  return cjson.encode(limits)
end

local made_by = redis.call('HGET', K.session, 'nonce')
if made_by and made_by == A.fields.nonce then return reply('created') end
answer.why = A.owner and quota_passed(A.owner)
if answer.why then return reply('quota') end
if not redis.call('SET', GLOBAL .. 'id:' .. A.session, A.root, 'NX') then
  return reply('taken')
end
if A.key then
  redis.call('SET', GLOBAL .. 'idem:' .. A.key, A.session .. '|' .. A.body, 'EX', 7 * 24 * 3600)
end
if A.parent then
  redis.call('SADD', A.parent.base .. 'children', A.session)
  redis.call('ZADD', A.parent.base .. 'born', 0, A.parent.address .. '<' .. A.session)
end
take_program(A.program, ARGV[3], A.routes)
if A.parent then A.fields.budget = lend(A.parent.base, A.fields.budget or '') end
for name, value in pairs(A.fields) do redis.call('HSET', K.session, name, value) end
redis.call('HSET', K.session, 'status', 'active', 'created', now)
if A.parent and redis.call('HGET', A.parent.base .. 'session', 'export') == '1' then
  redis.call('HSET', K.session, 'export', '1')   -- a tree is kept as a whole
end
if A.owner and A.owner.sessions then redis.call('HSET', K.session, 'max_sessions', A.owner.sessions) end
local token = A.owner and A.owner.token or A.parent and token_of(A.parent.base)
if token then own(token, A.owner and A.owner.size) end
redis.call('ZADD', G.sessions, now, A.session)
redis.call('ZADD', GLOBAL .. 'status:active', now, A.session)
session()
emit('session.created', '', {status = 'active'})
if budget().wall_ms then start_clock(budget().wall_ms) end
open_turn('', {})
open_block('')
dispatch()
flush()
return reply('created')
