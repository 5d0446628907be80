-- The end of a task's child session, or its resume: the fact that the plan goes by, counted once.
-- Arguments: task, run, child, status, reason?, address (of the step that executes the plan),
--   merge? (the child merges), replan? (the child asked the team lead), operations? (its proposal),
--   edit? (the same as its author wrote it), why?, by? (the author of the proposal)
-- Returns: applied(version) | repeated | no_plan
--- @requires dispatch, plans/child_ends, plans/merges, plans/replans, plans/tasks, transaction, children
--- @requires usage
return function(tx)
  local args = tx.args
  local task = transaction.read_session(tx) and tasks.head(tx) and tasks.load(tx, args.task)
  if not task then return transaction.reply(tx, 'no_plan') end
  local now = args.child ~= '' and (children.status_of(tx, args.child) or 'deleted')
  if now and now ~= args.status then return transaction.reply(tx, 'repeated') end   -- its newer status is reported too
  usage.add_child(tx, args.child, args.address)
  local changed = false
  if args.replan then
    changed = replans.apply(tx, args)
  elseif task.run == args.run and args.merge then
    changed = merges.apply(tx, task, args.child, args.status, args.reason)
  elseif task.run == args.run then
    if args.child ~= '' and task.state == 'starting' then   -- it ended before its creation was recorded
      task.session = args.child
      task.runs = task.runs or {}
      table.insert(task.runs, {run = args.run, session = args.child, folder = task.folder, branch = task.branch,
        base = task.base})
    end
    changed = child_ends.apply(tx, task, args.status, args.reason)
  end
  if changed then tasks.write(tx, args.status, args.child) end
  dispatch.run(tx)
  transaction.flush(tx)
  return transaction.reply(tx, changed and 'applied' or 'repeated')
end
