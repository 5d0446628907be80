-- The work in a folder: its digest after the last attempt that worked there, and what each changed.
local DIFFS_MAX = 200         -- differences that a session keeps, the first of them

-- What the worker saw of the folder: kept with the outcome, or when the attempt is handed back.
local function keep_work(address)
  if not A.digest then return end
  redis.call('HSET', K.session, 'digest', A.digest)
  redis.call('HDEL', K.session, 'compare')
  if A.patch and redis.call('HLEN', K.diffs) < DIFFS_MAX then redis.call('HSET', K.diffs, address, A.patch) end
  if A.changed then warn('the working folder changed while the session was stopped') end
end

-- Whoever works there next says whether it is as it was left.
local function compare_work()
  if redis.call('HEXISTS', K.session, 'digest') == 1 then redis.call('HSET', K.session, 'compare', 1) end
end
