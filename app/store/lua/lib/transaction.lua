-- One call of a verb: what it is given, what it has read, and what it will write and return. Every function gets this
-- record as its first argument, `tx`, and keeps nothing of it after the call.
--- @requires parts, programs, records
local transaction = {}

-- A session in one of these statuses has work that runs or may run.
transaction.AT_WORK = {active = true, stopping = true, exiting = true, aborting = true}

-- Makes the name of a key when it is first used: a call uses few of them.
local function name_key(known)
  return {__index = function(keys, part)
    if not known[part] then error('no key has the part ' .. tostring(part), 0) end
    local name = keys[1] .. part
    keys[part] = name
    return name
  end}
end

local SESSION, SHARED = name_key(parts.session), name_key(parts.shared)

-- The keys across sessions, which are the same in nearly every call.
local shared_prefix, shared_keys

local function time_of(redis_time)
  return redis_time[1] * 1000 + math.floor(redis_time[2] / 1000)
end

-- Makes the record of one call.
-- keys: the session's base, its program, the base across sessions.
-- argv: now in ms (0: the server's clock), arguments (JSON), a document that is stored as it is (the outcome of a
-- step, or a program), an entry of the ledger (the same), records of the transcript (the same, any number)
function transaction.begin(keys, argv)
  if shared_prefix ~= keys[3] then
    shared_prefix, shared_keys = keys[3], setmetatable({keys[3]}, SHARED)
  end
  local now = tonumber(argv[1])
  if now == 0 then now = time_of(redis.call('TIME')) end
  return {
    base = keys[1], program = keys[2], prefix = keys[3],
    keys = setmetatable({keys[1]}, SESSION),   -- of this session, by their parts
    shared = shared_keys,                      -- of all sessions, by their parts
    args = cjson.decode(argv[2]), document = argv[3], entry = argv[4], argv = argv,
    now = now,
    clock = string.format('%d', now),          -- `now` as a text: formatting a number for each use is slow
    session = {},                              -- fields of the session, see read_session
    records = {steps = {}, turns = {}},        -- read or changed, see lib/records
    limits = {},                               -- of keys, as far as they were read
    paths = {}, routes = {}, runs = {},        -- of addresses and nodes, as far as they were read
    released = {},                             -- addresses that became ready, in order
    freed = {},                                -- queues and limited keys in whose window a slot became free
    reached = nil,                             -- the first budget that was reached: {what, used, limit}
    keep_s = nil,                              -- how long the keys of a session are kept that ends in this call
    reply = {hints = {}, grants = {}, abort = {}, called = {}},
  }
end

-- Whether this is another store than the caller's, such as an empty one; false if the caller names none.
function transaction.is_other_store(tx)
  return tx.args.store ~= nil and redis.call('GET', tx.prefix .. 'store') ~= tx.args.store
end

local FIELDS = {'status', 'place', 'window', 'program', 'retention', 'parent', 'exit_by', 'label', 'folder', 'priority',
  'rings', 'rung', 'budget', 'token', 'made', 'compare', 'unread', 'skips', 'expected', 'covered', 'began',
  'definitions', 'until'}

-- Reads the fields of the session; false if there is no such session.
function transaction.read_session(tx)
  local session = tx.session
  local values = redis.call('HMGET', tx.keys.session, unpack(FIELDS))
  for i, name in ipairs(FIELDS) do session[name] = values[i] or '' end
  -- The session has taken over another program since its caller looked.
  local no_program = tx.prefix .. 'program:'
  if session.program ~= '' and tx.program ~= no_program and tx.program ~= no_program .. session.program then
    error('stale program', 0)
  end
  if session.made ~= '' and not tx.args.adopts then
    tx.routes = programs.shared_routes(tx.program .. session.made)
  end
  return session.status ~= ''
end

-- Gives keys that were written for an ended or stopped session the session's own TTL.
function transaction.expire_with_session(tx)
  local left = redis.call('PTTL', tx.keys.session)
  if left <= 0 then return end
  for part in pairs(parts.session) do
    if redis.call('PTTL', tx.keys[part]) == -1 then redis.call('PEXPIRE', tx.keys[part], left) end
  end
end

-- Writes the changed records, and the TTLs of a session that ended or was stopped.
function transaction.flush(tx)
  records.write(tx)
  redis.call('HSET', tx.keys.session, 'updated', tx.clock)
  if tx.keep_s then
    for part in pairs(parts.session) do redis.call('EXPIRE', tx.keys[part], tx.keep_s) end
    redis.call('EXPIRE', tx.prefix .. 'id:' .. tx.args.session, tx.keep_s)
  elseif not transaction.AT_WORK[tx.session.status] then
    transaction.expire_with_session(tx)
  end
end

local LISTS = {'hints', 'grants', 'abort', 'called'}   -- of a reply, left out if they are empty

-- The reply of the verb as JSON.
function transaction.reply(tx, word)
  local reply = tx.reply
  reply.word, reply.now = word, tx.now
  for _, list in ipairs(LISTS) do
    if #reply[list] == 0 then reply[list] = nil end
  end
  return cjson.encode(reply)
end

return transaction
