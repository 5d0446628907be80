-- Locks: what a step must hold to run. A step takes all of its locks or none, first come first served, and no worker
-- waits for one. The turn around a doer holds its folder until it closes, shared with the sessions of its tree; an
-- attempt holds limited keys and its conversation while it runs. Named locks are taken by `lock`, and released here.
--- @requires addresses, events, locks/calls, locks/folders, locks/limits, locks/named, locks/precedence, locks/rates
--- @requires locks/tickets, records
local locks = {}

local RETRY_MS = 15000   -- a step that waits for a lock is looked at this often, in case its call is lost
local AGAIN_MS = 1000    -- a called step that was refused is not called again before this
local LOOK_MS = 300000   -- the same for a step that waits for the slot of a rate only, which is always called for it

-- The locks of a step: {name, room, owner}. The owner of a folder is the turn around the step, else the attempt.
local function locks_of(tx, address, r)
  local found = {}
  if r.folder and tx.session.folder ~= '' then
    local owner = addresses.member(tx, addresses.turn_of(addresses.block_of(address)))
    table.insert(found, {name = tx.session.folder, room = 1, owner = owner, turn = true})
  end
  if r.talk then
    local name = 'talk:' .. tx.args.session .. ':' .. r.talk
    table.insert(found, {name = name, room = 1, owner = addresses.member(tx, address)})
  end
  for _, key in ipairs(r.limits or {}) do
    local limit = limits.limit_of(tx, key)
    if limit and (limit.concurrency or limit.per_minute) then
      table.insert(found, {name = key, room = limit.concurrency or math.huge, rate = limit.per_minute,
        owner = addresses.member(tx, address)})
    end
  end
  return found
end

-- Whether a folder is held by a turn of this session around the step.
local function is_lent(tx, lock, address)
  if not lock.turn then return false end
  for _, around in ipairs(addresses.turns_around(addresses.block_of(address))) do
    if redis.call('ZSCORE', tx.shared.holds, lock.name .. '<' .. addresses.member(tx, around.id)) then return true end
  end
  return false
end

-- Whether a step needs no folder, or a turn around it holds that already.
function locks.has_folder(tx, address, r)
  if not r.folder or tx.session.folder == '' then return true end
  return is_lent(tx, {name = tx.session.folder, turn = true}, address)
end

-- Postpones the calls of a step that came for the slot of a rate and is kept from it by another lock. Two steps that
-- need two slots each would else refuse each other for ever.
local function let_others_go(tx, address, names)
  local who = addresses.member(tx, address)
  for _, name in ipairs(names) do
    if rates.slots_of(tx, name) < math.huge then
      redis.call('HSET', tx.shared.called, tickets.called_field(name, who), -tx.now - AGAIN_MS)
    end
  end
end

-- Decides for each lock whether the step may take it: `take` is true or false, nil if the lock is lent. Returns the
-- last lock that is not free, whether only its rate is used up, and the hold that conflicts if it is a folder.
local function try_locks(tx, address, wanted)
  local blocked, paced, holder = nil, nil, nil
  local who = addresses.member(tx, address)
  for _, lock in ipairs(wanted) do
    if not is_lent(tx, lock, address) then
      local low, high = addresses.range_of(lock.name .. '<')
      local held = not lock.turn and lock.room < math.huge and redis.call('ZLEXCOUNT', tx.shared.holds, low, high) or 0
      local slots = rates.slots_of(tx, lock.name)
      if lock.turn then
        lock.take, lock.held = precedence.may_take(tx, lock, who)
      else
        lock.take = held < lock.room and slots > 0
          and tickets.has_turn(tx, lock, math.min(lock.room - held, slots), who)
      end
      if not lock.take then blocked, paced, holder = lock.name, lock.rate and held < lock.room or nil, lock.held end
    end
  end
  return blocked, paced, holder
end

local function emit_blocked(tx, address, r, blocked, holder)
  local low, high = addresses.range_of(blocked .. '<')
  local held = holder or redis.call('ZRANGEBYLEX', tx.shared.holds, low, high, 'LIMIT', 0, 1)[1]
  local fields = {lock = blocked, holder = held and folders.tree_of(held:match('<(.*)$')) or nil}
  if r.step then fields.label, fields.index, fields.total = r.label, r.step[1], r.step[2] end
  events.emit(tx, 'step.blocked', address, fields)
end

-- Gives a blocked step its tickets. Returns when it is looked at again.
local function wait(tx, address, r, wanted, blocked, paced, holder)
  local step = records.load(tx, 'steps', address)
  local is_new = not step.waits
  tickets.enqueue(tx, address, step, wanted)
  if is_new then emit_blocked(tx, address, r, blocked, holder) end
  -- A step that was called and came too late is called again: its tree had the folder and released it to another.
  local came = tickets.was_called(tx, address, step.waits)
  tickets.forget_calls(tx, address, step.waits)
  if came then let_others_go(tx, address, step.waits) end
  step.blocked, step.paced = blocked, paced
  records.save(tx, 'steps', address)
  return came and tx.now + AGAIN_MS + 1 or tx.now + (paced and LOOK_MS or RETRY_MS)
end

-- Takes all locks of a step, or a ticket for each. Returns the lock that is not free, when the step is looked at again,
-- and whether only the rate of that lock is used up.
function locks.take(tx, address, r)
  local wanted = locks_of(tx, address, r)
  local blocked, paced, holder = try_locks(tx, address, wanted)
  if blocked then return blocked, wait(tx, address, r, wanted, blocked, paced, holder), paced end
  if records.load(tx, 'steps', address).waits then tickets.drop(tx, address) end
  for _, lock in ipairs(wanted) do
    if lock.take and lock.room < math.huge then
      redis.call('ZADD', tx.shared.holds, 0, lock.name .. '<' .. lock.owner)
      redis.call('SADD', tx.keys.holding, lock.name .. '<' .. lock.owner)
      if lock.turn and calls.has_kin(tx) then calls.call_kin(tx, lock.name) end
    end
    if lock.take and lock.rate then
      rates.take_slot(tx, lock.name)
      calls.call_next(tx, lock.name)
    end
  end
end

-- Releases one hold, and calls the next tickets.
local function give_back(tx, held)
  redis.call('SREM', tx.keys.holding, held)
  if redis.call('ZREM', tx.shared.holds, held) == 0 then return end
  local name = held:match('^(.-)<')
  if named.is_named(name) then return named.forget(tx, name) end
  calls.call_next(tx, name)
  if folders.is_folder(name) and calls.has_kin(tx) then calls.call_kin(tx, name) end
end

-- Releases what an attempt or a turn holds.
function locks.release(tx, owner)
  if redis.call('EXISTS', tx.keys.holding) == 0 then return end
  for _, held in ipairs(redis.call('SMEMBERS', tx.keys.holding)) do
    if held:match('<(.*)$') == addresses.member(tx, owner) then give_back(tx, held) end
  end
end

-- Releases what a turn that closes and the turns below it hold: until now an attempt may have run there.
function locks.release_turn(tx, id)
  if redis.call('EXISTS', tx.keys.holding) == 0 then return end
  local turn = addresses.member(tx, id)
  for _, held in ipairs(redis.call('SMEMBERS', tx.keys.holding)) do
    local owner = held:match('<(.*)$')
    if owner == turn or owner:sub(1, #turn + 1) == turn .. '[' then give_back(tx, held) end
  end
end

-- Releases what the session holds.
function locks.release_all(tx)
  for _, held in ipairs(redis.call('SMEMBERS', tx.keys.holding)) do give_back(tx, held) end
end

-- Releases what the session holds but its named locks: it moves to another folder.
function locks.release_folders(tx)
  for _, held in ipairs(redis.call('SMEMBERS', tx.keys.holding)) do
    if not named.is_named(held) then give_back(tx, held) end
  end
end

return locks
