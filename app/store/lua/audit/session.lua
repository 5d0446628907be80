-- Audits one session: its places in the indexes, its deadlines, its tree, and what keeps it from going on.
-- Arguments: repair
-- Returns: looked(found) | gone
--- @requires audit/findings, audit/session_holds, audit/session_inbox, audit/session_indexes, audit/session_plan
--- @requires audit/session_progress
--- @requires audit/session_tree, dispatch, transaction
return function(tx)
  findings.begin(tx)
  if not transaction.read_session(tx) then return transaction.reply(tx, 'gone') end
  local works = transaction.AT_WORK[tx.session.status] or false   -- before repairs
  session_indexes.check(tx, works)
  session_tree.check(tx, works)
  session_progress.check(tx)
  session_plan.check(tx)
  session_holds.check(tx)
  session_inbox.check(tx)
  session_indexes.check_deadlines(tx, works)
  if tx.args.repair and #tx.reply.found > 0 then
    dispatch.run(tx)
    transaction.flush(tx)
  end
  return transaction.reply(tx, 'looked')
end
