-- Takes the unread messages that no turn has got, and acknowledges them for a reader outside the session's steps.
-- Arguments: by, key? (a repeated call gets the same messages)
-- Returns: taken(messages) | unknown
--- @requires inbox, transaction
return function(tx)
  local args = tx.args
  if not transaction.read_session(tx) then return transaction.reply(tx, 'unknown') end
  tx.reply.messages = {}
  for _, id in ipairs(inbox.take(tx, args.by, args.key)) do
    table.insert(tx.reply.messages, inbox.message(tx, id))
  end
  if #tx.reply.messages == 0 then tx.reply.messages = nil end
  transaction.flush(tx)
  return transaction.reply(tx, 'taken')
end
