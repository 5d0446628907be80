-- The audit's checks of one session's plan: its counters, its tasks and what should start.
--- @requires audit/findings, plans/progress, plans/tasks, tree/children
local session_plan = {}

local ENDS = {completed = true, failed = true, exited = true, aborted = true}

-- Whether the start of a task is queued.
local function is_queued(tx, task)
  return redis.call('ZSCORE', tx.shared.errands, 'spawn|' .. tx.args.member .. task.id .. '~' .. task.run)
end

-- Checks a task that starts or runs against its child session.
local function check_task(tx, task)
  if task.state == 'starting' and tx.session.status == 'active' and not is_queued(tx, task) then
    findings.add(tx, 'task_stuck', tx.args.session, 'task ' .. task.id .. ' should start, but that is not queued',
      progress.look)
  elseif task.state == 'running' and redis.call('SISMEMBER', tx.keys.children, task.session) == 1 then
    local status = children.status_of(tx, task.session)
    local report = 'deliver|' .. task.session .. tx.args.member:match('|.*$')
    if ENDS[status] and not redis.call('ZSCORE', tx.shared.errands, report) then
      findings.add(tx, 'task_adrift', tx.args.session,
        'task ' .. task.id .. ' runs, but its session ' .. task.session .. ' is ' .. status,
        function() redis.call('ZADD', tx.shared.errands, tx.now, report) end)
    end
  end
end

-- Checks the plan of a session that executes one.
function session_plan.check(tx)
  local head = tasks.head(tx)
  if not head or head.state ~= 'executing' or tx.session.status ~= 'active' then return end
  local working = 0
  for _, task in ipairs(tasks.all(tx)) do
    if task.state == 'starting' or task.state == 'running' then working = working + 1 end
    check_task(tx, task)
  end
  if working ~= head.working then
    findings.add(tx, 'plan_adrift', tx.args.session,
      'its plan counts ' .. head.working .. ' tasks at work, but ' .. working .. ' are',
      function()
        head.working = working
        progress.relist(tx)
        progress.advance(tx)
        tasks.write(tx, 'repaired', 'engine')
      end)
  end
end

return session_plan
