-- What an API token's sessions use: how many have not ended; steps, and bytes of documents, by day (UTC).
local DAY_MS = 86400000

local function spent_today(token)
  return GLOBAL .. 'spent:' .. token .. ':' .. math.floor(now / DAY_MS)
end

local function spend(token, name, by)
  redis.call('HINCRBY', spent_today(token), name, by)
  redis.call('EXPIRE', spent_today(token), 2 * DAY_MS / 1000)
end

local function token_of(base)
  local token = redis.call('HGET', base .. 'session', 'token')
  return token and token ~= '' and token or nil
end

-- Which of its owner's quotas a new session would pass; nil where there is room.
local function quota_passed(owner)
  local live = redis.call('SCARD', GLOBAL .. 'owned:' .. owner.token)
  if owner.sessions and live >= owner.sessions then return 'sessions' end
  local spent = redis.call('HMGET', spent_today(owner.token), 'steps', 'bytes')
  if owner.steps and tonumber(spent[1] or 0) >= owner.steps then return 'steps' end
  if owner.bytes and tonumber(spent[2] or 0) + owner.size > owner.bytes then return 'bytes' end
end

-- A new session belongs to the token that asked for it, a child to its parent's.
local function own(token, size)
  redis.call('HSET', K.session, 'token', token)
  redis.call('SADD', GLOBAL .. 'owned:' .. token, A.session)
  if size then spend(token, 'bytes', size) end
end

-- Whether a session that has ended finds no room any more to go on: others of its token took it.
local function no_room_again()
  local token, most = token_of(BASE), tonumber(redis.call('HGET', K.session, 'max_sessions') or 0)
  if not token or most == 0 then return nil end
  local key = GLOBAL .. 'owned:' .. token
  local counts = redis.call('SISMEMBER', key, A.session) == 1 or redis.call('SCARD', key) < most
  return not counts and most or nil
end

local function owner_works()
  local token = token_of(BASE)
  if token then redis.call('SADD', GLOBAL .. 'owned:' .. token, A.session) end
end

local function owner_rests()
  local token = token_of(BASE)
  if token then redis.call('SREM', GLOBAL .. 'owned:' .. token, A.session) end
end

local function spend_step()
  if S.token ~= '' then spend(S.token, 'steps', 1) end
end
