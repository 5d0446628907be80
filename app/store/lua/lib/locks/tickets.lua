-- Tickets: the lines of steps that wait for a limit or a folder (named locks have their own).
-- A ticket is `lock<order<member` in a sorted set ordered by name. The first digit of the order is the priority
-- (0 goes first), the others count the tickets.
-- A ticket is called when its step may take the lock. `called` holds when that was, by `lock<member`; a negative time
-- is the time until which the ticket is not called again.
--- @requires addresses, records
local tickets = {}

tickets.CALLED_MS = 5000      -- how long a freed lock is kept for the ticket that was called
local NEVER_MS = 86400000     -- a passed-over ticket is not called again before its step has come
local LINE_PART = 16          -- tickets that are read at once: most often the first of them decide

-- Calls look(line) for the tickets of a lock in order, until `look` returns true; behind `from` if that is given.
function tickets.each(tx, lock, look, from)
  local low, high = addresses.range_of(lock .. '<')
  if from then low = '(' .. from end
  repeat
    local lines = redis.call('ZRANGEBYLEX', tx.shared.tickets, low, high, 'LIMIT', 0, LINE_PART)
    for _, line in ipairs(lines) do
      if look(line) then return end
    end
    low = '(' .. (lines[#lines] or '')
  until #lines < LINE_PART
end

-- The step that a ticket belongs to.
function tickets.member_of(line)
  return line:match('<%d+<(.*)$')
end

-- The order of a ticket in its line.
function tickets.order_of(line)
  return line:match('^.-<(%d+)<') or ''
end

-- The field of a call in `called`: it names the step, since a passed-over ticket gets another line.
function tickets.called_field(lock, who)
  return lock .. '<' .. who
end

-- When a step's ticket was called; 0 if it was not.
function tickets.called_at(tx, lock, who)
  return tonumber(redis.call('HGET', tx.shared.called, tickets.called_field(lock, who)) or 0)
end

-- Appends a ticket to the line of a lock, behind those of its priority.
local function take(tx, lock, who, priority)
  local order = string.format('%d%014d', priority, redis.call('HINCRBY', tx.shared.epoch, 'tickets', 1))
  local line = lock .. '<' .. order .. '<' .. who
  redis.call('ZADD', tx.shared.tickets, 0, line)
  return line
end

-- Removes a ticket and its call. Returns whether it was there.
local function drop_line(tx, line)
  redis.call('HDEL', tx.shared.called, tickets.called_field(line:match('^(.-)<'), tickets.member_of(line)))
  return redis.call('ZREM', tx.shared.tickets, line) == 1
end

-- Moves a ticket that was called and not used to the end of its line. Its hint is out, so it is not called again, and
-- nothing is kept for it, until its step has come. Returns the new ticket.
function tickets.pass_over(tx, line)
  local lock, who = line:match('^(.-)<'), tickets.member_of(line)
  drop_line(tx, line)
  redis.call('HSET', tx.shared.called, tickets.called_field(lock, who), -tx.now - NEVER_MS)
  return take(tx, lock, who, line:match('^.-<(%d)'))
end

-- Whether one of the `free` places of a lock is left for a step. Tickets before it that were called keep a place for
-- a while. A ticket that was not called waits for another lock too: keeping a place for it could be a deadlock.
function tickets.has_turn(tx, lock, free, who)
  local passed = {}
  tickets.each(tx, lock.name, function(line)
    if tickets.member_of(line) == who then return true end
    local called = tickets.called_at(tx, lock.name, tickets.member_of(line))
    if called > 0 and tx.now - called > tickets.CALLED_MS then
      table.insert(passed, line)
    elseif called > 0 then
      free = free - 1
    end
    return free <= 0
  end)
  for _, line in ipairs(passed) do tickets.pass_over(tx, line) end
  return free > 0
end

-- Removes the tickets of a step. A ticket that was passed over has moved since the step stored it.
function tickets.drop(tx, address)
  local step = records.load(tx, 'steps', address)
  for _, name in ipairs(step.waits or {}) do
    local given = (step.tickets or {})[name]
    if not (given and drop_line(tx, given)) then
      tickets.each(tx, name, function(line)
        return tickets.member_of(line) == addresses.member(tx, address) and drop_line(tx, line)
      end, given)
    end
  end
  redis.call('HDEL', tx.shared.waits, addresses.member(tx, address))
  step.waits, step.blocked, step.paced, step.tickets = nil, nil, nil, nil
end

-- The locks that a step waits for.
function tickets.waits_of(tx, who)
  return cjson.decode(redis.call('HGET', tx.shared.waits, who) or '[]')
end

-- Gives a step a ticket for each lock that it waits for, also for one that got a limit only since then.
function tickets.enqueue(tx, address, step, wanted)
  step.waits, step.tickets = step.waits or {}, step.tickets or {}
  for _, lock in ipairs(wanted) do
    if lock.take ~= nil and not step.tickets[lock.name] then
      step.tickets[lock.name] = take(tx, lock.name, addresses.member(tx, address), tonumber(tx.session.priority) or 5)
      table.insert(step.waits, lock.name)
    end
  end
  redis.call('HSET', tx.shared.waits, addresses.member(tx, address), cjson.encode(step.waits))
end

-- Forgets the calls of a step.
function tickets.forget_calls(tx, address, names)
  for _, name in ipairs(names) do
    redis.call('HDEL', tx.shared.called, tickets.called_field(name, addresses.member(tx, address)))
  end
end

-- Whether one of a step's tickets has been called.
function tickets.was_called(tx, address, names)
  for _, name in ipairs(names) do
    local at = tickets.called_at(tx, name, addresses.member(tx, address))
    if at > 0 and at <= tx.now then return true end
  end
  return false
end

return tickets
