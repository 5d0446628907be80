-- Locks: what a step must hold to run. All or nothing, first come first served, and nobody waits in a worker.
-- A folder is held by the turn around its doer until that closes, and shared by the sessions of one tree; a
-- limited key and a conversation by an attempt while it runs.
local RETRY_MS = 15000        -- a step that waits for a lock is looked at this often, should its call get lost
local has_folder, each_ticket, ticket_of, drop_tickets, call_next, give_up_turn, pace_field, drop_old_slot, paced
local take_locks, free_locks, free_locks_of_turn, free_all_locks
do   -- a script may have 200 locals: the others are seen here alone
local CALLED_MS = 5000        -- how long a freed lock is kept for the ticket that was called

local function limit_of(key)
  local text = redis.call('HGET', G.limits, key)
  return text and cjson.decode(text) or nil
end

-- How many may hold a lock now: one a folder or a conversation; a key as its limit says, any without one.
local function room_of(name)
  if name:sub(1, 7) == 'folder:' or name:sub(1, 5) == 'talk:' then return 1 end
  local limit = limit_of(name)
  return limit and limit.concurrency or math.huge
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
    if limit and limit.concurrency then
      table.insert(found, {name = key, room = limit.concurrency, owner = member(address)})
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

local function take_ticket(lock, who)
  local order = string.format('%014d', redis.call('HINCRBY', G.epoch, 'tickets', 1))
  local line = lock .. '<' .. order .. '<' .. who
  redis.call('ZADD', G.tickets, 0, line)
  return line
end

local function drop_ticket(line)
  redis.call('HDEL', G.called, called_as(line:match('^(.-)<'), ticket_of(line)))
  return redis.call('ZREM', G.tickets, line) == 1
end

-- A ticket that was called keeps room for a while, and goes to the end where it is not used. One that
-- was not called waits for another of its locks too: to keep room for it could lock all out for ever.
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
  for _, line in ipairs(passed) do
    drop_ticket(line)
    take_ticket(lock.name, ticket_of(line))
  end
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
  step.waits, step.blocked, step.tickets = nil, nil, nil
end

-- Whether all locks that a ticket's holder waits for have room.
local function all_free(who)
  for _, name in ipairs(cjson.decode(redis.call('HGET', G.waits, who) or '[]')) do
    if not has_room(name, who) then return false end
  end
  return true
end

local function call(name, who)
  if redis.call('HSETNX', G.called, called_as(name, who), now) == 0 then return end
  redis.call('ZADD', G.ready, now, who)
  table.insert(answer.called, who)
end

-- Who is next for what came free is hinted; the engine does it at once, the sweep otherwise.
function call_next(name)
  local low, high = range_of(name .. '<')
  local free = room_of(name) - redis.call('ZLEXCOUNT', G.holds, low, high)
  if free <= 0 then return end
  each_ticket(name, function(line)
    if not all_free(ticket_of(line)) then return false end
    call(name, ticket_of(line))
    free = free - 1
    return free <= 0
  end)
end

-- Those of one tree who wait for a folder that is theirs now, wherever they stand in the line.
local function call_kin(name)
  local low, high = range_of(name .. '<')
  if redis.call('ZLEXCOUNT', G.holds, low, high) == 0 then return end   -- whoever is next in line has been called
  local _, root = tree_of(A.member)
  each_ticket(name, function(line)
    local who = ticket_of(line)
    local _, theirs = tree_of(who)
    if theirs == root and all_free(who) then call(name, who) end
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

-- Which pace of a key holds now: a number of its own each time that its limit of rate is changed.
function pace_field(key)
  return key .. '<'
end

local function pace_of(key)
  return tonumber(redis.call('HGET', G.rates, pace_field(key)) or 0)
end

-- A slot of a pace that no longer holds is waited for no more.
function drop_old_slot(address, r)
  local step = load('steps', address)
  local old = false
  for _, key in ipairs(step.slot and r.limits or {}) do
    old = old or pace_of(key) ~= ((step.paces or {})[key] or 0)
  end
  if not old then return end
  step.slot, step.paces, step.due = nil, nil, nil
  save('steps', address)
end

-- Limits of rate: each beginning has a slot of its own, a gap after the one before it. Who comes early
-- is given the next one, in the order of coming, and waits for it alone. Returns that time, or nil.
function paced(address, r)
  drop_old_slot(address, r)
  local step = load('steps', address)
  if step.slot then return step.slot > now and step.slot or nil end
  local slot, gaps, paces = now, {}, {}
  for _, key in ipairs(r.limits or {}) do
    local limit = limit_of(key)
    if limit and limit.per_minute then
      gaps[key], paces[key] = 60000 / limit.per_minute, pace_of(key)
      slot = math.max(slot, tonumber(redis.call('HGET', G.rates, key) or 0))
    end
  end
  for key, gap in pairs(gaps) do redis.call('HSET', G.rates, key, math.ceil(slot + gap)) end
  if next(gaps) then step.slot, step.paces = slot, paces end
  return slot > now and slot or nil
end

-- Take all locks of a step, or a ticket for each and the name of the one that is not to be had.
function take_locks(address, r)
  local wanted, blocked = locks_of(address, r), nil
  for _, lock in ipairs(wanted) do
    if not lent(lock, address) then
      local low, high = range_of(lock.name .. '<')
      local held = redis.call('ZLEXCOUNT', G.holds, low, high)
      if lock.turn and held > 0 then   -- what its tree holds is not waited for in the line
        lock.take = has_room(lock.name, member(address))
      else
        lock.take = held < lock.room and its_turn(lock, lock.room - held, member(address))
      end
      if not lock.take then blocked = lock.name end
    end
  end
  local step = load('steps', address)
  if blocked then
    if not step.waits then
      step.waits, step.tickets = {}, {}
      for _, lock in ipairs(wanted) do
        if lock.take ~= nil then
          step.tickets[lock.name] = take_ticket(lock.name, member(address))
          table.insert(step.waits, lock.name)
        end
      end
      redis.call('HSET', G.waits, member(address), cjson.encode(step.waits))
    end
    -- Who was called and came too late is called again: its tree had the folder, and gave it up to another.
    for _, name in ipairs(step.waits) do redis.call('HDEL', G.called, called_as(name, member(address))) end
    step.blocked = blocked
    save('steps', address)
    return blocked
  end
  if step.waits then drop_tickets(address) end
  for _, lock in ipairs(wanted) do
    if lock.take then
      redis.call('ZADD', G.holds, 0, lock.name .. '<' .. lock.owner)
      redis.call('SADD', K.holding, lock.name .. '<' .. lock.owner)
      if lock.turn and has_kin() then call_kin(lock.name) end
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
