-- The plan of a session: its head and the records of its tasks. Each is read once in a transaction; `tasks.write`
-- writes what changed, as one new version.
--- @requires events
local tasks = {}

-- The head of the plan: its state, its settings and its counters; nil if the session has no plan.
function tasks.head(tx)
  if not tx.plan then
    local text = redis.call('HGET', tx.keys.plan, 'head')
    tx.plan = {head = text and cjson.decode(text) or nil, known = {}, changed = {}, removed = {}}
  end
  return tx.plan.head
end

-- The record of a task; nil if there is none.
function tasks.load(tx, id)
  tasks.head(tx)
  if tx.plan.known[id] == nil then
    local text = redis.call('HGET', tx.keys.plan, 'task:' .. id)
    tx.plan.known[id] = text and cjson.decode(text) or false
  end
  return tx.plan.known[id] or nil
end

-- Sets the record of a task, to be written by `tasks.write`. A new one is the last of the plan.
function tasks.store(tx, id, task)
  tasks.head(tx)
  local before = tx.plan.known[id]
  tx.plan.known[id], tx.plan.changed[id], tx.plan.removed[id] = task, true, nil
  if tx.plan.order and not before then table.insert(tx.plan.order, task) end
  return task
end

-- Marks a loaded record as changed.
function tasks.save(tx, id)
  tx.plan.changed[id] = true
end

function tasks.remove(tx, id)
  for number, task in ipairs(tx.plan.order or {}) do
    if task.id == id then
      table.remove(tx.plan.order, number)
      break
    end
  end
  tx.plan.known[id], tx.plan.changed[id], tx.plan.removed[id] = false, nil, true
end

-- All tasks in the order of the plan; the list follows each change of this transaction.
function tasks.all(tx)
  tasks.head(tx)
  if tx.plan.order then return tx.plan.order end
  local names = redis.call('HKEYS', tx.keys.plan)
  for _, name in ipairs(names) do
    local id = name:match('^task:(.*)$')
    if id then tasks.load(tx, id) end
  end
  local found = {}
  for _, task in pairs(tx.plan.known) do
    if task then table.insert(found, task) end
  end
  table.sort(found, function(a, b) return a.at < b.at end)
  tx.plan.order = found
  return found
end

-- The first `most` of some ids as text, and how many more there are.
function tasks.name(ids, most)
  local text = table.concat(ids, ', ', 1, math.min(#ids, most or 10))
  return #ids > (most or 10) and text .. ' and ' .. #ids - (most or 10) .. ' more' or text
end

local HISTORY = 50   -- entries of a task; the oldest go first

-- Adds an entry to the history of a task.
function tasks.note(tx, task, status, by, note)
  task.history = task.history or {}
  table.insert(task.history, {at = tx.now, status = status, by = by, note = note})
  if #task.history > HISTORY then table.remove(task.history, 1) end
  tx.plan.changed[task.id] = true
end

-- Writes what changed as one new version, and emits it. Returns the version.
function tasks.write(tx, what, by)
  local plan, shown = tx.plan, {}
  for id in pairs(plan.changed) do
    local task = plan.known[id]
    redis.call('HSET', tx.keys.plan, 'task:' .. id, cjson.encode(task))
    table.insert(shown, {id = id, state = task.state, fact = task.fact, word = task.word, run = task.run,
      session = task.session})
  end
  local gone = {}
  for id in pairs(plan.removed) do
    redis.call('HDEL', tx.keys.plan, 'task:' .. id, 'keys:' .. id)
    table.insert(gone, id)
  end
  table.sort(shown, function(a, b) return a.id < b.id end)
  redis.call('HSET', tx.keys.plan, 'head', cjson.encode(plan.head))
  local version = redis.call('HINCRBY', tx.keys.plan, 'version', 1)
  events.emit(tx, 'plan.changed', plan.head.address or '', {version = version, what = what, by = by,
    state = plan.head.state, tasks = #shown > 0 and shown or nil, removed = #gone > 0 and gone or nil})
  plan.changed, plan.removed = {}, {}
  tx.reply.version = version
  return version
end

return tasks
