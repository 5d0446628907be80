-- Named locks of a tree of sessions, `lock:ROOT:NAME`. An attempt or a session takes one for a time, and renews it.
-- Its hold is one like those of other locks, so that the end of its owner releases it. `named` has the grant, and the
-- line of those who wait: each asks again and again, first come first served.
local named = {}

named.LAPSE_MS = 10000    -- a waiter that has not asked again for this long leaves the line; a release is known as long
local LINE_MAX = 100      -- that wait for one lock
local HOLDS_MAX = 1000    -- locks that one session holds

-- Whether a lock is a named one.
function named.is_named(lock)
  return lock:sub(1, 5) == 'lock:'
end

-- The lock of a name in the tree of this session.
function named.lock_of(tx, name)
  return 'lock:' .. tx.args.member:match('|(.*)|$') .. ':' .. name
end

-- The command of the outbox that looks at a lock when its time is over.
function named.errand_of(lock)
  local root, name = lock:match('^lock:(.-):(.*)$')
  return 'lock|' .. root .. '|' .. root .. '|' .. name
end

-- The lock that a command of the outbox is about.
function named.lock_of_errand(errand)
  local root, name = errand:match('^lock|.-|(.-)|(.*)$')
  return 'lock:' .. (root or '') .. ':' .. (name or '')
end

-- The base of the keys of the session in a member, and the address in it.
local function parse(tx, member)
  local session, root, address = member:match('^(.-)|(.-)|(.*)$')
  return tx.prefix .. '{' .. root .. '}:' .. session .. ':', address
end

-- Whether the attempt that waits runs. A session that waits leaves the line by not asking again.
local function may_wait(tx, waiter)
  local base, address = parse(tx, waiter.who)
  if address == '' then return true end
  if redis.call('HGET', base .. 'session', 'status') ~= 'active' then return false end
  local text = redis.call('HGET', base .. 'steps', address)
  local step = text and cjson.decode(text) or {}
  return step.state == 'running' and step.fence == waiter.attempt
end

-- Removes the hold of a record's holder.
function named.free(tx, lock, record)
  local held = lock .. '<' .. record.holder.who
  redis.call('ZREM', tx.shared.holds, held)
  redis.call('SREM', parse(tx, record.holder.who) .. 'holding', held)
  record.holder = nil
end

-- The record of a lock, without a holder whose time is over and without waiters that have gone.
function named.load(tx, lock)
  local text = redis.call('HGET', tx.shared.named, lock)
  local record = text and cjson.decode(text) or {}
  local holder, line = record.holder, {}
  if holder then
    holder['until'] = math.min(holder['until'], tx.now + holder.ttl)   -- the clock may have stepped back
    if holder['until'] <= tx.now then named.free(tx, lock, record) end
  end
  for _, waiter in ipairs(record.line or {}) do
    waiter.seen = math.min(waiter.seen, tx.now)
    if tx.now - waiter.seen <= named.LAPSE_MS and may_wait(tx, waiter) then table.insert(line, waiter) end
  end
  record.line = line
  local last = record.last
  if last and (tx.now - last.at > named.LAPSE_MS or last.at > tx.now) then record.last = nil end
  return record
end

-- Stores the record of a lock, and when it is looked at again.
function named.save(tx, lock, record)
  local due = record.holder and record.holder['until'] or math.huge
  for _, waiter in ipairs(record.line) do due = math.min(due, waiter.seen + named.LAPSE_MS + 1) end
  if record.last then due = math.min(due, record.last.at + named.LAPSE_MS + 1) end
  if due == math.huge then
    redis.call('HDEL', tx.shared.named, lock)
    redis.call('ZREM', tx.shared.errands, named.errand_of(lock))
    return
  end
  redis.call('HSET', tx.shared.named, lock, cjson.encode(record))
  redis.call('ZADD', tx.shared.errands, due, named.errand_of(lock))
end

-- Whether a caller is the holder of a lock, or a waiter.
function named.is_same(one, who, nonce)
  return one ~= nil and one.who == who and one.nonce == nonce
end

-- Releases the lock of a caller; until it lapses, a call that is repeated, or comes late, finds the release.
function named.release(tx, lock, record)
  record.last = {who = record.holder.who, nonce = record.holder.nonce, at = tx.now}
  named.free(tx, lock, record)
end

-- Extends the time of the holder.
function named.renew(tx, record, ttl)
  record.holder['until'], record.holder.ttl = tx.now + ttl, ttl
end

-- Gives a free lock to a caller, under a number that is above those of all grants before.
function named.grant(tx, lock, record, caller, ttl)
  local held = lock .. '<' .. caller.who
  redis.call('ZADD', tx.shared.holds, 0, held)
  redis.call('SADD', tx.keys.holding, held)
  record.holder = {who = caller.who, nonce = caller.nonce, by = caller.by, attempt = caller.attempt, since = tx.now,
    fence = redis.call('HINCRBY', tx.shared.epoch, 'fences', 1)}
  named.renew(tx, record, ttl)
end

-- How many waiters are before a caller; all of them if it is not in the line.
function named.before(record, who, nonce)
  for i, waiter in ipairs(record.line) do
    if named.is_same(waiter, who, nonce) then return i - 1 end
  end
  return #record.line
end

-- Removes a caller from the line.
function named.leave(record, who, nonce)
  local at = named.before(record, who, nonce) + 1
  if record.line[at] then table.remove(record.line, at) end
end

-- Puts a caller at the end of the line, or notes that it still waits. Returns whether there is room.
function named.wait(tx, record, caller)
  local at = named.before(record, caller.who, caller.nonce) + 1
  if not record.line[at] then
    if #record.line >= LINE_MAX then return false end
    caller.since = tx.now
    record.line[at] = caller
  end
  record.line[at].seen = tx.now
  return true
end

-- Whether the session holds as many locks as it may.
function named.has_many(tx)
  return redis.call('SCARD', tx.keys.holding) >= HOLDS_MAX
end

-- Notes that a hold is gone: its owner has ended.
function named.forget(tx, lock)
  local record = named.load(tx, lock)
  record.holder = nil
  named.save(tx, lock, record)
end

return named
