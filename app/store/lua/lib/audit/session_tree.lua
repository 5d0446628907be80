-- The audit's checks of one session: its parent and its children.
--- @requires audit/findings, transaction
local session_tree = {}

-- Checks that each child names the session as its parent.
local function check_children(tx)
  for _, child in ipairs(redis.call('SMEMBERS', tx.keys.children)) do
    local base = findings.base_of(tx, child, tx.args.member:match('|(.*)|$'))
    local above = redis.call('HGET', base .. 'session', 'parent')
    if not above or above == '' or cjson.decode(above).session ~= tx.args.session then
      local what = child .. ' is listed as its child, but does not name it as its parent'
      findings.add(tx, 'child_stray', tx.args.session, what,
        function() redis.call('SREM', tx.keys.children, child) end)
    end
  end
end

-- Whether the parent has ended. A user may have resumed the session after that end: then it may continue alone.
local function is_orphan(tx, parent, status)
  if status and (transaction.AT_WORK[status] or status == 'stopped') then return false end
  local resumed = redis.call('HGET', tx.keys.session, 'alone')
  return not (resumed and (not status or resumed == redis.call('HGET', parent.base .. 'session', 'ended')))
end

-- Checks that the parent lists the session, and that the session does not outlive its end.
local function check_parent(tx, parent, works)
  local status = redis.call('HGET', parent.base .. 'session', 'status')
  if status and redis.call('SISMEMBER', parent.base .. 'children', tx.args.session) == 0 then
    findings.add(tx, 'child_unlisted', tx.args.session, 'its parent ' .. parent.session .. ' does not list it',
      function()
        redis.call('SADD', parent.base .. 'children', tx.args.session)
        findings.expire_with(parent.base .. 'children', parent.base .. 'session')
      end)
  end
  local abort = 'abort|' .. tx.args.member
  if works and tx.session.status ~= 'aborting' and is_orphan(tx, parent, status)
    and not redis.call('ZSCORE', tx.shared.errands, abort) then
    local what = 'its parent ' .. parent.session .. ' is ' .. (status or 'deleted') .. ', but it is still active'
    findings.add(tx, 'child_orphaned', tx.args.session, what,
      function() redis.call('ZADD', tx.shared.errands, tx.now, abort) end)
  end
end

function session_tree.check(tx, works)
  check_children(tx)
  if tx.session.parent == '' then return end
  local parent = cjson.decode(tx.session.parent)
  if parent.base then check_parent(tx, parent, works) end
end

return session_tree
