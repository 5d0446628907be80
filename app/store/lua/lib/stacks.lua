-- The records of stacks and of their workflow sessions, which are hashes of texts. Only Python knows the rules
-- (app/core/stacks.py).
--- @requires transaction
local stacks = {}

local CALL_S, GONE_S = 24 * 3600, 7 * 24 * 3600
local STALE_PER_CALL = 10
-- The most workflow sessions of a stack that are not on it.
local KEPT_MAX = 200

-- The key of a record by its kind and the name of its stack or workflow session.
local function key_of(tx, kind, name)
  return tx.prefix .. kind .. ':' .. name
end

-- Whether a workflow session has a record; false for an unknown and for a deleted one.
local function exists(tx, id)
  return redis.call('HEXISTS', key_of(tx, 'workflow', id), 'status') == 1
end

local function fields_of(key)
  local flat, fields = redis.call('HGETALL', key), {}
  for i = 1, #flat, 2 do fields[flat[i]] = flat[i + 1] end
  return fields
end

-- What a stack shows of each workflow session: not its steps.
local SHOWN = {'status', 'id', 'job_name', 'workflow_name', 'instance_id', 'current_step_id', 'current_entry_index',
  'started', 'parent', 'revision'}

local function shown_of(key)
  local shown = {}
  for i, value in ipairs(redis.call('HMGET', key, unpack(SHOWN))) do shown[SHOWN[i]] = value or nil end
  return shown
end

-- Whether an id is that of a workflow session, of a deleted one or of a session.
local function is_used(tx, id)
  return redis.call('EXISTS', key_of(tx, 'workflow', id), key_of(tx, 'id', id)) > 0
end

-- Whether there is a stack of the name that this one is to get.
local function is_occupied(tx)
  return tx.args.to ~= nil and redis.call('EXISTS', key_of(tx, 'stack', tx.args.to)) == 1
end

-- The key under which the result of a change is kept; nil for a look.
local function kept_key(tx)
  return tx.args.nonce and key_of(tx, 'stack-call', tx.args.stack .. ':' .. tx.args.nonce)
end

-- Puts the stack into the reply as it is now. A change that was carried out shows its result: under the new name of a
-- stack that was moved.
function stacks.read(tx)
  local args, key = tx.args, kept_key(tx)
  local kept = key and redis.call('GET', key)
  local call = kept and cjson.decode(kept) or nil
  local name, id = args.stack, args.workflow
  if call then name, id = args.to or name, call.workflow end
  local view = {name = name, head = fields_of(key_of(tx, 'stack', name)), line = {}, call = call}
  for _, one in ipairs(redis.call('LRANGE', key_of(tx, 'stack-line', name), 0, -1)) do
    local shown = shown_of(key_of(tx, 'workflow', one))
    if shown.status then view.line[#view.line + 1] = shown end
  end
  local top = view.line[#view.line]
  id = id or top and top.id or ''
  view.workflow = fields_of(key_of(tx, 'workflow', id))
  view.is_used, view.is_occupied = is_used(tx, id), is_occupied(tx)
  tx.reply.stack = view
end

-- Whether all that the caller has read is as it was. Each change of a stack gives it another version; the record of a
-- workflow session may have expired.
local function is_as_read(tx)
  local args = tx.args
  local version = redis.call('HGET', key_of(tx, 'stack', args.stack), 'version')
  if tonumber(version or 0) ~= args.version then return false end
  if is_occupied(tx) then return false end
  for id in pairs(args.records) do
    if id ~= args.new and not exists(tx, id) then return false end
  end
  return not args.new or not is_used(tx, args.new)
end

-- Marks the id of a deleted workflow session as used: for a week it is neither given again nor imported.
local function bury(tx, id)
  local key = key_of(tx, 'workflow', id)
  redis.call('DEL', key)
  redis.call('HSET', key, 'deleted', tx.clock)
  redis.call('EXPIRE', key, GONE_S)
  redis.call('ZREM', key_of(tx, 'stack-all', tx.args.stack), tx.args.entry)
end

local function write_records(tx)
  for id, record in pairs(tx.args.records) do
    local key = key_of(tx, 'workflow', id)
    for name, value in pairs(record) do
      if value == cjson.null then redis.call('HDEL', key, name) else redis.call('HSET', key, name, value) end
    end
  end
end

-- Forgets workflow sessions of the stack, the oldest first and a few per call: those whose records have expired, and
-- some of those that are not on it, if these are too many. `stays` has those on it and those that have just left.
local function trim(tx, stays, depth)
  local all = key_of(tx, 'stack-all', tx.args.stack)
  local excess = math.min(redis.call('ZCARD', all) - depth - KEPT_MAX, STALE_PER_CALL)
  for _, member in ipairs(redis.call('ZRANGE', all, 0, STALE_PER_CALL - 1 + (excess > 0 and depth or 0))) do
    local id = member:match('<(.*)$')
    if not exists(tx, id) then
      redis.call('ZREM', all, member)
    elseif excess > 0 and not stays[id] then
      redis.call('DEL', key_of(tx, 'workflow', id))
      redis.call('ZREM', all, member)
      excess = excess - 1
    end
  end
end

-- Forgets a few of the stacks that have expired.
local function drop_expired_stacks(tx)
  local names = tx.shared.stacks
  local first = tx.now % math.max(1, redis.call('ZCARD', names))
  for _, name in ipairs(redis.call('ZRANGE', names, first, first + STALE_PER_CALL - 1)) do
    if redis.call('EXISTS', key_of(tx, 'stack', name)) == 0 then redis.call('ZREM', names, name) end
  end
end

-- Writes which workflow sessions are on the stack. Nothing of these expires; what has left is kept for `keep_s`.
local function write_line(tx)
  local line, stays = key_of(tx, 'stack-line', tx.args.stack), {}
  for _, id in ipairs(redis.call('LRANGE', line, 0, -1)) do
    stays[id] = true
    if id ~= tx.args.gone then redis.call('EXPIRE', key_of(tx, 'workflow', id), tx.args.keep_s) end
  end
  redis.call('DEL', line)
  for _, id in ipairs(tx.args.line) do
    stays[id] = true
    redis.call('RPUSH', line, id)
    redis.call('PERSIST', key_of(tx, 'workflow', id))
  end
  trim(tx, stays, #tx.args.line)
  drop_expired_stacks(tx)
end

-- Gives the records of a stack its new name, also in all of its workflow sessions.
local function rename(tx, old, new)
  for _, member in ipairs(redis.call('ZRANGE', key_of(tx, 'stack-all', old), 0, -1)) do
    local id = member:match('<(.*)$')
    if exists(tx, id) then redis.call('HSET', key_of(tx, 'workflow', id), 'stack', new) end
  end
  for _, kind in ipairs({'stack', 'stack-line', 'stack-all'}) do
    if redis.call('EXISTS', key_of(tx, kind, old)) == 1 then
      redis.call('RENAME', key_of(tx, kind, old), key_of(tx, kind, new))
    end
  end
  redis.call('ZREM', tx.shared.stacks, old)
end

-- Writes the record of the stack. If no workflow session is on it, it expires.
local function write_head(tx, name)
  local key, all = key_of(tx, 'stack', name), key_of(tx, 'stack-all', name)
  redis.call('DEL', key)
  for field, value in pairs(tx.args.head) do redis.call('HSET', key, field, value) end
  redis.call('ZADD', tx.shared.stacks, tx.clock, name)
  redis.call('PERSIST', all)
  if redis.call('EXISTS', key_of(tx, 'stack-line', name)) == 1 then return end
  for _, one in ipairs({key, all}) do redis.call('EXPIRE', one, tx.args.keep_s) end
end

-- Writes a stack as its caller has computed it, unless it has changed since.
function stacks.write(tx)
  local args, kept = tx.args, kept_key(tx)
  if transaction.is_other_store(tx) then return transaction.reply(tx, 'other_store') end
  if not is_as_read(tx) then
    stacks.read(tx)
    return transaction.reply(tx, 'changed')
  end
  if args.gone then bury(tx, args.gone) end   -- before the rest: a full server has room then
  write_records(tx)
  if args.new then redis.call('ZADD', key_of(tx, 'stack-all', args.stack), args.started, args.entry) end
  if args.line then write_line(tx) end
  if args.to then rename(tx, args.stack, args.to) end
  write_head(tx, args.to or args.stack)
  if kept then redis.call('SET', kept, args.call, 'EX', CALL_S) end
  return transaction.reply(tx, 'written')
end

return stacks
