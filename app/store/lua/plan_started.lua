-- Records the child session of a task's run, once it is created.
-- Arguments: task, run, child, folder?, branch?
-- Returns: recorded(version) | repeated | no_plan
--- @requires plans/tasks, transaction
return function(tx)
  local args = tx.args
  local task = transaction.read_session(tx) and tasks.head(tx) and tasks.load(tx, args.task)
  if not task then return transaction.reply(tx, 'no_plan') end
  if task.state ~= 'starting' or task.run ~= args.run then return transaction.reply(tx, 'repeated') end
  task.state, task.session = 'running', args.child
  task.folder, task.branch = args.folder or task.folder, args.branch or task.branch
  task.runs = task.runs or {}
  table.insert(task.runs, {run = args.run, session = args.child, folder = task.folder, branch = task.branch,
    base = task.base})
  tasks.save(tx, args.task)
  tasks.write(tx, 'started', 'engine')
  transaction.flush(tx)
  return transaction.reply(tx, 'recorded')
end
