-- Reads a stack for a change or for a look: its record, the workflow sessions on it without their steps, and the whole
-- record of one.
-- Arguments: stack, workflow? (by default the active one, '' for none), to? (another name, which no stack may have),
--   nonce? (of the change), store? (the id that the caller expects)
-- Returns: begun(stack) | other_store
--- @requires stacks, transaction
return function(tx)
  if transaction.is_other_store(tx) then return transaction.reply(tx, 'other_store') end
  stacks.read(tx)
  return transaction.reply(tx, 'begun')
end
