-- What those who watch all sessions follow: a bounded stream of changes, and an index of the sessions that may need a
-- person. The index may have too many sessions, and never too few: a reader checks each, and removes what is over.
local changes = {}

local MOST = 5000   -- entries of the stream; who misses some reads all sessions again

-- Appends a change of the session, or of another one: its new status, or what happened to it.
function changes.add(tx, what, other)
  redis.call('XADD', tx.shared.changes, 'MAXLEN', '~', MOST, '*', 's', other or tx.args.session, 'w', what)
end

-- Lists the session, or another one, as one that may need a person. The newest call decides its place, unless it is a
-- `reminder`.
function changes.call_person(tx, reminder, other)
  local session = other or tx.args.session
  if reminder and redis.call('ZSCORE', tx.shared.attention, session) then return end
  redis.call('ZADD', tx.shared.attention, tx.now, session)
  changes.add(tx, 'attention', session)
end

-- Removes a session that is deleted.
function changes.forget(tx)
  redis.call('ZREM', tx.shared.attention, tx.args.session)
  changes.add(tx, 'deleted')
end

return changes
