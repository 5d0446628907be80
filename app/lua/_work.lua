-- The work in a folder: its digest after the last attempt that worked there, and what each changed.
-- The differences that a session keeps: the last of them, so many bytes together (as they are kept),
-- and the field that says in which order they came (no address). One table: a script may have no
-- more than 200 local names.
local DIFFS = {most = 200, bytes = 4 * 1024 * 1024, order = ''}

-- The differences and their sizes in the order in which they came, without one that came again.
function DIFFS.but(address)
  local kept, bytes = {}, 0
  for _, diff in ipairs(cjson.decode(redis.call('HGET', K.diffs, DIFFS.order) or '[]')) do
    if diff[1] ~= address then
      table.insert(kept, diff)
      bytes = bytes + diff[2]
    end
  end
  return kept, bytes
end

-- What an attempt changed; the oldest go where they are too many.
function DIFFS.keep(address, patch)
  local kept, bytes = DIFFS.but(address)
  table.insert(kept, {address, #patch})
  bytes = bytes + #patch
  local over = false
  while #kept > 1 and (#kept > DIFFS.most or bytes > DIFFS.bytes) do
    local oldest = table.remove(kept, 1)
    bytes = bytes - oldest[2]
    redis.call('HDEL', K.diffs, oldest[1])
    over = true
  end
  redis.call('HSET', K.diffs, address, patch, DIFFS.order, cjson.encode(kept))
  if over and redis.call('HSETNX', K.session, 'diffs_dropped', 1) == 1 then
    warn('the oldest differences of the working folder were dropped: a session keeps the last '
      .. DIFFS.most .. ', and 4 MiB of them')
  end
end

-- What the worker saw of the folder: kept with the outcome, or when the attempt is handed back.
local function keep_work(address)
  if not A.digest then return end
  redis.call('HSET', K.session, 'digest', A.digest)
  local first = redis.call('HDEL', K.session, 'compare') == 1   -- of those that looked side by side
  S.compare = ''
  if A.patch then DIFFS.keep(address, A.patch) end
  if A.changed and first then warn('the working folder changed while the session was stopped') end
end

-- Whoever works there next says whether it is as it was left.
local function compare_work()
  if redis.call('HEXISTS', K.session, 'digest') == 1 then redis.call('HSET', K.session, 'compare', 1) end
end
