-- Loads a workflow session: it replaces the top of the stack, or is pushed onto an empty one. Without a record of it,
-- the given one is imported.
-- Arguments: stack, workflow (its id), force? (also if another one is on top, or if it has ended), fields? (of the
--   record to import: a list of names and values), started (ms) and keep_s, store? (the id that the caller expects),
--   owner?, nonce?
-- Returns: loaded(stack) | occupied(stack) (another one is on top) | ended | elsewhere (it belongs to another stack) |
--   unknown | other_store
--- @requires stacks, transaction

-- Writes an imported record.
local function import(tx, id)
  local key, fields = stacks.key(tx, id), tx.args.fields
  for i = 1, #fields, 2 do redis.call('HSET', key, fields[i], fields[i + 1]) end
  redis.call('HSET', key, 'id', id, 'stack', tx.args.stack, 'order', stacks.list(tx, id, tx.args.started))
  redis.call('EXPIRE', key, tx.args.keep_s)
end

-- Why it cannot be loaded; nil if it can. An id that was deleted is unknown.
local function refuse(tx, id, top)
  local key, args = stacks.key(tx, id), tx.args
  local stack, status = unpack(redis.call('HMGET', key, 'stack', 'status'))
  if not status and (redis.call('EXISTS', key) == 1 or not args.fields) then return 'unknown' end
  if status and stack ~= args.stack then return 'elsewhere' end
  if args.force then return nil end
  if top and top ~= id then return 'occupied' end
  return (status or args.status) ~= 'active' and 'ended' or nil
end

local function put_on_top(tx)
  local id, line = tx.args.workflow, stacks.line(tx)
  local top = line[#line]
  local why = refuse(tx, id, top)
  if why then return why end
  if not stacks.exists(tx, id) then import(tx, id) end
  if top ~= id then
    stacks.remove(tx, id)   -- it may be below
    if top then stacks.remove(tx, top) end
    stacks.push(tx, id)
    if top then stacks.trim(tx, top) end
  end
  return 'loaded', id
end

return function(tx)
  if transaction.is_other_store(tx) then return transaction.reply(tx, 'other_store') end
  return stacks.once(tx, put_on_top)
end
