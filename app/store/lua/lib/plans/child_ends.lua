-- What the end of a child session, or its resume, makes of the task that it carries out.
--- @requires plans/merges, plans/notices, plans/plan_end, plans/progress, plans/task_ends, plans/tasks
local child_ends = {}

-- Whether a failed task gets another run.
local function may_retry(head, task, status)
  return status == 'failed' and task.tries < head.retries and not head.halted
end

local function fail(tx, task, status, reason)
  local head = tasks.head(tx)
  if task.word == 'completed' then
    reason = {code = 'contested', text = 'session ' .. task.session .. ' reported completed, and is ' .. status,
      beneath = reason}
  end
  task.reason = reason or {code = 'failed_step', text = 'its session is ' .. status}
  if may_retry(head, task, status) then
    task.state, task.tries = 'waiting', task.tries + 1
    tasks.note(tx, task, 'pending', 'engine', 'another run: ' .. plan_end.reason_text(task))
    return progress.list_startable(tx, task)
  end
  task_ends.fail(tx, task, status)
end

-- Applies the end, or the resume, of the child session of a task's run. Returns whether that changed the plan.
function child_ends.apply(tx, task, status, reason)
  local head = tasks.head(tx)
  local can_resume = head.state == 'executing' and task.fact ~= 'accepted'
    and (task.state == 'done' and not task.merge or task.state == 'waiting' and task.session)
  -- A child that was resumed may have ended before its resume was reported.
  if status == 'completed' and can_resume then child_ends.apply(tx, task, 'active') end
  local works = task.state == 'starting' or task.state == 'running'
  if status == 'active' then
    if not can_resume then return false end
    redis.call('ZREM', tx.keys.startable, task.id)
    task.state, task.fact, task.word, task.reason = 'running', nil, nil, nil
    if head.halted == task.id then head.halted = nil end
    head.working = head.working + 1
    tasks.note(tx, task, 'in_progress', 'engine', 'its session was resumed')
    return true
  end
  if not works then
    local is_late = status == 'completed' and task.fact ~= 'accepted' and head.state ~= 'executing'
    if is_late then notices.send(tx, 'end', task.session, task, 'accepted after the plan had ended') end
    return false
  end
  head.working = head.working - 1
  for _, run in ipairs(task.runs or {}) do
    if run.run == task.run then run.ended, run.reason = status, reason end
  end
  if status ~= 'completed' then
    fail(tx, task, status, reason)
  elseif merges.is_due(tx, task) then
    merges.begin(tx, task)
  else
    task_ends.accept(tx, task)
  end
  progress.advance(tx)
  return true
end

return child_ends
