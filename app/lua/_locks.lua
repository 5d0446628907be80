-- Locks: what a step must hold to run. All or nothing, first come first served, and nobody waits in a worker.
-- A folder is held by the turn around its doer until that closes, and shared by the sessions of one tree; a
-- limited key and a conversation by an attempt while it runs.
local is_limited, has_folder, each_ticket, ticket_of, drop_tickets, call_next, give_up_turn, called_until
local take_locks, look_at_rates, free_locks, free_locks_of_turn, free_all_locks
do   -- a script may have 200 locals: the others are seen here alone
local RETRY_MS = 15000        -- a step that waits for a lock is looked at this often, should its call get lost
local CALLED_MS = 5000        -- how long a freed lock is kept for the ticket that was called
local AGAIN_MS = 1000         -- who came when it was called, and was refused, is not called again before this
local NEVER_MS = 86400000     -- who did not come: before it has
local LOOK_MS = 300000        -- whoever waits for a slot alone is called for it; this is for calls that were lost
local LATE_MS = 3000          -- how late a slot of a rate may be taken, and is still that slot: sweeps are a second apart

local function is_one_s(name)
  return name:sub(1, 7) == 'folder:' or name:sub(1, 5) == 'talk:'
end

-- What a key is limited to; asked for again and again in one transition.
local function limit_of(key)
  if is_one_s(key) then return nil end
  local known = rooms.limits[key]
  if known == nil then
    local text = redis.call('HGET', G.limits, key)
    known = text and cjson.decode(text) or false
    rooms.limits[key] = known
  end
  return known or nil
end

function is_limited(key)
  return limit_of(key) ~= nil
end

-- How many may hold a lock now: one a folder or a conversation; a key as its limit says, any without one.
local function room_of(name)
  if is_one_s(name) then return 1 end
  local limit = limit_of(name)
  return limit and limit.concurrency or math.huge
end

-- A limit of rate: a key has one slot a gap, each given to who begins with it, and to nobody before that. What
-- nobody came for in time has passed: slots do not add up while there is no work, or no worker.
-- Returns how many slots there are by now, and when the next of them is or was.
local function slots_of(name)
  local limit = limit_of(name)
  if not (limit and limit.per_minute) then return math.huge, now end
  local gap = 60000 / limit.per_minute
  local slot = tonumber(redis.call('HGET', G.rates, name) or 0)
  if slot > now + gap + 1 then return 1, now end   -- the clock has stepped back
  if slot > now then return 0, slot end
  if now - slot > LATE_MS then return 1, now end
  return math.floor((now - slot) / gap) + 1, slot
end

local function take_slot(name)
  local _, slot = slots_of(name)
  redis.call('HSET', G.rates, name, string.format('%.3f', slot + 60000 / limit_of(name).per_minute))
end

-- The locks of a step: {name, room, owner}; owner is the turn around it for a folder, else the attempt.
local function locks_of(address, r)
  local found = {}
  if r.folder and S.folder ~= '' then
    local owner = member(turn_of(block_of(address)))
    table.insert(found, {name = S.folder, room = 1, owner = owner, turn = true})
  end
  if r.talk then
    table.insert(found, {name = 'talk:' .. A.session .. ':' .. r.talk, room = 1, owner = member(address)})
  end
  for _, key in ipairs(r.limits or {}) do
    local limit = limit_of(key)
    if limit and (limit.concurrency or limit.per_minute) then
      table.insert(found, {name = key, room = limit.concurrency or math.huge, rate = limit.per_minute,
        owner = member(address)})
    end
  end
  return found
end

-- A line or a holder begins with its session and the root of that: session|root|address.
local function tree_of(who)
  return who:match('^(.-)|(.-)|')
end

-- Whether who stands in a line has room in it. A folder is one session's, and that one's whole tree's: a
-- session shares it with its parent, its children and their children, never with another turn of its own.
local function has_room(name, who)
  local low, high = range_of(name .. '<')
  if name:sub(1, 7) ~= 'folder:' then return redis.call('ZLEXCOUNT', G.holds, low, high) < room_of(name) end
  local session, root = tree_of(who)
  for _, held in ipairs(redis.call('ZRANGEBYLEX', G.holds, low, high)) do
    local other, their_root = tree_of(held:sub(#name + 2))
    if their_root ~= root or other == session then return false end
  end
  return true
end

-- Whether a folder is held by a turn of this session that the step lies below.
local function lent(lock, address)
  if not lock.turn then return false end
  for _, around in ipairs(turns_around(block_of(address))) do
    if redis.call('ZSCORE', G.holds, lock.name .. '<' .. member(around.id)) then return true end
  end
  return false
end

-- Whether a step needs no folder, or the turn around it holds it already.
function has_folder(address, r)
  if not r.folder or S.folder == '' then return true end
  return lent({name = S.folder, turn = true}, address)
end

-- Looks at the tickets of a lock in order, lines name<order<member, until `look` has seen enough. Where many
-- wait, most often the first of them decides: the line is read in parts, behind `from` where that is given.
local LINE_PART = 16
function each_ticket(lock, look, from)
  local low, high = range_of(lock .. '<')
  if from then low = '(' .. from end
  repeat
    local lines = redis.call('ZRANGEBYLEX', G.tickets, low, high, 'LIMIT', 0, LINE_PART)
    for _, line in ipairs(lines) do
      if look(line) then return end
    end
    low = '(' .. (lines[#lines] or '')
  until #lines < LINE_PART
end

function ticket_of(line)
  return line:match('<%d+<(.*)$')
end

-- Whoever is called is called by name: who is passed over stands further back, under another line.
local function called_as(lock, who)
  return lock .. '<' .. who
end

-- A line is in the order of priority, and in that of coming. A digit says which priority; 0 goes first.
local function take_ticket(lock, who, priority)
  local order = string.format('%d%014d', priority, redis.call('HINCRBY', G.epoch, 'tickets', 1))
  local line = lock .. '<' .. order .. '<' .. who
  redis.call('ZADD', G.tickets, 0, line)
  return line
end

local function drop_ticket(line)
  redis.call('HDEL', G.called, called_as(line:match('^(.-)<'), ticket_of(line)))
  return redis.call('ZREM', G.tickets, line) == 1
end

-- Who was called and did not come goes to the end of the line; its hint is out, so it is not called again
-- before it has come, and nothing is kept for it until then.
local function pass_over(line)
  local lock, who = line:match('^(.-)<'), ticket_of(line)
  drop_ticket(line)
  redis.call('HSET', G.called, called_as(lock, who), -now - NEVER_MS)
  return take_ticket(lock, who, line:match('^.-<(%d)'))
end

-- A ticket that was called keeps room for a while. One that was not called waits for another of its locks too: to
-- keep room for it could lock all out for ever.
local function its_turn(lock, free, who)
  local passed = {}
  each_ticket(lock.name, function(line)
    if ticket_of(line) == who then return true end
    local called = tonumber(redis.call('HGET', G.called, called_as(lock.name, ticket_of(line))) or 0)
    if called > 0 and now - called > CALLED_MS then
      table.insert(passed, line)
    elseif called > 0 then
      free = free - 1
    end
    return free <= 0
  end)
  for _, line in ipairs(passed) do pass_over(line) end
  return free > 0
end

-- A step knows its tickets as they were given; one that was passed over stands further back since.
function drop_tickets(address)
  local step = load('steps', address)
  for _, name in ipairs(step.waits or {}) do
    local given = (step.tickets or {})[name]
    if not (given and drop_ticket(given)) then
      each_ticket(name, function(line) return ticket_of(line) == member(address) and drop_ticket(line) end, given)
    end
  end
  redis.call('HDEL', G.waits, member(address))
  step.waits, step.blocked, step.paced, step.tickets = nil, nil, nil, nil
end

-- When a ticket's holder can have all locks that it waits for: now, or when the slot of a rate comes; nil where
-- one of them has no room.
local function free_at(who)
  local at = now
  for _, name in ipairs(cjson.decode(redis.call('HGET', G.waits, who) or '[]')) do
    if not has_room(name, who) then return nil end
    local _, slot = slots_of(name)
    at = math.max(at, math.ceil(slot))
  end
  return at
end

-- Who is called for a slot to come is looked at by then, and keeps it as others keep room. Returns whether
-- something is kept for it: nothing is for who was passed over or refused, for a while.
local function call(name, who, at)
  local before = tonumber(redis.call('HGET', G.called, called_as(name, who)))
  if before and before < 0 and now < -before then return false end
  if before and before > 0 and before <= at then return true end
  redis.call('HSET', G.called, called_as(name, who), at)
  redis.call('ZADD', G.ready, at, who)
  if at <= now then table.insert(answer.called, who) end
  return true
end

-- Who is next for what came free is hinted; the engine does it at once, the sweep otherwise. Of a key with a rate
-- one is always called, for the next slot.
function call_next(name)
  local low, high = range_of(name .. '<')
  local slots, slot = slots_of(name)
  local free = math.min(room_of(name) - redis.call('ZLEXCOUNT', G.holds, low, high), math.max(1, slots))
  if free <= 0 then return end
  each_ticket(name, function(line)
    local who = ticket_of(line)
    local at = free_at(who)
    if at and at > math.max(now, math.ceil(slot)) then
      redis.call('ZADD', G.ready, 'LT', at, who)   -- another key's rate keeps it, and it holds up nobody here
    elseif at and call(name, who, at) then
      free = free - 1
    end
    return free <= 0
  end)
end

-- Whose step stays in the lines of keys with a rate: one is called for the next slot of each.
function look_at_rates(names)
  for _, name in ipairs(names) do
    if slots_of(name) < math.huge then call_next(name) end
  end
end

-- Until when something is kept for a step whose turn for a lock has come; nil where it has not. Who was told of
-- its turn and lets it pass is passed over, and holds up nobody behind it any more.
function called_until(address)
  local step, kept = load('steps', address), nil
  for _, name in ipairs(step.waits or {}) do
    local at = tonumber(redis.call('HGET', G.called, called_as(name, member(address))) or 0)
    if at > 0 and now - at > CALLED_MS and (step.hinted or 0) >= at then
      each_ticket(name, function(line)
        if ticket_of(line) ~= member(address) then return false end
        step.tickets[name] = pass_over(line)
        return true
      end)
      save('steps', address)
      call_next(name)
    elseif at > 0 and at <= now then
      if now - at > CALLED_MS then   -- nobody swept meanwhile
        at = now
        redis.call('HSET', G.called, called_as(name, member(address)), at)
      end
      kept = math.max(kept or 0, at + CALLED_MS + 1)
    end
  end
  return kept
end

-- Those of one tree who wait for a folder that is theirs now, wherever they stand in the line.
local function call_kin(name)
  local low, high = range_of(name .. '<')
  if redis.call('ZLEXCOUNT', G.holds, low, high) == 0 then return end   -- whoever is next in line has been called
  local _, root = tree_of(A.member)
  each_ticket(name, function(line)
    local who = ticket_of(line)
    local _, theirs = tree_of(who)
    if theirs == root and free_at(who) == now then call(name, who, now) end
  end)
end

local function has_kin()
  return S.parent ~= '' or redis.call('EXISTS', K.children) == 1
end

-- A step that waits no more for its locks: whoever is next for them is called.
function give_up_turn(address)
  local names = load('steps', address).waits or {}
  drop_tickets(address)
  for _, name in ipairs(names) do call_next(name) end
end

-- A ticket for each lock that a step waits for, also for one that has a limit only since it waits.
local function stand_in_lines(address, step, wanted)
  step.waits, step.tickets = step.waits or {}, step.tickets or {}
  for _, lock in ipairs(wanted) do
    if lock.take ~= nil and not step.tickets[lock.name] then
      step.tickets[lock.name] = take_ticket(lock.name, member(address), tonumber(S.priority) or 5)
      table.insert(step.waits, lock.name)
    end
  end
  redis.call('HSET', G.waits, member(address), cjson.encode(step.waits))
end

local function was_called(address, names)
  for _, name in ipairs(names) do
    local at = tonumber(redis.call('HGET', G.called, called_as(name, member(address))) or 0)
    if at > 0 and at <= now then return true end
  end
  return false
end

-- Whoever came for the slot of a rate, and is kept from it by another lock, is called for none at once: two who are
-- called for one slot each, and need both, would take turns in refusing each other.
local function let_others_go(address, names)
  for _, name in ipairs(names) do
    if slots_of(name) < math.huge then redis.call('HSET', G.called, called_as(name, member(address)), -now - AGAIN_MS) end
  end
end

-- Take all locks of a step, or a ticket for each. Returns the name of the one that is not to be had, by when the step
-- looks again by itself, and whether there is room and only so many may begin in a minute.
function take_locks(address, r)
  local wanted, blocked, paced = locks_of(address, r), nil, nil
  for _, lock in ipairs(wanted) do
    if not lent(lock, address) then
      local low, high = range_of(lock.name .. '<')
      local held = lock.room < math.huge and redis.call('ZLEXCOUNT', G.holds, low, high) or 0
      local slots = slots_of(lock.name)
      if lock.turn and held > 0 then   -- what its tree holds is not waited for in the line
        lock.take = has_room(lock.name, member(address))
      else
        lock.take = held < lock.room and slots > 0
          and its_turn(lock, math.min(lock.room - held, slots), member(address))
      end
      if not lock.take then blocked, paced = lock.name, lock.rate and held < lock.room or nil end
    end
  end
  local step = load('steps', address)
  if blocked then
    local is_new = not step.waits
    stand_in_lines(address, step, wanted)
    if is_new then
      local low, high = range_of(blocked .. '<')
      local held = redis.call('ZRANGEBYLEX', G.holds, low, high, 'LIMIT', 0, 1)[1]
      local told = {lock = blocked, holder = held and tree_of(held:sub(#blocked + 2)) or nil}
      if r.step then told.label, told.index, told.total = r.label, r.step[1], r.step[2] end
      emit('step.blocked', address, told)
    end
    -- Who was called and came too late is called again: its tree had the folder, and gave it up to another.
    local came = was_called(address, step.waits)
    for _, name in ipairs(step.waits) do redis.call('HDEL', G.called, called_as(name, member(address))) end
    if came then let_others_go(address, step.waits) end
    step.blocked, step.paced = blocked, paced
    save('steps', address)
    return blocked, came and now + AGAIN_MS + 1 or now + (paced and LOOK_MS or RETRY_MS), paced
  end
  if step.waits then drop_tickets(address) end
  for _, lock in ipairs(wanted) do
    if lock.take and lock.room < math.huge then
      redis.call('ZADD', G.holds, 0, lock.name .. '<' .. lock.owner)
      redis.call('SADD', K.holding, lock.name .. '<' .. lock.owner)
      if lock.turn and has_kin() then call_kin(lock.name) end
    end
    if lock.take and lock.rate then
      take_slot(lock.name)
      call_next(lock.name)
    end
  end
end

local function give_back(held)
  redis.call('SREM', K.holding, held)
  if redis.call('ZREM', G.holds, held) == 0 then return end
  local name = held:match('^(.-)<')
  call_next(name)
  if name:sub(1, 7) == 'folder:' and has_kin() then call_kin(name) end
end

-- What an attempt or a turn held is free when it ends.
function free_locks(owner)
  if redis.call('EXISTS', K.holding) == 0 then return end
  for _, held in ipairs(redis.call('SMEMBERS', K.holding)) do
    if held:match('<(.*)$') == member(owner) then give_back(held) end
  end
end

-- A turn that closes frees what the turns below it held too: until now an attempt may have lived there.
function free_locks_of_turn(id)
  if redis.call('EXISTS', K.holding) == 0 then return end
  for _, held in ipairs(redis.call('SMEMBERS', K.holding)) do
    local owner = held:match('<(.*)$')
    if owner == member(id) or owner:sub(1, #member(id) + 1) == member(id) .. '[' then give_back(held) end
  end
end

function free_all_locks()
  for _, held in ipairs(redis.call('SMEMBERS', K.holding)) do give_back(held) end
end
end
