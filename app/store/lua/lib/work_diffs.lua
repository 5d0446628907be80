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

local function set_comparison(tx, compare)
  if compare then
    redis.call('HSET', tx.keys.session, 'compare', compare)
  else
    redis.call('HDEL', tx.keys.session, 'compare')
  end
  tx.session.compare = compare or ''
end

-- How the session names the attempt that is to compare the folder with what a person has approved.
local function held_by(address, fence)
  return APPROVED .. ' ' .. fence .. ' ' .. address
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

-- An answer of a person counts for the digest that was just stored. Until a step of this session, or of a child that
-- works in its folder, has compared the folder, that must stay as it is: `compare` is APPROVED, and names the attempt
-- that is to compare it ("approved FENCE ADDRESS") or the child ("approved SESSION").
function work_diffs.bind(tx)
  set_comparison(tx, APPROVED)
end

-- Whether nothing is to compare the folder by now. An attempt that ended before it had compared it leaves that to the
-- next one.
local function is_open(tx, base, compare)
  if compare == APPROVED then return true end
  local fence, address = compare:match('^approved (%d+) (.*)$')
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
-- its work, so nothing compares the folder after that.
function work_diffs.take_binding(tx, address, fence)
  local compare = tx.session.compare
  if compare:sub(1, #APPROVED) ~= APPROVED then return false end
  local is_first = is_open(tx, tx.base, compare)
  set_comparison(tx, is_first and held_by(address, fence) or nil)
  return is_first
end

-- The folder was compared by the attempt.
function work_diffs.end_binding(tx, address, fence)
  if tx.session.compare == held_by(address, fence) then set_comparison(tx, nil) end
end

-- Passes the answer on to a new child: a step of it is the first one.
function work_diffs.pass_binding(tx, parent)
  local values = redis.call('HMGET', parent.base .. 'session', 'compare', 'digest', 'cwd')
  if values[3] ~= tx.args.fields.cwd or not is_open(tx, parent.base, values[1] or '') then return end
  redis.call('HSET', parent.base .. 'session', 'compare', APPROVED .. ' ' .. tx.args.session)
  tx.args.fields.compare, tx.args.fields.digest = APPROVED, values[2]
end

-- Gives the answer back to the parent of a child that ends, if none of its steps has compared the folder.
function work_diffs.return_binding(tx)
  if tx.session.parent == '' or not is_open(tx, tx.base, tx.session.compare) then return end
  local key = cjson.decode(tx.session.parent).base .. 'session'
  if redis.call('HGET', key, 'compare') ~= APPROVED .. ' ' .. tx.args.session then return end
  redis.call('HSET', key, 'compare', APPROVED)
end

-- Asks the next attempt in the folder whether it is as the last one left it.
function work_diffs.request_comparison(tx)
  if redis.call('HEXISTS', tx.keys.session, 'digest') == 1 then set_comparison(tx, STOPPED) end
end

return work_diffs
