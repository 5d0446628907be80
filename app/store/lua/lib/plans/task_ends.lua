-- The end of a task for good: its work is accepted, and merged if the plan merges, or it has failed.
--- @requires plans/notices, plans/plan_end, plans/progress, plans/replans, plans/tasks, webhooks
local task_ends = {}

-- Accepts the work of a task, and lists the tasks that waited for it.
function task_ends.accept(tx, task)
  task.state, task.fact, task.reason = 'done', 'accepted', nil
  local how = task.merged and 'its work is merged' or 'its session was accepted'
  notices.send(tx, 'accepted', task.session, task, how)
  tasks.note(tx, task, 'completed', 'engine', task.merged and 'merged as ' .. task.merged:sub(1, 12) or nil)
  for _, id in ipairs(task.dependents or {}) do
    local other = tasks.load(tx, id)
    if other then progress.list_startable(tx, other) end
  end
end

-- Records that a task has failed, for `task.reason`.
function task_ends.fail(tx, task, status)
  local head = tasks.head(tx)
  task.state, task.fact = 'done', status
  if task.word ~= 'blocked' then task.word = nil end
  notices.send(tx, 'failed', task.session or '', task, plan_end.reason_text(task), true)
  webhooks.enqueue_about_task(tx, 'task_failed', task, {status = task.word or 'failed', reason = task.reason})
  if head.on_failure == 'stop' then head.halted = task.id end
  tasks.note(tx, task, task.word or 'failed', 'engine', plan_end.reason_text(task))
  replans.ask(tx, task)
end

return task_ends
