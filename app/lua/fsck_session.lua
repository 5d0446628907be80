-- The audit looks at one session: its places in the indexes, its deadlines, its tree, what holds it up.
-- A: repair
-- Returns: looked(found) | gone
if not session() then return reply('gone') end
local works = AT_WORK[S.status] or false
local look = {}   -- a script may have 200 locals

function look.at_indexes()
  local created = redis.call('HGET', K.session, 'created') or now
  for _, key in ipairs({GLOBAL .. 'status:' .. S.status, G.sessions}) do
    if not redis.call('ZSCORE', key, A.session) then
      found('index_lost', A.session, 'it is ' .. S.status .. ', and not listed in ' .. key,
        function() redis.call('ZADD', key, created, A.session) end)
    end
  end
  if redis.call('EXISTS', GLOBAL .. 'id:' .. A.session) == 0 then
    local root = A.member:match('|(.*)|$')
    found('id_lost', A.session, 'nothing says where its keys are', function()
      redis.call('SET', GLOBAL .. 'id:' .. A.session, root)
      local left = redis.call('PTTL', K.session)
      if left > 0 then redis.call('PEXPIRE', GLOBAL .. 'id:' .. A.session, left) end
    end)
  end
end

function look.at_owners()
  local program, users = GLOBAL .. 'program:' .. S.program, GLOBAL .. 'users:' .. S.program
  if redis.call('SISMEMBER', users, A.session) == 0 then
    found('user_unlisted', A.session, 'it is not among the users of its program',
      function() redis.call('SADD', users, A.session) end)
  end
  if redis.call('EXISTS', program) == 0 then found('program_lost', A.session, 'program ' .. S.program .. ' is gone') end
  local token = token_of(BASE)
  if works and token and redis.call('SISMEMBER', GLOBAL .. 'owned:' .. token, A.session) == 0 then
    found('owner_unlisted', A.session, 'it does not count for its token ' .. token, owner_works)
  end
end

function look.at_deadlines()
  local keys = {GLOBAL .. 'id:' .. A.session}
  for _, key in pairs(K) do table.insert(keys, key) end
  local endless, doomed = false, false
  for _, key in ipairs(keys) do
    local left = redis.call('PTTL', key)
    endless = endless or (not works and left == -1)
    doomed = doomed or (works and left >= 0)
  end
  if endless then
    found('deadline_missing', A.session, 'it is ' .. S.status .. ', and some of its keys are kept for ever', function()
      keep_until_deleted()
      for _, key in ipairs(keys) do redis.call('EXPIRE', key, keep_s) end
    end)
  end
  local gone = redis.call('ZSCORE', G.errands, 'forget|' .. A.member)
  local kept_s = redis.call('HGET', K.session, 'retention_' .. S.status) or S.retention
  if not works and not endless and not gone then
    found('deadline_missing', A.session, 'it is ' .. S.status .. ', and nobody deletes it', keep_until_deleted)
  elseif gone and is_late(gone, math.max(now, redis.call('HGET', K.session, 'updated') or 0) + kept_s * 1000) then
    found('deadline_wrong', A.session, 'it is ' .. S.status .. ', and deleted long after its time', keep_until_deleted)
  end
  if doomed then found('deadline_wrong', A.session, 'it is at work, and its keys are about to expire', keep_on) end
end

function look.at_tree()
  for _, child in ipairs(redis.call('SMEMBERS', K.children)) do
    local base = base_of(child, A.member:match('|(.*)|$'))
    local above = redis.call('HGET', base .. 'session', 'parent')
    if not above or above == '' or cjson.decode(above).session ~= A.session then
      found('child_stray', A.session, child .. ' is listed as its child, and is not',
        function() redis.call('SREM', K.children, child) end)
    end
  end
  if S.parent == '' then return end
  local parent = cjson.decode(S.parent)
  if not parent.base then return end
  local status = redis.call('HGET', parent.base .. 'session', 'status')
  if status and redis.call('SISMEMBER', parent.base .. 'children', A.session) == 0 then
    found('child_unlisted', A.session, 'its parent ' .. parent.session .. ' does not list it',
      function() redis.call('SADD', parent.base .. 'children', A.session) end)
  end
  local alone = not status or (not AT_WORK[status] and status ~= 'stopped')
  local resumed = redis.call('HGET', K.session, 'alone')   -- by a user, when its parent had ended so
  if resumed and (not status or resumed == redis.call('HGET', parent.base .. 'session', 'ended')) then alone = false end
  if works and alone and not redis.call('ZSCORE', G.errands, 'abort|' .. A.member) and S.status ~= 'aborting' then
    found('child_orphaned', A.session, 'its parent ' .. parent.session .. ' is ' .. (status or 'gone') .. ', and it goes on',
      function() redis.call('ZADD', G.errands, now, 'abort|' .. A.member) end)
  end
end

-- Whether a child's end is still on its way here.
local function hears_soon()
  for _, child in ipairs(redis.call('SMEMBERS', K.children)) do
    if redis.call('ZSCORE', G.errands, 'deliver|' .. child .. A.member:match('|.*$')) then return true end
  end
end

function look.at_turns()
  for _, id in ipairs(redis.call('ZRANGE', K.open, 0, -1)) do
    local turn = load('turns', id)
    if turn then turn.id = id end
    if not turn or turn.state == 'closed' then
      found('turn_stray', A.session, id .. ' is closed, and among the open ones', function() redis.call('ZREM', K.open, id) end)
    elseif turn.state == 'closing' and redis.call('ZLEXCOUNT', K.running, below(turn)) == 0
      and not (id == '' and (children_at_work() or hears_soon())) then
      found('turn_stuck', A.session, (id == '' and 'it' or id) .. ' is to close, and nothing below it runs',
        function() try_close(id, turn) end)
    end
    if turn then turn.id = nil end
  end
  if redis.call('ZCARD', K.running) > 0 or children_at_work() or hears_soon() then return end
  if S.status == 'stopping' then
    found('stop_stuck', A.session, 'it is to stop, and nothing runs', stop_if_idle)
  elseif S.status == 'active' and redis.call('ZCARD', K.live) == 0 and (load('turns', '') or {}).state == 'open' then
    found('session_stuck', A.session, 'it is active, and nothing of it is ready, running or parked')
  end
end

function look.at_clock()
  local due = redis.call('HGET', K.session, 'until')
  local looked_at = redis.call('ZSCORE', G.leases, member(''))
  local function look_then() redis.call('ZADD', G.leases, due, member('')) end
  if due and not looked_at then
    found('lease_lost', A.session, 'its time is limited, and nobody looks at that', look_then)
  elseif due and is_late(looked_at, due) then
    found('lease_late', A.session, 'its time is limited, and that is looked at long after it', look_then)
  end
end

function look.at_slots()
  local taken = {}
  for _, slot in ipairs(redis.call('ZRANGE', K.hinted, 0, -1)) do
    local queue, address = slot:match('^(.-)<(.*)$')
    local step = load('steps', address)
    if step and step.state == 'ready' then
      taken[queue] = true
    else
      found('slot_stray', A.session, address .. ' is not ready, and takes a slot of ' .. queue, function()
        redis.call('ZREM', K.hinted, slot)
        freed[queue] = true
      end)
    end
  end
  local queues = {}
  for _, line in ipairs(redis.call('ZRANGE', K.waiting, 0, -1)) do queues[line:match('^(.-)<')] = true end
  for queue in pairs(queues) do
    if S.status == 'active' and not taken[queue] and not freed[queue] then
      found('line_stuck', A.session, 'steps wait in line for ' .. queue .. ', and its slots are free',
        function() freed[queue] = true end)
    end
  end
end

function look.at_holds()
  for _, held in ipairs(redis.call('SMEMBERS', K.holding)) do
    if not redis.call('ZSCORE', G.holds, held) then
      found('hold_stray', A.session, 'it notes a hold that is not there: ' .. held, function() redis.call('SREM', K.holding, held) end)
    end
  end
  for _, id in ipairs(redis.call('HKEYS', K.hooks)) do
    if not redis.call('ZSCORE', G.hooks, A.member .. id) then
      found('webhook_lost', A.session, id .. ' is to be delivered, and nobody looks at it',
        function() redis.call('ZADD', G.hooks, now, A.member .. id) end)
    end
  end
end

for _, at in ipairs({look.at_indexes, look.at_owners, look.at_tree, look.at_turns, look.at_clock, look.at_slots,
  look.at_holds, look.at_deadlines}) do at() end
if A.repair and #answer.found > 0 then
  dispatch()
  flush()
end
return reply('looked')
