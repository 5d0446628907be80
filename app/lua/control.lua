-- Somebody steers a session: stop, resume, exit or abort. Racing controls have one winner.
-- A: verb, from (statuses that the table allows), reason?, by?, fence?, again?, ended?, max_iterations?
-- Returns: done | refused(status)
if not session() then return reply('unknown') end
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
if not allowed then answer.status = S.status return reply('refused') end

local function to(status)
  set_status(status, A.reason)
  emit('session.status', '', {status = status, reason = A.reason})
end

local function run_anew()
  local root = load('turns', '')
  root.state, root.verdict, root.reason, root.ended = 'open', nil, nil, nil
  save('turns', '')
  redis.call('ZADD', K.open, 0, '')
  for _, node in ipairs(A.again) do redis.call('HSET', K.runs, node.name, run_of('', node.name) + 1) end
  for _, node in ipairs(A.again) do
    local join = turn_address('', node.name, run_of('', node.name))
    local full = route(node.name).needs == 0
    for _, need in ipairs(node.done) do full = joined(join, need, route(node.name).needs) end
    if full then fire('', node.name) end
  end
end

local verbs = {}
function verbs.stop()
  to('stopping')
  owe_children('stop')
  forget_hints()
  stop_if_idle()
end
function verbs.resume()
  local failed = S.status == 'failed'
  keep_on()
  owe_children('resume')
  redis.call('HDEL', K.session, 'ended', 'reason')
  A.reason = nil
  to('active')
  if failed then return run_anew() end
  for _, address in ipairs(redis.call('ZRANGE', K.live, 0, -1)) do
    if load('steps', address).state == 'ready' then table.insert(released, address) end
  end
end
function verbs.exit()
  to('exiting')
  redis.call('HSET', K.session, 'exit_by', A.by or '', 'exited_at', now)
  end_turn('', 'exit', A.reason)
end
function verbs.abort()
  to('aborting')
  local root = load('turns', '')
  if root.state == 'closed' then return end_session('aborted', A.reason) end
  if root.state == 'open' then return end_turn('', 'abort', A.reason) end
  root.verdict, root.reason = 'abort', A.reason
  save('turns', '')
  try_close('', root)
end

verbs[A.verb]()
dispatch()
flush()
answer.status = S.status
return reply('done')
