-- The audit's checks of one session: the indexes that list it, its owners, its TTLs.
--- @requires audit/findings, facts, parts, quotas, sessions
local session_indexes = {}

-- Checks the lists that must contain the session, and the key of its root.
local function check_lists(tx)
  local created = redis.call('HGET', tx.keys.session, 'created') or tx.now
  for _, key in ipairs({tx.prefix .. 'status:' .. tx.session.status, tx.shared.sessions}) do
    if not redis.call('ZSCORE', key, tx.args.session) then
      findings.add(tx, 'index_lost', tx.args.session, 'it is ' .. tx.session.status .. ', but is not listed in ' .. key,
        function() redis.call('ZADD', key, created, tx.args.session) end)
    end
  end
  if redis.call('EXISTS', tx.prefix .. 'id:' .. tx.args.session) == 0 then
    local root = tx.args.member:match('|(.*)|$')
    findings.add(tx, 'id_lost', tx.args.session, 'the entry that locates its keys is missing', function()
      redis.call('SET', tx.prefix .. 'id:' .. tx.args.session, root)
      findings.expire_with(tx.prefix .. 'id:' .. tx.args.session, tx.keys.session)
    end)
  end
end

-- Checks the lines of the index by kind, label, name and folder.
local function check_facts(tx)
  for _, line in ipairs(facts.lines_of(tx.base, tx.args.session)) do
    if not redis.call('ZSCORE', tx.shared.facts, line) then
      findings.add(tx, 'index_lost', tx.args.session, 'it is not listed in facts as ' .. line,
        function() redis.call('ZADD', tx.shared.facts, 0, line) end)
    end
  end
end

-- Checks the program, and the token.
local function check_owners(tx, works)
  local program, users = tx.prefix .. 'program:' .. tx.session.program, tx.prefix .. 'users:' .. tx.session.program
  if redis.call('SISMEMBER', users, tx.args.session) == 0 then
    findings.add(tx, 'user_unlisted', tx.args.session, 'it is not among the users of its program',
      function() redis.call('SADD', users, tx.args.session) end)
  end
  if redis.call('EXISTS', program) == 0 then
    findings.add(tx, 'program_lost', tx.args.session, 'program ' .. tx.session.program .. ' is gone')
  end
  local token = quotas.token_of(tx.base)
  if works and token and redis.call('SISMEMBER', tx.prefix .. 'owned:' .. token, tx.args.session) == 0 then
    findings.add(tx, 'owner_unlisted', tx.args.session, 'it does not count for its token ' .. token,
      quotas.count_session)
  end
end

-- Checks the lists that must contain the session, and its owners.
function session_indexes.check(tx, works)
  check_lists(tx)
  check_facts(tx)
  check_owners(tx, works)
end

-- Checks that the deletion is queued, if the session needs one, and its time.
local function check_deletion(tx, what, is_needed)
  local due = redis.call('ZSCORE', tx.shared.errands, 'forget|' .. tx.args.member)
  if not due and not is_needed then return end
  if not due then
    return findings.add(tx, 'deadline_missing', tx.args.session, what .. ', but no deletion is scheduled',
      sessions.schedule_deletion)
  end
  local kept_s = redis.call('HGET', tx.keys.session, 'retention_' .. tx.session.status) or tx.session.retention
  local updated = redis.call('HGET', tx.keys.session, 'updated') or 0
  if findings.is_late(tx, due, math.max(tx.now, updated) + kept_s * 1000) then
    findings.add(tx, 'deadline_wrong', tx.args.session, what .. ', but its deletion is scheduled too late',
      sessions.schedule_deletion)
  end
end

-- Checks the TTLs: a session at work has none, all keys of another one have, and its deletion is queued.
function session_indexes.check_deadlines(tx, works)
  local keys = {tx.prefix .. 'id:' .. tx.args.session}
  for part in pairs(parts.session) do table.insert(keys, tx.keys[part]) end
  local endless, doomed = false, false
  for _, key in ipairs(keys) do
    local left = redis.call('PTTL', key)
    endless = endless or (not works and left == -1)
    doomed = doomed or (works and left >= 0)
  end
  local what = 'it is ' .. tx.session.status
  if endless then
    findings.add(tx, 'deadline_missing', tx.args.session, what .. ', but some of its keys never expire', function()
      sessions.schedule_deletion(tx)
      for _, key in ipairs(keys) do redis.call('EXPIRE', key, tx.keep_s) end
    end)
  end
  check_deletion(tx, what, not works and not endless)
  if doomed then
    findings.add(tx, 'deadline_wrong', tx.args.session, 'it is active, but its keys expire soon',
      sessions.keep)
  end
end

return session_indexes
