-- The working folder: its digest after the last attempt, and what each attempt changed.
--- @requires events
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

-- Stores what the worker saw of the folder, with an outcome or when an attempt is handed back.
function work_diffs.keep(tx, address)
  local args = tx.args
  if args.work then work_diffs.keep_work(tx, args.work) end
  keep_for_owner(args)
  if args.patch then store(tx, address, args.patch) end
  if not args.digest then return end
  redis.call('HSET', tx.keys.session, 'digest', args.digest)
  local first = redis.call('HDEL', tx.keys.session, 'compare') == 1   -- of several attempts that ran side by side
  tx.session.compare = ''
  if args.changed and first then events.warn(tx, 'the working folder changed while the session was stopped') end
end

-- An answer of a person counts for the digest that was just stored. Until a step begins in the folder, in this session
-- or in a child that works in it, the folder must stay like that.
local APPROVED = 'approved'

function work_diffs.bind(tx)
  redis.call('HSET', tx.keys.session, 'compare', APPROVED)
  tx.session.compare = APPROVED
end

-- Whether a step that begins is the first one after such an answer.
function work_diffs.take_binding(tx)
  if tx.session.compare ~= APPROVED then return false end
  redis.call('HDEL', tx.keys.session, 'compare')
  tx.session.compare = ''
  return true
end

-- Passes the answer on to a new child: a step of it is the first one.
function work_diffs.pass_binding(tx, parent)
  local values = redis.call('HMGET', parent.base .. 'session', 'compare', 'digest', 'cwd')
  if values[1] ~= APPROVED then return end
  redis.call('HDEL', parent.base .. 'session', 'compare')
  if values[3] ~= tx.args.fields.cwd then return end
  tx.args.fields.compare, tx.args.fields.digest = APPROVED, values[2]
end

-- Asks the next attempt in the folder whether it is as the last one left it.
function work_diffs.request_comparison(tx)
  if redis.call('HEXISTS', tx.keys.session, 'digest') == 1 then redis.call('HSET', tx.keys.session, 'compare', 1) end
end

return work_diffs
