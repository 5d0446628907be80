-- Edits of a plan: each changes records in memory, and returns why it is refused. The caller writes all or none.
--- @requires plans/links, plans/tasks
local edits = {}

-- The error of an edit: the task or proposal, and what is wrong.
local function refusal(id, why)
  return {id = id, why = why}
end

local function unknown(id)
  return refusal(id, 'the plan has no task ' .. id)
end

local function is_started(task)
  return task.state == 'starting' or task.state == 'running' or task.state == 'merging' or task.fact == 'accepted'
end

local FROZEN = 'it has started; change notes or priority, or abort its session and retry it'

local MAX_TASKS = 500

-- Numbers the tasks in their new order, once for all moves.
local function renumber(tx)
  if not tx.plan.moved then return end
  for number, one in ipairs(tasks.all(tx)) do
    if one.at ~= number then
      one.at = number
      tasks.save(tx, one.id)
    end
  end
  tx.plan.moved = nil
end

-- The ids of the tasks that depend on each task, with the operations so far. It is made once in a transaction: each of
-- a thousand operations would read all tasks.
local function dependents(tx)
  if tx.plan.needed_by then return tx.plan.needed_by end
  local found = {}
  for _, task in ipairs(tasks.all(tx)) do
    for _, id in ipairs(task.deps or {}) do
      found[id] = found[id] or {}
      found[id][task.id] = true
    end
  end
  tx.plan.needed_by = found
  return found
end

-- Notes other dependencies of a task in `dependents`.
local function relink(tx, id, before, deps)
  local found = tx.plan.needed_by
  if not found then return end
  for _, needed in ipairs(before or {}) do found[needed][id] = nil end
  for _, needed in ipairs(deps or {}) do
    found[needed] = found[needed] or {}
    found[needed][id] = true
  end
end

function edits.add(tx, op)
  if tasks.load(tx, op.task.id) then return refusal(op.task.id, 'the plan has a task of this id; choose another') end
  local all = tasks.all(tx)
  if #all >= MAX_TASKS then return refusal(op.task.id, 'the plan has ' .. MAX_TASKS .. ' tasks, its most') end
  local task = op.task
  -- The sessions of a dropped task of this id are named by its runs: the numbers continue.
  local run = (tasks.head(tx).dropped or {})[task.id] or 0
  task.at, task.state, task.run, task.tries = #all > 0 and all[#all].at + 1 or 1, 'waiting', run, 0
  tasks.store(tx, task.id, task)
  relink(tx, task.id, nil, task.deps)
end

-- Open to changes at any time; other fields only until the task starts.
local OPEN = {notes = true, priority = true}

function edits.change(tx, op)
  local task = tasks.load(tx, op.id)
  if not task then return unknown(op.id) end
  for name in pairs(op.spec or {}) do
    if not OPEN[name] and is_started(task) then return refusal(op.id, FROZEN) end
  end
  if op.deps and is_started(task) then return refusal(op.id, FROZEN) end
  for name, text in pairs(op.spec or {}) do task.spec[name] = text end
  if op.deps then
    relink(tx, op.id, task.deps, op.deps)
    task.deps = op.deps
  end
  task.priority, task.notes = op.priority or task.priority, op.notes or task.notes
  tasks.save(tx, op.id)
end

function edits.drop(tx, op)
  local task = tasks.load(tx, op.id)
  if not task then return unknown(op.id) end
  if is_started(task) then return refusal(op.id, 'it has started; abort its session first') end
  local first
  for id in pairs(dependents(tx)[op.id] or {}) do
    local other = tasks.load(tx, id)
    if not first or id < first.id then first = other end
  end
  if first then return refusal(op.id, 'task ' .. first.id .. ' depends on it; change or drop that first') end
  local head = tasks.head(tx)
  if head.halted == op.id then head.halted = nil end
  if task.replan and not task.replan.ended then head.replanning = head.replanning - 1 end
  if task.run > 0 then
    head.dropped = head.dropped or {}
    head.dropped[op.id] = task.run
  end
  relink(tx, op.id, task.deps, nil)
  tasks.remove(tx, op.id)
end

function edits.move(tx, op)
  local task, all = tasks.load(tx, op.id), tasks.all(tx)
  if not task then return unknown(op.id) end
  if op.after == op.id or op.after and not tasks.load(tx, op.after) then return unknown(tostring(op.after)) end
  local from, to
  for number, one in ipairs(all) do
    if one.id == op.id then from = number end
    if one.id == op.after then to = number end
    if from and (to or not op.after) then break end
  end
  table.remove(all, from)
  to = to and (to < from and to + 1 or to) or 1
  table.insert(all, to, task)
  tx.plan.moved = true
end

function edits.retry(tx, op)
  local task = tasks.load(tx, op.id)
  if not task then return unknown(op.id) end
  if task.state ~= 'done' or task.fact == 'accepted' then
    return refusal(op.id, 'only a task that failed can be retried; this one is '
      .. (task.fact == 'accepted' and 'accepted' or task.state))
  end
  local head = tasks.head(tx)
  if head.state ~= 'executing' then return refusal(op.id, 'the plan has ended; resume its session') end
  if head.halted == op.id then head.halted = nil end
  task.state, task.fact, task.word, task.tries = 'waiting', nil, nil, 0
  tasks.note(tx, task, 'pending', tx.args.by, 'retried')
end

-- Carries out operations in order. Returns the first refusal.
local function run(tx, operations)
  for number, op in ipairs(operations) do
    local why = edits[op.op](tx, op)
    if why then
      why.number = number
      return why
    end
  end
end

-- Accepts or refuses a task that a child proposed, or the edit that the team lead proposed.
function edits.decide(tx, op)
  local field = 'proposal:' .. op.proposal
  local text = redis.call('HGET', tx.keys.plan, field)
  if not text then return refusal(op.proposal, 'the plan has no proposal ' .. op.proposal) end
  local proposal = cjson.decode(text)
  if proposal.status ~= 'open' then
    return refusal(op.proposal, 'it was ' .. proposal.status .. ' by ' .. tostring(proposal.decided_by))
  end
  if tx.session.status == 'active' and (proposal.until_ms or math.huge) <= tx.now then
    return refusal(op.proposal, 'it was not decided before its deadline')
  end
  local why
  if op.accept and proposal.operations then
    why = run(tx, proposal.operations)
  elseif op.accept then
    why = edits.add(tx, {task = proposal.task})
  end
  if why then return why end
  proposal.status, proposal.decided_by = op.accept and 'accepted' or 'refused', tx.args.by
  tx.plan.decided = tx.plan.decided or {}
  table.insert(tx.plan.decided, {field, proposal})
  local head = tasks.head(tx)
  head.proposed = head.proposed - 1
end

-- Carries out operations in order. Returns the first refusal, after which nothing may be written.
function edits.apply(tx, operations)
  local why = run(tx, operations)
  if why then return why end
  renumber(tx)
  return links.check(tx)
end

return edits
