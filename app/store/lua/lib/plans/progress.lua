-- The progress of a plan that executes: which tasks start, and what their child sessions come to.
-- A task is waiting, starting (its child is being created), running, merging or done. Its fact is the status in which
-- its child, or the merge of its work, ended; `accepted` is the only one that its dependants wait for.
--- @requires inbox, plans/links, plans/plan_end, plans/tasks, records
local progress = {}

-- Whether a dependency of the task is not accepted yet.
local function waits(tx, task)
  for _, id in ipairs(task.deps or {}) do
    local needed = tasks.load(tx, id)
    if not needed or needed.fact ~= 'accepted' then return true end
  end
  return false
end

-- Lists a waiting task among those that may start, by priority and then by the order of the plan.
function progress.list_startable(tx, task)
  if task.state == 'waiting' and not waits(tx, task) then
    redis.call('ZADD', tx.keys.startable, task.priority * 1000000 + task.at, task.id)
  end
end

-- Queues the creation of a child session.
local function queue(tx, task, prefix, run)
  local errand = 'spawn|' .. tx.args.member .. prefix .. task.id .. '~' .. (run or task.run)
  redis.call('ZADD', tx.shared.errands, tx.now, errand)
  tx.reply.spawn = tx.reply.spawn or {}
  table.insert(tx.reply.spawn, errand)
end

-- Queues the creation of the session that merges a task's work.
function progress.queue_merge(tx, task)
  queue(tx, task, 'merge/')
end

-- Queues the creation of the session that asks the team lead for another way.
function progress.queue_replan(tx, task)
  queue(tx, task, 'replan/', task.replan.run)
end

-- Whether the team lead is being asked about a task.
function progress.is_replanned(task)
  return task.replan ~= nil and not task.replan.ended
end

-- Whether a session asked the team lead earlier about the run that it is asked about now.
function progress.is_past_question(task, session)
  for _, past in ipairs(task.replan.past or {}) do
    if past == session then return true end
  end
  return false
end

local function start(tx, task)
  local head = tasks.head(tx)
  task.state, task.run, task.session, task.word = 'starting', task.run + 1, nil, nil
  task.said, task.folder, task.branch, task.base, task.cleaned, task.kept = nil, nil, nil, nil, nil, nil
  task.merge, task.merged, task.tip, task.into = nil, nil, nil, nil
  head.working = head.working + 1
  tasks.note(tx, task, 'in_progress', 'engine', task.run > 1 and 'run ' .. task.run or nil)
  queue(tx, task, '')
end

-- Starts what may start, up to the limit of the plan; ends the plan if nothing is left to do.
function progress.advance(tx)
  local head = tasks.head(tx)
  local step = head.address and records.load(tx, 'steps', head.address)
  local executes = head.state == 'executing' and step and step.state == 'parked'   -- not cancelled by a budget
  if not executes or tx.session.status ~= 'active' then return end
  while head.working < head.at_once and not head.halted do
    local id = redis.call('ZPOPMIN', tx.keys.startable)[1]
    if not id then break end
    start(tx, tasks.load(tx, id))
  end
  local idle = head.halted or redis.call('ZCARD', tx.keys.startable) == 0
  local works = head.working + (head.merging or 0) + (head.replanning or 0) > 0
  if not works and idle and (head.halted or (head.proposed or 0) == 0) then plan_end.settle(tx) end
end

-- Lists anew which tasks may start: after the draft, an edit, or a resume.
function progress.relist(tx)
  redis.call('DEL', tx.keys.startable)
  if tasks.head(tx).state ~= 'executing' then return end
  for _, task in ipairs(tasks.all(tx)) do progress.list_startable(tx, task) end
end

-- Adopts the team lead's draft. Edits of an earlier draft are replaced; nothing has started yet.
function progress.adopt(tx, draft)
  local head = tasks.head(tx)
  if head and head.state ~= 'refining' then return end
  local before = head and tasks.all(tx) or {}
  for number = #before, 1, -1 do tasks.remove(tx, before[number].id) end
  tx.plan.head = {state = 'refining', at_once = draft.at_once, retries = draft.retries, on_failure = draft.on_failure,
    proposals = draft.proposals, proposal_ms = draft.proposal_ms, merge = draft.merge, working = 0, merging = 0,
    replan_max = draft.replan_max, replan_ms = draft.replan_ms}
  for number, task in ipairs(draft.tasks) do
    task.at, task.state, task.run, task.tries = number, 'waiting', 0, 0
    tasks.store(tx, task.id, task)
  end
  links.check(tx)
  tasks.write(tx, 'drafted', 'engine')
end

-- The execute step has parked: the tasks begin. A resumed plan runs its failed tasks again.
function progress.begin(tx, address)
  local head = tasks.head(tx)
  head.state, head.address, head.halted, head.working, head.merging = 'executing', address, nil, 0, 0
  head.replans, head.replanning = nil, nil
  for _, task in ipairs(tasks.all(tx)) do
    if task.state ~= 'waiting' and task.fact ~= 'accepted' then
      task.state, task.fact, task.tries, task.replan = 'waiting', nil, 0, nil
      tasks.save(tx, task.id)
    end
  end
  progress.relist(tx)
  progress.advance(tx)
  tasks.write(tx, 'began', 'engine')
end

-- Refuses the proposals that no person has decided about in time. Returns whether there were any.
local function refuse_overdue(tx, head)
  if (head.proposed or 0) == 0 or tx.session.status ~= 'active' then return false end
  local before = head.proposed
  for _, name in ipairs(redis.call('HKEYS', tx.keys.plan)) do
    local record = name:find('^proposal:') and cjson.decode(redis.call('HGET', tx.keys.plan, name))
    if record and record.status == 'open' and record.until_ms and record.until_ms <= tx.now then
      record.status, record.decided_by, record.note = 'refused', 'deadline', 'no decision before its deadline'
      head.proposed = head.proposed - 1
      redis.call('HSET', tx.keys.plan, name, cjson.encode(record))
      inbox.stop_calling(tx, record.message)
    end
  end
  return head.proposed < before
end

-- Queues again what a stop or a crash kept from starting, and refuses what was proposed and not decided about in time.
-- `changed`: whether the plan has changed already.
function progress.look(tx, changed)
  local head = tasks.head(tx)
  if not head or head.state ~= 'executing' then return end
  changed = refuse_overdue(tx, head) or changed
  for _, task in ipairs(tasks.all(tx)) do
    if task.state == 'starting' then queue(tx, task, '') end
    if task.state == 'merging' and not task.merge.session then progress.queue_merge(tx, task) end
    if progress.is_replanned(task) and not task.replan.session then progress.queue_replan(tx, task) end
  end
  local working = head.working
  progress.advance(tx)
  if changed or head.working ~= working or head.state ~= 'executing' then tasks.write(tx, 'advanced', 'engine') end
end

return progress
