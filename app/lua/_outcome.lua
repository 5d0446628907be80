-- What an outcome does: the one way in which a step ends, whoever says so.

-- Whether every turn around the block still lets steps start.
local function turns_open(block)
  for _, around in ipairs(turns_around(block)) do
    local turn = load('turns', around.id)
    if not turn or turn.state ~= 'open' then return false end
    if around.iteration > 0 and turn.iteration ~= around.iteration then return false end
  end
  return true
end

-- A step ended below a turn that is ending: the outermost one closes when nothing runs below it.
local function close_around(block)
  local closing
  for _, around in ipairs(turns_around(block)) do
    local turn = load('turns', around.id)
    if turn and turn.state == 'closing' then closing = around.id end
  end
  if closing then try_close(closing, load('turns', closing)) end
end

-- What a state stands in; a step that runs or is parked is neither hinted nor in line.
local function leave(address, state)
  if state ~= 'running' and state ~= 'parked' then withdraw(address) end
  free_locks(address)
  if state ~= 'parked' then redis.call('ZREM', K.running, address) end
  if state ~= 'running' then redis.call('ZREM', K.parked, address) end
  redis.call('ZREM', K.live, address)
  redis.call('ZREM', G.leases, member(address))
end

local function record(address, step, word, verdict, reason, text)
  local before = step.state
  step.state, step.verdict, step.reason, step.ended = word, verdict, reason, now
  step.lease, step.deadline, step.parked, step.due, step.failure = nil, nil, nil, nil, nil
  save('steps', address)
  leave(address, before)
  if ARGV[3] ~= '' then redis.call('HSET', K.out, address, ARGV[3]) end
  if ARGV[3] == '' and reason then
    redis.call('HSET', K.out, address, cjson.encode({word = word, reason = reason, text = reason.text}))
  end
  note_use('steps', count('steps'))
  spend_step()
  local used = A.usage or {}
  emit('step.settled', address, {word = word, verdict = verdict, reason = reason, text = text,
    fence = step.fence, cost_usd = used.cost_micros and used.cost_micros / 1000000,
    input_tokens = used.tokens_in, output_tokens = used.tokens_out})
end

local ENDING = {judge = {accept = 'accepted', terminate = 'terminated'},
  ['break'] = {accept = 'break', terminate = 'terminated'}, agent = {terminate = 'terminated'}}

local function release_after(address, step, r, word, verdict, reason)
  local block = block_of(address)
  local each = address:match('#(%d+)$')
  if word == 'failed' and r.critical then
    local cause = {code = reason and reason.code or 'failed_step', at = address,
      text = reason and reason.text or '', beneath = reason and reason.beneath}
    return fail_block(block, cause)
  end
  if word == 'failed' and r.action ~= 'check' then
    local ended = r.action == 'child' and reason and reason.text   -- who was aborted has not failed
    local how = ended and ' was passed over' or ' failed and was passed over'
    warn_of(address, r, how, ended or address == A.address and A.failure or reason and reason.text)
  end
  if r.ends == 'iteration' and verdict == 'accept' then   -- nothing runs beside it
    return iteration_done(turn_of(block), iteration_of(block), {code = 'condition', at = address,
      text = 'the rest of the iteration was passed over'})
  end
  local code = verdict and (ENDING[r.action] or {})[verdict]
  if code then
    return end_turn(turn_of(block), verdict,
      reason or {code = code, at = address, text = A.text or ''})
  end
  if each then return arrive_item(block, each) end
  arrive(block, name_of(address))
end

-- The step that a for_each needs writes its width, and what each item works on.
local function expand(node, items)
  redis.call('HSET', K.widths, node, #items)
  for item, text in ipairs(items) do redis.call('HSET', K.items, node .. '#' .. item, text) end
end

-- The outcome of a running or parked step is recorded; what it releases happens here, once.
local function finish(address, step, word, verdict, reason, text)
  local block = block_of(address)
  local open = turns_open(block)
  record(address, step, word, verdict, reason, text)
  for name, items in pairs(A.expand or {}) do expand(within(block, name), items) end
  if open then
    release_after(address, step, route(path_of(address)), word, verdict, reason)
  else
    close_around(block)
  end
  stop_if_idle()
end

local SAID_MAX = 5000         -- records of the transcript that a session keeps, the last of them

-- Returns the number of a new record; how many were dropped is counted, so that numbers go on.
local function keep_said(entry)
  local length = redis.call('RPUSH', K.transcript, entry)
  local dropped = tonumber(redis.call('HGET', K.session, 'unsaid') or 0)
  if length > SAID_MAX then
    redis.call('LTRIM', K.transcript, length - SAID_MAX, -1)
    count('unsaid', length - SAID_MAX)
  end
  return dropped + length
end

-- What was said goes into the one transcript of the session, in the order in which outcomes came.
local function write_transcript(address)
  for n = 5, #ARGV do
    local entry = ARGV[n]:sub(1, -2) .. string.format(',"at_ms":%d}', now)
    local said = cjson.decode(entry)
    local beginning = said.text:sub(1, 200):gsub('[\192-\255][\128-\191]*$', '')   -- whole characters
    emit('transcript.added', address, {seq = keep_said(entry), role = said.role,
      label = said.label, agent = said.agent, identifier = said.identifier, text = beginning})
  end
end

-- Where a conversation goes on is kept with the outcome that says so; nothing instead forgets it.
local function keep_thread(address)
  local talk = route(path_of(address)).talk
  if not talk or not A.thread then return end
  if A.thread.kept then
    redis.call('HSET', K.threads, talk, A.thread.kept)
  else
    redis.call('HDEL', K.threads, talk)
  end
end

local function again(address, step, due)
  leave(address, step.state)
  step.lease, step.deadline, step.parked, step.due = nil, nil, nil, due
  make_ready(address, step)
end

-- Tried again at a time to come.
local function come_back(address, step, reason, wait)
  emit('step.retried', address, {reason = reason, wait_ms = wait, fence = step.fence})
  again(address, step, math.floor(now + wait))
  stop_if_idle()
end

-- Whoever was asked is busy: that is no failed attempt, and so often it is granted beside those.
local function come_back_if_busy(address, step, reason)
  local before = step.busy or 0
  if not A.busy or before >= A.busy.tries or not turns_open(block_of(address)) then return false end
  step.busy = before + 1
  come_back(address, step, reason, A.busy.after_ms or math.min(1000 * 2 ^ before, 60000))
  return true
end

-- An attempt failed: tried again by the step's policy, or its end.
local function fail_attempt(address, step, reason, retryable, text)
  if come_back_if_busy(address, step, reason) then return end
  local r = route(path_of(address))
  step.failed = (step.failed or 0) + 1
  tally(address, 'attempts_failed')
  if not (retryable and step.failed <= r.retries and turns_open(block_of(address))) then
    return finish(address, step, 'failed', A.verdict, reason, text)
  end
  local wait = math.min(r.backoff_ms * 2 ^ (step.failed - 1), r.max_backoff_ms)
  step.failure = A.failure or (reason and reason.text)   -- the next attempt is told
  come_back(address, step, reason, wait * (A.jitter or 1))
end

-- An attempt is handed back and not counted, or ends with the turn that it stands in.
local function hand_back(address, step, kind, fields)
  fields.fence = step.fence
  emit(kind, address, fields)
  if turns_open(block_of(address)) then
    again(address, step)
  else
    cancel(address, step)
    close_around(block_of(address))
  end
  stop_if_idle()
end
