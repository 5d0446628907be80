-- Making steps ready, and telling workers of them: a window of hints per session and queue.
local function queue_of(r)
  return S.place ~= '' and r.queue .. '@' .. S.place or r.queue
end

local function hint(address, step, r, queue)
  step.hinted = now
  redis.call('ZADD', K.hinted, 0, queue .. '<' .. address)
  local wait = math.min(HINT_MS * 2 ^ (step.hints or 0), HINT_MAX_MS)
  redis.call('ZADD', G.ready, now + wait, member(address))
  table.insert(answer.hints, {queue = queue, address = address, action = r.action,
    path = path_of(address), label = r.label, priority = tonumber(S.priority)})
end

local function window_full(queue)
  return redis.call('ZLEXCOUNT', K.hinted, range_of(queue .. '<')) >= tonumber(S.window)
end

local function early(step)
  return step.due and step.due > now
end

-- A session has a window for each limited key too: so many of its steps are offered or wait for it in the line of
-- all sessions, the others wait here. Returns the key whose window is full; nil where the step has its places,
-- also those beyond a window where it `must`: it has a ticket.
local function full_for(address, step, r, must)
  if step.places then return nil end
  local places = {}
  for _, key in ipairs(r.limits or {}) do
    if is_limited(key) then
      if not must and window_full(key) then return key end
      table.insert(places, key)
    end
  end
  if #places == 0 then return nil end
  for _, key in ipairs(places) do redis.call('ZADD', K.hinted, 0, key .. '<' .. address) end
  step.places = places
  save('steps', address)
end

-- A ready step of an active session gets a hint, or a place in the line for one, or its time to wait for.
local function offer(address)
  local step, r = load('steps', address), route(path_of(address))
  local queue = queue_of(r)
  if early(step) then
    redis.call('ZADD', G.ready, step.due, member(address))
    return
  end
  local full = full_for(address, step, r) or window_full(queue) and queue
  if full then
    local order = string.format('%012d', redis.call('HINCRBY', K.session, 'order', 1))
    redis.call('ZADD', K.waiting, 0, full .. '<' .. order .. '<' .. address)
    redis.call('ZREM', G.ready, member(address))
  else
    hint(address, step, r, queue)
    save('steps', address)
  end
end

-- The step no longer waits to be claimed, and its slot of the window is free; those of limited keys too, unless
-- it stays in their lines.
local function withdraw(address, stays)
  local step, queue = load('steps', address), queue_of(route(path_of(address)))
  redis.call('ZREM', G.ready, member(address))
  if redis.call('ZREM', K.hinted, queue .. '<' .. address) == 1 then freed[queue] = true end
  if stays or not step.places then return end
  for _, key in ipairs(step.places) do
    if redis.call('ZREM', K.hinted, key .. '<' .. address) == 1 then freed[key] = true end
  end
  step.places = nil
  save('steps', address)
end

-- Who was cancelled since it came into the line, or failed and has a time to wait for, is passed over;
-- so is whose hint is out: it came into the line twice.
local function is_next(address, name)
  local step = load('steps', address)
  return step.state == 'ready' and not early(step)
    and not redis.call('ZSCORE', K.hinted, name .. '<' .. address)
end

-- Free slots of a queue or a limited key go to those next in line; who needs one of another too may wait for that.
local function top_up(name)
  local low, high = range_of(name .. '<')
  while not window_full(name) do
    local line = redis.call('ZRANGEBYLEX', K.waiting, low, high, 'LIMIT', 0, 1)[1]
    if not line then return end
    redis.call('ZREM', K.waiting, line)
    local address = line:match('<%d+<(.*)$')
    if is_next(address, name) then offer(address) end
  end
end

local function make_ready(address, step)
  step.state, step.ready = 'ready', now
  store('steps', address, step)
  redis.call('ZADD', K.live, 0, address)
  emit('step.ready', address)
  table.insert(released, address)
end

-- What the turns around a step go on from, where a session was resumed from an earlier point.
local function origins_of(address)
  local found
  for _, around in ipairs(turns_around(block_of(address))) do
    local id = around.id
    local turn = load('turns', id)
    while turn and turn.origin do
      found = found or {}
      found[id], id = turn.origin, turn.origin.run
      turn = load('turns', id)
    end
  end
  return found
end

-- What an attempt is told of its grant; its conversation is where the last outcome left it.
local function terms(address, step)
  local r = route(path_of(address))
  local talk = r.talk
  return {address = address, fence = step.fence, nonce = step.nonce, attempt = step.attempt,
    lease = step.lease, deadline = step.deadline, lost = step.lost or 0, failed = step.failed or 0,
    failure = step.failure, thread = talk and redis.call('HGET', K.threads, talk) or nil,
    origins = origins_of(address),
    compare = r.folder and S.compare ~= '' or nil}
end

local function grant(address, nonce)
  local step, r = load('steps', address), route(path_of(address))
  step.state, step.nonce, step.owner = 'running', nonce, A.worker
  step.fence, step.attempt = (step.fence or 0) + 1, (step.attempt or 0) + 1
  step.since, step.due, step.hinted, step.hints = now, nil, nil, nil
  step.told, step.told_in, step.told_out = nil, nil, nil
  step.heard, step.deadline = nil, now + r.timeout_ms
  step.lease = math.min(now + A.lease_ms, step.deadline + GRACE_MS)
  save('steps', address)
  redis.call('ZADD', K.running, 0, address)
  redis.call('ZADD', G.leases, step.lease, member(address))
  local told = {fence = step.fence, attempt = step.attempt, worker = A.worker}
  if r.step then told.label, told.index, told.total = r.label, r.step[1], r.step[2] end
  emit('step.claimed', address, told)
  return terms(address, step)
end

-- Whether a step may go to who released it: it is quick, and needs no lock that it has not got.
local function goes_along(address)
  local r = route(path_of(address))
  return r.quick and has_folder(address, r)
end

-- A settler who takes more than was released goes on with the quick steps that stand in line for a
-- slot of its own queue: they are not hinted, so nobody else comes for them. Never with its own step
-- once more: the answer to the attempt that it settled could not be given again.
local function take_from_line(take)
  local queue = queue_of(route(path_of(A.address)))
  local low, high = range_of(queue .. '<')
  while #take > 0 do
    local line = redis.call('ZRANGEBYLEX', K.waiting, low, high, 'LIMIT', 0, 1)[1]
    local address = line and line:match('<%d+<(.*)$')
    if not address or address == A.address or not goes_along(address) then return end
    redis.call('ZREM', K.waiting, line)
    if is_next(address, queue) then
      table.insert(answer.grants, grant(address, table.remove(take, 1)))
    end
  end
end

-- What this transition released: quick steps go to the caller while it takes them, the rest is offered.
local function dispatch()
  end_if_spent()
  if S.status ~= 'active' then return end
  for name in pairs(freed) do top_up(name) end
  local take = A.take or {}
  for _, address in ipairs(released) do
    local step = load('steps', address)
    if step.state == 'ready' then
      -- Not to its own settler: the answer to that attempt could not be given again.
      local theirs = address ~= A.address and not early(step)
      if theirs and #take > 0 and goes_along(address) then
        local given = grant(address, table.remove(take, 1))
        table.insert(answer.grants, given)
      else
        offer(address)
      end
    end
  end
  if #take > 0 then take_from_line(take) end
  ring_if_waiting()
end
