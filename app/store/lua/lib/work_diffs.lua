-- The working folder: its digest after the last attempt, and what each attempt changed.
--- @requires events, records
local work_diffs = {}

-- The session keeps the last differences: so many, and so many bytes together (as they are stored). A field of no
-- address holds their order.
local MOST, BYTES, ORDER = 200, 4 * 1024 * 1024, ''

-- The stored differences in order, {address, size}, without that of one address; and their size together.
local function differences_except(tx, address)
  local kept, bytes = {}, 0
  for _, diff in ipairs(cjson.decode(redis.call('HGET', tx.keys.diffs, ORDER) or '[]')) do
    if diff[1] ~= address then
      table.insert(kept, diff)
      bytes = bytes + diff[2]
    end
  end
  return kept, bytes
end

-- Stores what an attempt changed, and drops the oldest if there are too many.
local function store(tx, address, patch)
  local kept, bytes = differences_except(tx, address)
  table.insert(kept, {address, #patch})
  bytes = bytes + #patch
  local over = false
  while #kept > 1 and (#kept > MOST or bytes > BYTES) do
    local oldest = table.remove(kept, 1)
    bytes = bytes - oldest[2]
    redis.call('HDEL', tx.keys.diffs, oldest[1])
    over = true
  end
  redis.call('HSET', tx.keys.diffs, address, patch, ORDER, cjson.encode(kept))
  if over and redis.call('HSETNX', tx.keys.session, 'diffs_dropped', 1) == 1 then
    events.warn(tx, 'the oldest differences of the working folder were dropped: a session keeps the last '
      .. MOST .. ', and 4 MiB of them')
  end
end

-- Stores the state that is judged and committed, "MS DIGEST", unless a later one is stored: doers may run at once.
local function store_work(key, work)
  local last = redis.call('HGET', key, 'work') or ''
  if tonumber(work:match('^%d+')) >= (tonumber(last:match('^%d+')) or 0) then
    redis.call('HSET', key, 'work', work)
  end
end

function work_diffs.keep_work(tx, work)
  store_work(tx.keys.session, work)
end

-- Stores the states of a folder for the session that has it to itself, where a child session works in it.
local function keep_for_owner(args)
  local key = args.owner and args.owner .. 'session'
  if not key or redis.call('EXISTS', key) == 0 then return end
  if args.work then store_work(key, args.work) end
  if args.digest then redis.call('HSET', key, 'digest', args.digest) end
end

-- Why the next attempt in the folder compares it: it may have changed while the session was stopped, or since a
-- person's answer counted.
local STOPPED, APPROVED = '1', 'approved'

-- Sets `compare` of this session, or of the one above it with that base.
local function set_comparison(tx, compare, base)
  local key = (base or tx.base) .. 'session'
  if compare then redis.call('HSET', key, 'compare', compare) else redis.call('HDEL', key, 'compare') end
  if not base or base == tx.base then tx.session.compare = compare or '' end
end

local function is_approved(compare)
  return compare and compare:sub(1, #APPROVED) == APPROVED
end

-- How a session names the attempt that is to compare the folder with what a person has approved.
local function held_by(tx, address, fence)
  return table.concat({APPROVED, fence, address, tx.base}, ' ')
end

-- Whether the folder may have changed while the session was stopped.
function work_diffs.was_stopped(tx)
  return tx.session.compare == STOPPED
end

-- Stores what the worker saw of the folder, with an outcome or when an attempt is handed back.
function work_diffs.keep(tx, address)
  local args = tx.args
  if args.work then work_diffs.keep_work(tx, args.work) end
  keep_for_owner(args)
  if args.patch then store(tx, address, args.patch) end
  if not args.digest then return end
  redis.call('HSET', tx.keys.session, 'digest', args.digest)
  work_diffs.end_binding(tx, address, args.fence)
  if tx.session.compare ~= STOPPED then return end
  set_comparison(tx, nil)
  if args.changed then events.warn(tx, 'the working folder changed while the session was stopped') end
end

-- An answer of a person counts for the digest that was just stored. Until a step of this session, or of one below it in
-- the same folder, has compared the folder, that must stay as it is: `compare` is APPROVED, and names the attempt that
-- is to compare it ("approved FENCE ADDRESS BASE").
function work_diffs.bind(tx)
  set_comparison(tx, APPROVED)
end

-- The sessions whose answer binds the folder: this one and those above it in the same folder, {base, compare} each.
local function find_bindings(tx)
  local found, base, cwd = {}, tx.base, nil
  if tx.session.parent == '' and not is_approved(tx.session.compare) then return found end
  while base do
    local values = redis.call('HMGET', base .. 'session', 'cwd', 'compare', 'parent')
    if base ~= tx.base and values[1] ~= cwd then break end
    if is_approved(values[2]) then table.insert(found, {base, values[2]}) end
    cwd = values[1]
    base = (values[3] or '') ~= '' and cjson.decode(values[3]).base
  end
  return found
end

-- Whether nothing is to compare the folder by now. An attempt that ended before it had compared it leaves that to the
-- next one.
local function is_open(tx, compare)
  if compare == APPROVED then return true end
  local fence, address, base = compare:match('^approved (%d+) (%S+) (.*)$')
  if not fence then return false end
  local step
  if base == tx.base then
    step = records.load(tx, 'steps', address)
  else
    local text = redis.call('HGET', base .. 'steps', address)
    step = text and cjson.decode(text)
  end
  return not (step and step.state == 'running' and step.fence == tonumber(fence))
end

-- Whether a step that begins is the first one after such an answer. One that begins beside the first one would find
-- its work, and the first one may find that of the other: nothing compares the folder after that.
function work_diffs.take_binding(tx, address, fence)
  local is_first = false
  for _, binding in ipairs(find_bindings(tx)) do
    local base, compare = unpack(binding)
    local takes = not is_first and is_open(tx, compare)
    set_comparison(tx, takes and held_by(tx, address, fence) or nil, base)
    if takes and base ~= tx.base then
      redis.call('HSET', tx.keys.session, 'digest', redis.call('HGET', base .. 'session', 'digest'))
    end
    is_first = is_first or takes
  end
  return is_first
end

-- The session whose answer the attempt compares the folder for: its base; nil if another step began beside it.
local function find_held(tx, address, fence)
  local held = held_by(tx, address, fence)
  for _, binding in ipairs(find_bindings(tx)) do
    if binding[2] == held then return binding[1] end
  end
end

-- Whether what the attempt found in the folder is no work of a step beside it.
function work_diffs.is_bound(tx, address, fence)
  return find_held(tx, address, fence) ~= nil
end

-- The folder was compared by the attempt.
function work_diffs.end_binding(tx, address, fence)
  local base = find_held(tx, address, fence)
  if base then set_comparison(tx, nil, base) end
end

-- Asks the next attempt in the folder whether it is as the last one left it. It compares anyway if an answer binds it.
function work_diffs.request_comparison(tx)
  if is_approved(tx.session.compare) then return end
  if redis.call('HEXISTS', tx.keys.session, 'digest') == 1 then set_comparison(tx, STOPPED) end
end

return work_diffs
