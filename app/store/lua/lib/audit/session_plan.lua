-- The audit's checks of one session's plan: its counters, its tasks and what should start.
--- @requires audit/findings, plans/progress, plans/tasks, tree/children
local session_plan = {}

local ENDS = {completed = true, failed = true, exited = true, aborted = true}

-- Whether the start of a task is queued.
local function is_queued(tx, task)
  local prefix = task.state == 'merging' and 'merge/' or ''
  return redis.call('ZSCORE', tx.shared.errands, 'spawn|' .. tx.args.member .. prefix .. task.id .. '~' .. task.run)
end

-- Checks a task that starts or runs against its child session.
local function check_task(tx, task)
  local session = task.session
  if task.state == 'merging' then session = task.merge.session end
  local is_new = task.state == 'starting' or task.state == 'merging' and not session
  if is_new and tx.session.status == 'active' and not is_queued(tx, task) then
    findings.add(tx, 'task_stuck', tx.args.session, 'task ' .. task.id .. ' should start, but that is not queued',
      progress.look)
  elseif not is_new and redis.call('SISMEMBER', tx.keys.children, session) == 1 then
    local status = children.status_of(tx, session)
    local report = 'deliver|' .. session .. tx.args.member:match('|.*$')
    if ENDS[status] and not redis.call('ZSCORE', tx.shared.errands, report) then
      findings.add(tx, 'task_adrift', tx.args.session,
        'task ' .. task.id .. ' runs, but its session ' .. session .. ' is ' .. status,
        function() redis.call('ZADD', tx.shared.errands, tx.now, report) end)
    end
  end
end

-- Checks the plan of a session that executes one.
function session_plan.check(tx)
  local head = tasks.head(tx)
  if not head or head.state ~= 'executing' or tx.session.status ~= 'active' then return end
  local working, merging = 0, 0
  for _, task in ipairs(tasks.all(tx)) do
    if task.state == 'starting' or task.state == 'running' then working = working + 1 end
    if task.state == 'merging' then merging = merging + 1 end
    if task.state == 'starting' or task.state == 'running' or task.state == 'merging' then check_task(tx, task) end
  end
  if working + merging ~= head.working + (head.merging or 0) then
    findings.add(tx, 'plan_adrift', tx.args.session,
      'its plan counts ' .. head.working + (head.merging or 0) .. ' tasks at work, but ' .. working + merging .. ' are',
      function()
        head.working, head.merging = working, merging
        progress.relist(tx)
        progress.advance(tx)
        tasks.write(tx, 'repaired', 'engine')
      end)
  end
end

return session_plan
