-- Gives a stack another name, and another folder: that of a project which was renamed or moved.
-- Arguments: stack, to (the new name), folder?, place?, owner?, nonce?
-- Returns: moved(stack: under its new name) | missing (there is none of the old name) | occupied (there is one of the
--   new name)
--- @requires stack/stacks
local function move(tx)
  local word = stacks.rename(tx, tx.args.to)
  if word then return word end
  stacks.describe_again(tx, tx.args.folder, tx.args.place)
  return 'moved', ''
end

return function(tx)
  return stacks.once(tx, move)
end
