-- Somebody steers a session: stop, resume, exit, abort, rehome, poke. Racing controls have one winner.
-- A: verb, from (statuses that the table allows), seen?, nonce?, reason?, by?, fence?, again?, levels?, threads?, after?, as_of?, ended?,
--    max_iterations? and max_of? (the loop whose ceiling that is; else the outermost that are opened or, where
--    nothing runs anew, under way),
--    adopts? (on resume: program, document, routes, signature, source of another program, and afresh: what is not
--    done runs anew),
--    budget? (limits that change), address? (of the step whose child it is), child? (whose usage counts here),
--    unclaimed? (only while no step was ever claimed)
-- Returns: done (by the same nonce: again) | refused(status; spent: why, text) | changed(status) | quota(limit)
--    | moved (look again) | unknown
if not session() then return reply('unknown') end
-- A call that was repeated because its reply was lost may come after others' calls: the last few count.
local steered = redis.call('HGET', K.session, 'steered') or ''
if A.nonce and (' ' .. steered .. ' '):find(' ' .. A.nonce .. ' ', 1, true) then
  answer.status = S.status
  return reply('done')
end
if not is_as_seen() then answer.status = S.status return reply('changed') end
if A.child then use_of_child(A.child, A.address) end
local allowed = false
for _, status in ipairs(A.from) do allowed = allowed or status == S.status end
if A.ended and A.ended ~= redis.call('HGET', K.session, 'ended') then allowed = false end
if A.by then
  local step = load('steps', A.by)
  if not step or step.state ~= 'running' or step.fence ~= A.fence then
    answer.status = 'superseded'
    return reply('refused')
  end
end
-- What runs anew was worked out from what it was then.
if A.as_of and A.as_of ~= redis.call('HGET', K.session, 'updated') then
  answer.status = S.status
  return reply('moved')
end
-- It failed after the caller looked: what runs anew is not worked out yet.
if A.verb == 'resume' and S.status == 'failed' and not A.again then allowed = false end
if A.above then   -- its parent is obeyed as long as it still means it
  local above = redis.call('HGET', A.above.base .. 'session', 'status')
  local meant = false
  for _, status in ipairs(A.above.status) do meant = meant or status == above end
  allowed = allowed and meant
end
if A.verb == 'rehome' and (redis.call('ZCARD', K.running) > 0 or children_at_work()) then
  answer.status = 'at work'   -- its folder is held until that is handed back, or its lease is over
  return reply('refused')
end
-- Whether a step was ever claimed: one that was has a fence, or has left an outcome.
local function is_begun()
  for _, address in ipairs(redis.call('ZRANGE', K.live, 0, -1)) do
    if load('steps', address).fence then return true end
  end
  return redis.call('EXISTS', K.out) == 1
end
if A.unclaimed and (S.status ~= 'active' or is_begun()) then
  answer.status = 'begun'
  return reply('refused')
end
if A.verb == 'resume' and allowed and not A.above then
  answer.limit = no_room_again()
  if answer.limit then return reply('quota') end
  local over = spent_before(A.budget or {})
  if over then
    answer.status, answer.why, answer.text = S.status, over.what, said(over)
    return reply('refused')
  end
end
if not allowed then answer.status = S.status return reply('refused') end

local function to(status)
  set_status(status, A.reason)
  emit('session.status', '', {status = status, reason = A.reason, after = A.after})
end

-- Also where the root is closing already: the last word on how a session ends is the caller's.
local function end_root(verdict)
  local root = load('turns', '')
  if root.state == 'open' then return end_turn('', verdict, A.reason) end
  root.verdict, root.reason = verdict, A.reason
  save('turns', '')
  try_close('', root)
end

local function release_ready()
  for _, address in ipairs(redis.call('ZRANGE', K.live, 0, -1)) do
    if load('steps', address).state == 'ready' then table.insert(released, address) end
  end
end

-- A turn whose children ended while the session was stopped has nobody else to close it.
local function close_quiet()
  for _, id in ipairs(redis.call('ZRANGE', K.open, 0, -1)) do
    local turn = load('turns', id)
    if turn.state == 'closing' then try_close(id, turn) end
  end
end

-- Of a stopped session that goes on where it stands: the loops under way may turn so often now.
local function raise_ceilings()
  for _, id in ipairs(redis.call('ZRANGE', K.open, 0, -1)) do
    local turn = load('turns', id)
    if id ~= '' and block_of(id) == '' and not turn.each and turn.state == 'open' then
      turn.max = A.max_iterations
      save('turns', id)
    end
  end
end

-- A user who goes on with a child of what has ended means it: for the audit it is no orphan of that end.
local function go_alone()
  local above = not A.above and S.parent ~= '' and cjson.decode(S.parent).base
  local told = above and redis.call('HMGET', above .. 'session', 'status', 'ended')
  if told and (told[2] or not told[1]) then
    redis.call('HSET', K.session, 'alone', told[2] or '')
    redis.call('ZREM', G.errands, 'abort|' .. A.member)
  else
    redis.call('HDEL', K.session, 'alone')
  end
end

local verbs = {}
function verbs.stop()
  to('stopping')
  stop_clock()
  owe_children('stop')
  forget_hints()
  stop_if_idle()
end
function verbs.resume()
  local failed = S.status == 'failed'
  keep_on()
  go_alone()
  compare_work()
  owe_children('resume')
  if A.adopts then adopt(A.adopts) end
  redis.call('HDEL', K.session, 'ended', 'reason')
  A.reason = nil
  to('active')
  if A.after then redis.call('HSET', K.session, 'after', A.after) else redis.call('HDEL', K.session, 'after') end
  if A.max_iterations and not A.again then raise_ceilings() end
  if A.above then spent_before({}) end
  go_on_counting()
  if failed then anew.reopen_root() end
  release_ready()
  if A.again then anew.go_on(A.again, A.levels or {}, A.threads) end
  close_quiet()
end
function verbs.exit()
  to('exiting')
  redis.call('HSET', K.session, 'exit_by', A.by or '', 'exited_at', now)
  end_root('exit')
end
function verbs.abort()
  to('aborting')
  if load('turns', '').state == 'closed' then return end_session('aborted', A.reason) end
  end_root('abort')
end

-- A child has stopped or ended: what waited for that may be over.
function verbs.poke()
  close_around(A.address and block_of(A.address) or '')
  stop_if_idle()
end

-- Bind the session to another place: what is ready is hinted there, what runs settles where it is.
function verbs.rehome()
  forget_hints()
  free_all_locks()
  S.place, S.folder = A.place, A.folder
  redis.call('HSET', K.session, 'place', A.place, 'folder', A.folder,
    'signature', A.signature)
  redis.call('HDEL', K.session, 'resolved')
  emit('session.rehomed', '', {place = A.place})
  if S.status == 'active' then release_ready() end
end

verbs[A.verb]()
if A.nonce then
  local last = {A.nonce}
  for nonce in steered:gmatch('%S+') do
    if #last < 8 then table.insert(last, nonce) end
  end
  redis.call('HSET', K.session, 'steered', table.concat(last, ' '))
end
dispatch()
flush()
answer.status = S.status
return reply('done')
