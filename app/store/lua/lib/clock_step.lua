-- The server's clock has stepped back. What began at a later time is treated as begun now, with its whole time left;
-- what is only to be looked at is looked at soon. So nothing waits until that time comes again.
local clock_step = {}

local SOON_MS = 60000
-- By state of a step: moves its times, and returns when it is due.
local adjust = {}

-- Moves the times of a step that began in the future.
local function move_times(tx, step, begun)
  local by = step[begun] and step[begun] - tx.now or 0
  if by <= 0 then return end
  step[begun] = tx.now
  if step.deadline then step.deadline = step.deadline - by end
  if step.due then step.due = step.due - by end
  if step.parked then step.parked.until_ms = step.parked.until_ms - by end
end

function adjust.running(tx, step)
  move_times(tx, step, 'since')
  if step.heard then step.heard = math.min(step.heard, tx.now) end
  step.lease = math.min(step.lease, tx.now + tx.args.grace_ms)
  return step.lease
end

function adjust.parked(tx, step)
  move_times(tx, step, 'since')
  if step.parked.on == 'child' then step.parked.until_ms = math.min(step.parked.until_ms, tx.now + SOON_MS) end
  return step.parked.until_ms
end

function adjust.ready(tx, step)
  move_times(tx, step, 'ready')
  if step.hinted then step.hinted = math.min(step.hinted, tx.now) end
  return step.due and step.due > tx.now and step.due or tx.now + tx.args.grace_ms
end

-- Moves the deadline of a session: at most its whole time is left.
local function adjust_session(tx, base)
  local values = redis.call('HMGET', base .. 'session', 'until', 'budget')
  local wall = values[2] and values[2] ~= '' and cjson.decode(values[2]).wall_ms
  if not values[1] or not wall then return nil end
  local due = math.min(tonumber(values[1]), tx.now + wall)
  redis.call('HSET', base .. 'session', 'until', string.format('%d', due))
  return due
end

-- Moves the times of a step or session in `leases` or `ready`, and returns when it is due.
local function adjust_member(tx, line)
  local session, root, address = line:match('^(.-)|(.-)|(.*)$')
  local base = tx.prefix .. '{' .. root .. '}:' .. session .. ':'
  if address == '' then return adjust_session(tx, base) end
  local text = redis.call('HGET', base .. 'steps', address)
  local step = text and cjson.decode(text)
  if not step or not adjust[step.state] then return nil end
  local due = adjust[step.state](tx, step)
  redis.call('HSET', base .. 'steps', address, cjson.encode(step))
  return due
end

-- When a command or webhook is due: soon. A deletion keeps its time.
local function soon(tx, line)
  return line:sub(1, 7) ~= 'forget|' and tx.now + SOON_MS or nil
end

-- Moves the lines of a list that are due in the future.
local function adjust_list(tx, key, due_of)
  for _, line in ipairs(redis.call('ZRANGEBYSCORE', key, '(' .. tx.clock, '+inf')) do
    local due = due_of(tx, line)
    if due then redis.call('ZADD', key, 'LT', due, line) end
  end
end

-- Moves all times that are in the future.
function clock_step.adjust(tx)
  adjust_list(tx, tx.shared.leases, adjust_member)
  adjust_list(tx, tx.shared.ready, adjust_member)
  adjust_list(tx, tx.shared.errands, soon)
  adjust_list(tx, tx.shared.hooks, soon)
  local called = redis.call('HGETALL', tx.shared.called)
  for i = 1, #called, 2 do
    if tonumber(called[i + 1]) > tx.now then redis.call('HSET', tx.shared.called, called[i], tx.clock) end
  end
  local grace = tonumber(redis.call('HGET', tx.shared.epoch, 'grace') or 0)
  redis.call('HSET', tx.shared.epoch, 'grace', string.format('%d', math.min(grace, tx.now + tx.args.grace_ms)))
end

return clock_step
