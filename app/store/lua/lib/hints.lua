-- Hints: messages that tell workers of ready steps. Each session has a window for each queue and for each limited key:
-- so many of its steps are hinted, the others wait in line.
--- @requires addresses, events, changes, locks/limits, programs, records
local hints = {}

local HINT_MS = 3000     -- until a hint is sent again that no worker took, doubled each time up to hints.MAX_MS
hints.MAX_MS = 48000
local LONG = 4             -- hints without a worker after which a person should look at the session

local LOOK_MS = 10000    -- between two looks of the sweep at a local step, for which no message is sent

-- The queue of a step, at the session's place if it has one; that of a local step is the session's own.
function hints.queue_of(tx, r)
  if r.queue == 'local' then return 'local@' .. tx.args.session end
  return tx.session.place ~= '' and r.queue .. '@' .. tx.session.place or r.queue
end

-- Adds a hint to the reply, and the time at which it is sent again to `ready`.
function hints.send(tx, address, step, r, queue)
  step.hinted = tx.now
  if (step.hints or 0) >= LONG then changes.call_person(tx, true) end
  redis.call('ZADD', tx.keys.hinted, 0, queue .. '<' .. address)
  if r.queue == 'local' then return hints.look_again(tx, address) end
  local wait = math.min(HINT_MS * 2 ^ (step.hints or 0), hints.MAX_MS)
  redis.call('ZADD', tx.shared.ready, tx.now + wait, addresses.member(tx, address))
  table.insert(tx.reply.hints, {queue = queue, address = address, action = r.action,
    path = addresses.path_of(tx, address), label = r.label, priority = tonumber(tx.session.priority)})
end

-- Lets the sweep look at a local step: its session is stopped if no worker claims its steps.
function hints.look_again(tx, address)
  redis.call('ZADD', tx.shared.ready, tx.now + LOOK_MS, addresses.member(tx, address))
end

-- Whether the session has no free slot in its window of a queue or a limited key.
local function window_full(tx, queue)
  return redis.call('ZLEXCOUNT', tx.keys.hinted, addresses.range_of(queue .. '<')) >= tonumber(tx.session.window)
end

-- Whether a step waits for its time: a retry.
function hints.is_early(tx, step)
  return step.due and step.due > tx.now
end

-- Takes the step's places in the windows of its limited keys. Returns the key whose window is full; nil if the step
-- has its places. A step that holds a ticket `must` have them, also beyond the window.
function hints.take_places(tx, address, step, r, must)
  if step.places then return nil end
  local places = {}
  for _, key in ipairs(r.limits or {}) do
    if limits.is_limited(tx, key) then
      if not must and window_full(tx, key) then return key end
      table.insert(places, key)
    end
  end
  if #places == 0 then return nil end
  for _, key in ipairs(places) do redis.call('ZADD', tx.keys.hinted, 0, key .. '<' .. address) end
  step.places = places
  records.save(tx, 'steps', address)
end

-- Hints a ready step of an active session, or puts it in line for a hint, or waits for its time.
function hints.offer(tx, address)
  local step, r = records.load(tx, 'steps', address), programs.route_of(tx, address)
  local queue = hints.queue_of(tx, r)
  if hints.is_early(tx, step) then
    redis.call('ZADD', tx.shared.ready, step.due, addresses.member(tx, address))
    return
  end
  local full = hints.take_places(tx, address, step, r) or window_full(tx, queue) and queue
  if full then
    local order = string.format('%012d', redis.call('HINCRBY', tx.keys.session, 'order', 1))
    redis.call('ZADD', tx.keys.waiting, 0, full .. '<' .. order .. '<' .. address)
    redis.call('ZREM', tx.shared.ready, addresses.member(tx, address))
  else
    hints.send(tx, address, step, r, queue)
    records.save(tx, 'steps', address)
  end
end

-- Takes back the hint of a step, and frees its slot of the window; also those of limited keys, unless it `stays` in
-- their lines.
function hints.withdraw(tx, address, stays)
  local step, queue = records.load(tx, 'steps', address), hints.queue_of(tx, programs.route_of(tx, address))
  redis.call('ZREM', tx.shared.ready, addresses.member(tx, address))
  if redis.call('ZREM', tx.keys.hinted, queue .. '<' .. address) == 1 then tx.freed[queue] = true end
  if stays or not step.places then return end
  for _, key in ipairs(step.places) do
    if redis.call('ZREM', tx.keys.hinted, key .. '<' .. address) == 1 then tx.freed[key] = true end
  end
  step.places = nil
  records.save(tx, 'steps', address)
end

-- Whether a step in line for a hint still needs it: it was not cancelled, is no retry that waits for its time, and has
-- no hint (it was in line twice).
function hints.is_next(tx, address, name)
  local step = records.load(tx, 'steps', address)
  return step.state == 'ready' and not hints.is_early(tx, step)
    and not redis.call('ZSCORE', tx.keys.hinted, name .. '<' .. address)
end

-- Gives free slots of a queue or limited key to the next steps in line; such a step may then wait for another window.
function hints.top_up(tx, name)
  local low, high = addresses.range_of(name .. '<')
  while not window_full(tx, name) do
    local line = redis.call('ZRANGEBYLEX', tx.keys.waiting, low, high, 'LIMIT', 0, 1)[1]
    if not line then return end
    redis.call('ZREM', tx.keys.waiting, line)
    local address = line:match('<%d+<(.*)$')
    if hints.is_next(tx, address, name) then hints.offer(tx, address) end
  end
end

-- Makes a step ready; `dispatch` grants or hints it at the end of the transition.
function hints.make_ready(tx, address, step)
  step.state, step.ready = 'ready', tx.now
  records.store(tx, 'steps', address, step)
  redis.call('ZADD', tx.keys.live, 0, address)
  events.emit(tx, 'step.ready', address)
  table.insert(tx.released, address)
end

return hints
