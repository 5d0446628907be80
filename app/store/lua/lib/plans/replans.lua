-- Asking the team lead for another way, once a task has failed for good: a child session of its own, whose answer is
-- an edit of the plan. The task has a record `replan`: the run that failed, the session, and the status in which it
-- ended; `past` are the sessions that asked about this run before. The plan does not end while one is open.
--- @requires plans/notices, plans/progress, plans/proposals, plans/tasks
local replans = {}

-- The sessions that asked about this run of a task before: it was resumed, and failed again.
local function past_questions(task)
  local last = task.replan
  if not last or last.run ~= task.run then return nil end
  local past = last.past or {}
  if last.session then table.insert(past, last.session) end
  return #past > 0 and past or nil
end

-- Asks the team lead about a task that has failed, if the plan does that and has not done it too often.
function replans.ask(tx, task)
  local head = tasks.head(tx)
  if head.on_failure ~= 'replan' or head.state ~= 'executing' or progress.is_replanned(task) then return end
  if (head.replans or 0) >= head.replan_max then
    tasks.note(tx, task, 'failed', 'engine', 'the team lead is not asked again: ' .. head.replan_max
      .. ' is the most of this plan')
    return
  end
  head.replans, head.replanning = (head.replans or 0) + 1, (head.replanning or 0) + 1
  task.replan = {run = task.run, until_ms = tx.now + head.replan_ms, past = past_questions(task)}
  tasks.note(tx, task, 'failed', 'engine', 'the team lead is asked for another way')
  progress.queue_replan(tx, task)
end

-- Records that no proposal came, and why; a person is called for.
local function record_none(tx, task, why)
  task.replan.why = why
  tasks.note(tx, task, 'failed', 'engine', 'the team lead proposed nothing: ' .. why)
  notices.send(tx, 'replan', task.replan.session or '', task, 'the team lead proposed nothing: ' .. why, true)
end

-- Ends the questions that the team lead has not answered in time. Returns whether there were any.
function replans.end_overdue(tx)
  local head, found = tasks.head(tx), false
  if not head or (head.replanning or 0) == 0 or tx.session.status ~= 'active' then return false end
  for _, task in ipairs(tasks.all(tx)) do
    if progress.is_replanned(task) and task.replan.until_ms <= tx.now then
      head.replanning, task.replan.ended, found = head.replanning - 1, 'deadline', true
      record_none(tx, task, 'no answer before its deadline')
    end
  end
  return found
end

-- Whether the plan goes by this end: the first one, or an answer of a session that was resumed.
local function counts(tx, task, args)
  if not task or not task.replan or task.replan.run ~= args.run then return false end
  if args.status == 'active' or tasks.head(tx).state ~= 'executing' then return false end
  if progress.is_past_question(task, args.child) then return false end
  return progress.is_replanned(task) or args.status == 'completed' and task.replan.ended ~= 'completed'
end

-- Ends the question to the team lead, and records its proposal.
local function close(tx, task, args, word, note)
  local head = tasks.head(tx)
  if progress.is_replanned(task) then head.replanning = head.replanning - 1 end
  task.replan.ended, task.replan.reason = args.status, args.reason
  if args.child ~= '' then task.replan.session = args.child end
  tasks.save(tx, task.id)
  local number = word and proposals.add_edit(tx, task, word, note)
  task.replan.proposal = number
  if not number then record_none(tx, task, args.why or args.reason and args.reason.text or 'it is ' .. args.status) end
end

-- Applies the end of a session that asked the team lead. Returns whether that changed the plan.
function replans.apply(tx, args)
  if not counts(tx, tasks.load(tx, args.task), args) then return false end
  local word, note
  if args.status == 'completed' and args.operations then word, note = proposals.decide_edit(tx, args.operations) end
  local task = tasks.load(tx, args.task)
  if task then close(tx, task, args, word, note) end   -- else its own proposal dropped it
  progress.relist(tx)
  progress.advance(tx)
  return true
end

return replans
