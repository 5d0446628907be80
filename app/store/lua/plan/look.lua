-- Looks at a plan that executes: queues what should start and did not, ends what is overdue, and ends the plan if
-- nothing is left.
-- Arguments: none of its own
-- Returns: looked | no_plan
--- @requires dispatch, plans/progress, plans/replans, plans/tasks, transaction
return function(tx)
  if not transaction.read_session(tx) or not tasks.head(tx) then return transaction.reply(tx, 'no_plan') end
  progress.look(tx, replans.end_overdue(tx))
  dispatch.run(tx)
  transaction.flush(tx)
  return transaction.reply(tx, 'looked')
end
