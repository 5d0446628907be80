-- Merging the accepted work of a task: a child session of its own, whose end is the fact that dependants wait for.
-- A merging task has a record `merge`: the session, once it is created, and the status in which it ended.
--- @requires plans/progress, plans/task_ends, plans/tasks
local merges = {}

-- Whether the accepted work of a task is merged, and not accepted as it is.
function merges.is_due(tx, task)
  return tasks.head(tx).merge == true and task.branch ~= nil
end

-- Starts the merge of a task's accepted work.
function merges.begin(tx, task)
  local head = tasks.head(tx)
  task.state, task.merge, task.reason = 'merging', {run = task.run}, nil
  head.merging = (head.merging or 0) + 1
  tasks.note(tx, task, 'in_progress', 'engine', 'accepted; its work is being merged')
  progress.queue_merge(tx, task)
end

-- The reason of a merge that failed: that it is in conflict, or that the checkers refused it, from the whole chain.
local function reason_of(task, status, reason)
  local link = reason
  while link do
    if link.code == 'conflict' or link.code == 'recheck_failed' then
      return {code = link.code, text = link.text, beneath = reason}
    end
    link = link.beneath
  end
  return {code = 'conflict', text = 'its merge session ' .. (task.merge.session or '') .. ' is ' .. status,
    beneath = reason}
end

-- A merge session that had ended was resumed.
local function resume(tx, task)
  local head = tasks.head(tx)
  if head.state ~= 'executing' or task.state ~= 'done' then return false end
  if task.fact == 'accepted' or not task.merge then return false end
  task.state, task.fact, task.reason, task.merge.ended = 'merging', nil, nil, nil
  if head.halted == task.id then head.halted = nil end
  head.merging = (head.merging or 0) + 1
  tasks.note(tx, task, 'in_progress', 'engine', 'its merge was resumed')
  return true
end

-- Applies the end, or the resume, of a merge session. Returns whether that changed the plan.
function merges.apply(tx, task, child, status, reason)
  if status == 'active' then return resume(tx, task) end
  if status == 'completed' and task.state == 'done' then resume(tx, task) end
  if task.state ~= 'merging' then return false end
  local head = tasks.head(tx)
  head.merging = head.merging - 1
  task.merge.ended, task.merge.reason, task.merge.at = status, reason, tx.now
  if child ~= '' then task.merge.session = child end
  if status == 'completed' then
    task_ends.accept(tx, task)
  else
    task.reason = reason_of(task, status, reason)
    task_ends.fail(tx, task, status)
  end
  progress.advance(tx)
  return true
end

return merges
