-- Reads a stack with the workflow sessions that are on it.
-- Arguments: stack
-- Returns: looked(stack)
--- @requires stacks, transaction
return function(tx)
  stacks.show(tx)
  return transaction.reply(tx, 'looked')
end
