-- Looks at a named lock whose time may be over: its holder's, or that of a waiter that has gone.
-- Arguments: lock
-- Returns: looked
--- @requires locks/named, transaction
return function(tx)
  named.save(tx, tx.args.lock, named.load(tx, tx.args.lock))
  return transaction.reply(tx, 'looked')
end
