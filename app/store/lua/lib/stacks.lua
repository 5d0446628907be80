-- Stacks of workflow sessions: which are on a stack, and calls that are carried out once. A workflow session is a hash
-- of texts.
--- @requires makers, transaction
local stacks = {}

stacks.DEPTH_MAX = 100
local CALL_S, GONE_S = 24 * 3600, 7 * 24 * 3600
local STALE_PER_CALL = 10
-- The most workflow sessions of a stack that are not on it.
local KEPT_MAX = 200

-- A key of the call's stack: its record (`stack`), its line or all of its workflow sessions.
local function key_of(tx, kind)
  return tx.prefix .. kind .. ':' .. tx.args.stack
end

-- The key of a workflow session.
function stacks.key(tx, id)
  return tx.prefix .. 'workflow:' .. id
end

-- The ids on the stack, from the bottom to the top.
function stacks.line(tx)
  return redis.call('LRANGE', key_of(tx, 'stack-line'), 0, -1)
end

-- Whether a workflow session has a record; false for an unknown and for a deleted one.
function stacks.exists(tx, id)
  return redis.call('HEXISTS', stacks.key(tx, id), 'status') == 1
end

-- The named workflow session of the stack, or without a name the active one; nil and the refusal if there is none.
function stacks.find(tx)
  local line, id = stacks.line(tx), tx.args.workflow
  if not id then
    if #line == 0 then return nil, 'empty' end
    return line[#line]
  end
  for _, one in ipairs(line) do
    if one == id then return id end
  end
  return nil, 'not_on_stack'
end

-- The fields of a hash as a table.
local function fields_of(key)
  local flat, fields = redis.call('HGETALL', key), {}
  for i = 1, #flat, 2 do fields[flat[i]] = flat[i + 1] end
  return fields
end

-- What a stack shows of each workflow session: not its steps.
local SHOWN = {'id', 'job_name', 'workflow_name', 'instance_id', 'current_step_id', 'current_entry_index', 'started',
  'parent', 'revision'}

local function shown_of(key)
  local shown = {}
  for i, value in ipairs(redis.call('HMGET', key, unpack(SHOWN))) do
    if value then shown[SHOWN[i]] = value end
  end
  return shown
end

-- Puts the stack as it is now into the reply, and the whole record of the workflow session that the call is about.
function stacks.show(tx, id)
  local view = {head = fields_of(key_of(tx, 'stack')), line = {}}
  for _, one in ipairs(stacks.line(tx)) do
    if stacks.exists(tx, one) then view.line[#view.line + 1] = shown_of(stacks.key(tx, one)) end
  end
  if id and stacks.exists(tx, id) then view.workflow = fields_of(stacks.key(tx, id)) end
  tx.reply.stack = view
end

-- Records a change of the stack and, unless it was deleted, of a workflow session.
local function touch(tx, id)
  local key = key_of(tx, 'stack')
  redis.call('HINCRBY', key, 'version', 1)
  redis.call('HSET', key, 'updated', tx.clock)
  makers.note(tx, redis.call('HSETNX', key, 'created', tx.clock) == 1)
  redis.call('ZADD', tx.shared.stacks, tx.clock, tx.args.stack)
  if stacks.exists(tx, id) then redis.call('HINCRBY', stacks.key(tx, id), 'revision', 1) end
  if #stacks.line(tx) > 0 then return end
  for _, kind in ipairs({'stack', 'stack-all'}) do redis.call('EXPIRE', key_of(tx, kind), tx.args.keep_s) end
end

-- Carries out a change once: a repeated call, which has the same nonce, gets the reply of the first with the stack as
-- it is now. `change` returns a word and the id of the workflow session; without the id it has changed nothing. Nor is
-- anything changed if the stack is `foreign` to the caller.
function stacks.once(tx, change)
  local key = tx.args.nonce and tx.prefix .. 'stack-call:' .. tx.args.stack .. ':' .. tx.args.nonce
  local kept = key and redis.call('GET', key)
  local word, id, count
  if kept then
    word, id, count = unpack(cjson.decode(kept))
    tx.args.stack = tx.args.to or tx.args.stack   -- a move has given it the new name
  elseif makers.is_foreign(tx) then
    word = 'foreign'
  else
    word, id, count = change(tx)
    if id then
      touch(tx, id)
      if key then redis.call('SET', key, cjson.encode({word, id, count}), 'EX', CALL_S) end
    end
  end
  tx.reply.count = count
  stacks.show(tx, id)
  return transaction.reply(tx, word)
end

-- Forgets workflow sessions whose records have expired, the oldest first, and a few of the stacks that have expired.
local function drop_stale(tx)
  local names = tx.shared.stacks
  local first = tx.now % math.max(1, redis.call('ZCARD', names))
  for _, name in ipairs(redis.call('ZRANGE', names, first, first + STALE_PER_CALL - 1)) do
    if redis.call('EXISTS', tx.prefix .. 'stack:' .. name) == 0 then redis.call('ZREM', names, name) end
  end
  local all = key_of(tx, 'stack-all')
  for _, member in ipairs(redis.call('ZRANGE', all, 0, STALE_PER_CALL - 1)) do
    if not stacks.exists(tx, member:match('<(.*)$')) then redis.call('ZREM', all, member) end
  end
end

-- The member of a workflow session in the list of all: sessions of the same ms are in the order of their start.
local function member_of(order, id)
  return string.format('%012d<%s', order, id)
end

-- Lists a new workflow session, and returns its number on the stack.
function stacks.list(tx, id, started)
  drop_stale(tx)
  local order = redis.call('HINCRBY', key_of(tx, 'stack'), 'number', 1)
  redis.call('ZADD', key_of(tx, 'stack-all'), started, member_of(order, id))
  return order
end

-- Removes a workflow session from the list of all.
function stacks.unlist(tx, id)
  local order = redis.call('HGET', stacks.key(tx, id), 'order')
  redis.call('ZREM', key_of(tx, 'stack-all'), member_of(tonumber(order) or 0, id))
end

-- Puts a workflow session on top of the stack; nothing of a stack that has one expires.
function stacks.push(tx, id)
  local line = stacks.line(tx)
  redis.call('HSET', stacks.key(tx, id), 'parent', line[#line] or '')
  redis.call('RPUSH', key_of(tx, 'stack-line'), id)
  for _, kind in ipairs({'stack', 'stack-all'}) do redis.call('PERSIST', key_of(tx, kind)) end
  redis.call('PERSIST', stacks.key(tx, id))
end

-- Records the folder and the place of a folder's stack.
function stacks.describe(tx, folder, place)
  if folder then redis.call('HSETNX', key_of(tx, 'stack'), 'folder', folder) end
  if place then redis.call('HSETNX', key_of(tx, 'stack'), 'place', place) end
end

-- Takes a workflow session off the stack, from anywhere in it: the one above gets the one below as its parent.
-- Its record is kept for `keep_s`, as is a stack without a workflow session.
function stacks.remove(tx, id)
  local line = stacks.line(tx)
  for at, one in ipairs(line) do
    if one == id and line[at + 1] then
      redis.call('HSET', stacks.key(tx, line[at + 1]), 'parent', line[at - 1] or '')
      redis.call('HINCRBY', stacks.key(tx, line[at + 1]), 'revision', 1)
    end
  end
  redis.call('LREM', key_of(tx, 'stack-line'), 0, id)
  redis.call('EXPIRE', stacks.key(tx, id), tx.args.keep_s)
end

-- Forgets the oldest of the workflow sessions that have left the stack if there are too many, except the one that has
-- just left.
function stacks.trim(tx, left)
  local all, line = key_of(tx, 'stack-all'), stacks.line(tx)
  local excess = math.min(redis.call('ZCARD', all) - #line - KEPT_MAX, STALE_PER_CALL)
  if excess <= 0 then return end
  local stays = {[left] = true}
  for _, id in ipairs(line) do stays[id] = true end
  for _, member in ipairs(redis.call('ZRANGE', all, 0, #line + excess)) do
    local id = member:match('<(.*)$')
    if excess > 0 and not stays[id] then
      redis.call('DEL', stacks.key(tx, id))
      redis.call('ZREM', all, member)
      excess = excess - 1
    end
  end
end

-- Marks the id of a deleted workflow session as used: for a week it is neither given again nor imported.
function stacks.bury(tx, id)
  local key = stacks.key(tx, id)
  redis.call('DEL', key)
  redis.call('HSET', key, 'deleted', tx.clock)
  redis.call('EXPIRE', key, GONE_S)
end

return stacks
