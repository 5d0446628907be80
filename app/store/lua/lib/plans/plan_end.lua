-- The end of a plan: its reason, and the outcome of the step that executes it.
--- @requires events, outcomes, plans/tasks, records
local plan_end = {}

-- What came of the tasks: accepted and failed ones, and those that did not start.
local function sort_out(tx)
  local accepted, failed, open, sessions, worktrees = 0, {}, {}, {}, {}
  for _, task in ipairs(tasks.all(tx)) do
    if task.fact == 'accepted' then accepted = accepted + 1
    elseif task.state == 'done' then table.insert(failed, task)
    else table.insert(open, task.id) end
    if task.session then table.insert(sessions, {id = task.id, session = task.session, run = task.run}) end
    if task.folder then
      table.insert(worktrees, {id = task.id, folder = task.folder, branch = task.branch, base = task.base,
        merged = task.merged})
    end
  end
  return accepted, failed, open, sessions, worktrees
end

local function reason_of_end(tx, accepted, failed, open)
  local head, first = tasks.head(tx), failed[1]
  local beneath = first and first.reason
  if head.halted then
    beneath = (tasks.load(tx, head.halted) or first or {}).reason
    return {code = 'failed_step', at = head.address, beneath = beneath,
      text = 'task ' .. head.halted .. ' failed, and the plan ends at the first failed task'}
  elseif #open > 0 then
    return {code = 'blocked_on', at = head.address, beneath = beneath,
      text = 'tasks cannot start, because a task that they need was not accepted: ' .. tasks.name(open)}
  elseif accepted == 0 then
    return {code = 'failed_step', at = head.address, beneath = beneath, text = 'no task was accepted'}
  end
end

-- Why a task failed, as text.
function plan_end.reason_text(task)
  return task.reason and task.reason.text or task.fact
end

-- Settles the execute step, once no task works and none may start.
function plan_end.settle(tx)
  local head = tasks.head(tx)
  local step = records.load(tx, 'steps', head.address)
  if not step or step.state ~= 'parked' then return end
  local accepted, failed, open, sessions, worktrees = sort_out(tx)
  local reason = reason_of_end(tx, accepted, failed, open)
  local bad = {}
  for _, task in ipairs(failed) do
    table.insert(bad, {id = task.id, reason = plan_end.reason_text(task), session = task.session})
    if not reason then events.warn(tx, 'task ' .. task.id .. ' failed: ' .. tostring(plan_end.reason_text(task))) end
  end
  local text = accepted .. ' of ' .. accepted + #failed + #open .. ' tasks accepted'
  local word = reason and 'failed' or 'succeeded'
  head.state, step.answered_by = 'ended', 'plan'
  tx.document = cjson.encode({word = word, text = text, reason = reason, value = {accepted = accepted,
    sessions = #sessions > 0 and sessions or nil, worktrees = #worktrees > 0 and worktrees or nil,
    failed = #bad > 0 and bad or nil, open = #open > 0 and open or nil}})
  outcomes.finish(tx, head.address, step, word, nil, reason, text)
end

return plan_end
