-- The audit's checks of one session's plan: its counters, its tasks and what should start.
--- @requires audit/findings, plans/progress, plans/tasks, children
local session_plan = {}

local ENDS = {completed = true, failed = true, exited = true, aborted = true}

-- Whether the creation of a session is queued.
local function is_queued(tx, prefix, task, run)
  return redis.call('ZSCORE', tx.shared.errands, 'spawn|' .. tx.args.member .. prefix .. task.id .. '~' .. run)
end

-- Checks that a session which is to work for a task is queued, or works.
local function check_session(tx, prefix, task, run, session)
  if not session then
    if tx.session.status == 'active' and not is_queued(tx, prefix, task, run) then
      findings.add(tx, 'task_stuck', tx.args.session, 'task ' .. task.id .. ' should start, but that is not queued',
        progress.look)
    end
  elseif redis.call('SISMEMBER', tx.keys.children, session) == 1 then
    local status = children.status_of(tx, session)
    local report = 'deliver|' .. session .. tx.args.member:match('|.*$')
    if ENDS[status] and not redis.call('ZSCORE', tx.shared.errands, report) then
      findings.add(tx, 'task_adrift', tx.args.session,
        'task ' .. task.id .. ' runs, but its session ' .. session .. ' is ' .. status,
        function() redis.call('ZADD', tx.shared.errands, tx.now, report) end)
    end
  end
end

-- Checks a task against its child sessions. Returns whether one works for it, and whether the team lead is asked.
local function check_task(tx, task)
  local works = task.state == 'starting' or task.state == 'running' or task.state == 'merging'
  if task.state == 'merging' then
    check_session(tx, 'merge/', task, task.run, task.merge.session)
  elseif works then
    check_session(tx, '', task, task.run, task.state == 'running' and task.session)
  end
  local asks = progress.is_replanned(task)
  if asks then check_session(tx, 'replan/', task, task.replan.run, task.replan.session) end
  return works, asks
end

-- Checks the plan of a session that executes one.
function session_plan.check(tx)
  local head = tasks.head(tx)
  if not head or head.state ~= 'executing' or tx.session.status ~= 'active' then return end
  local working, merging, asked = 0, 0, 0
  for _, task in ipairs(tasks.all(tx)) do
    local works, asks = check_task(tx, task)
    if task.state == 'merging' then merging = merging + 1 elseif works then working = working + 1 end
    if asks then asked = asked + 1 end
  end
  local kept, found = head.working + (head.merging or 0) + (head.replanning or 0), working + merging + asked
  if found ~= kept then
    findings.add(tx, 'plan_adrift', tx.args.session,
      'its plan counts ' .. kept .. ' tasks at work, but ' .. found .. ' are',
      function()
        head.working, head.merging, head.replanning = working, merging, asked
        progress.relist(tx)
        progress.advance(tx)
        tasks.write(tx, 'repaired', 'engine')
      end)
  end
end

return session_plan
