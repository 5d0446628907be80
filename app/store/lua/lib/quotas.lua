-- Quotas of API tokens: sessions that have not ended, and steps and bytes of documents by day (UTC).
local quotas = {}

local DAY_MS = 86400000

-- The key of a token's counters of today.
local function key_of_today(tx, token)
  return tx.prefix .. 'spent:' .. token .. ':' .. math.floor(tx.now / DAY_MS)
end

-- Adds to a counter of today.
local function add(tx, token, name, by)
  redis.call('HINCRBY', key_of_today(tx, token), name, by)
  redis.call('EXPIRE', key_of_today(tx, token), 2 * DAY_MS / 1000)
end

-- The token that a session belongs to; nil if none.
function quotas.token_of(base)
  local token = redis.call('HGET', base .. 'session', 'token')
  return token and token ~= '' and token or nil
end

-- The quota of an owner that a new session would exceed; nil if there is none.
function quotas.find_exceeded(tx, owner)
  local live = redis.call('SCARD', tx.prefix .. 'owned:' .. owner.token)
  if owner.sessions and live >= owner.sessions then return 'sessions' end
  local spent = redis.call('HMGET', key_of_today(tx, owner.token), 'steps', 'bytes')
  if owner.steps and tonumber(spent[1] or 0) >= owner.steps then return 'steps' end
  if owner.bytes and tonumber(spent[2] or 0) + owner.size > owner.bytes then return 'bytes' end
end

-- Assigns a new session to a token: the one that asked for it, or that of its parent.
function quotas.assign(tx, token, size)
  if not token then return end
  redis.call('HSET', tx.keys.session, 'token', token)
  redis.call('SADD', tx.prefix .. 'owned:' .. token, tx.args.session)
  if size then add(tx, token, 'bytes', size) end
end

-- The quota of sessions that leaves no room for this session to resume; nil if there is room.
function quotas.full_quota(tx)
  local token, most = quotas.token_of(tx.base), tonumber(redis.call('HGET', tx.keys.session, 'max_sessions') or 0)
  if not token or most == 0 then return nil end
  local key = tx.prefix .. 'owned:' .. token
  local counts = redis.call('SISMEMBER', key, tx.args.session) == 1 or redis.call('SCARD', key) < most
  return not counts and most or nil
end

-- Counts the session for its token.
function quotas.count_session(tx)
  local token = quotas.token_of(tx.base)
  if token then redis.call('SADD', tx.prefix .. 'owned:' .. token, tx.args.session) end
end

-- Counts the session for its token no longer.
function quotas.release_session(tx)
  local token = quotas.token_of(tx.base)
  if token then redis.call('SREM', tx.prefix .. 'owned:' .. token, tx.args.session) end
end

-- Counts a step for the session's token.
function quotas.count_step(tx)
  if tx.session.token ~= '' then add(tx, tx.session.token, 'steps', 1) end
end

return quotas
