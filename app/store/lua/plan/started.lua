-- Records the child session of a task's run, the one that merges its work, or the one that asks the team lead about it,
-- once it is created.
-- Arguments: task, run, child, folder?, branch?, merge? (the child merges), replan? (it asks the team lead)
-- Returns: recorded(version) | repeated | no_plan
--- @requires plans/progress, plans/tasks, transaction
local function record(tx, task, args)
  task.state, task.session = 'running', args.child
  task.folder, task.branch = args.folder or task.folder, args.branch or task.branch
  task.runs = task.runs or {}
  table.insert(task.runs, {run = args.run, session = args.child, folder = task.folder, branch = task.branch,
    base = task.base})
end

return function(tx)
  local args = tx.args
  local task = transaction.read_session(tx) and tasks.head(tx) and tasks.load(tx, args.task)
  if not task then return transaction.reply(tx, 'no_plan') end
  local is_due = task.state == 'starting'
  if args.merge then is_due = task.state == 'merging' and not task.merge.session end
  local run = task.run
  if args.replan then
    is_due, run = progress.is_replanned(task) and not task.replan.session, (task.replan or {}).run
    is_due = is_due and not progress.is_past_question(task, args.child)
  end
  if not is_due or run ~= args.run then return transaction.reply(tx, 'repeated') end
  if args.merge then
    task.merge.session = args.child
  elseif args.replan then
    task.replan.session = args.child
  else
    record(tx, task, args)
  end
  tasks.save(tx, args.task)
  tasks.write(tx, 'started', 'engine')
  transaction.flush(tx)
  return transaction.reply(tx, 'recorded')
end
