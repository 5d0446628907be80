-- Writes a stack as its caller has computed it from the one that it read.
-- Arguments: stack, version (that the caller saw), head (its record), records (by id, the changed fields; null: to
--   remove), line? (the ids on it), new? and gone? (the id of a workflow session that begins or loses its record),
--   started and entry (of that in the list of all), to? (its new name), keep_s, workflow? and store? (as of begin),
--   nonce? with call (what a repeated call gets)
-- Returns: written | changed(stack, as of begin) | other_store
--- @requires stacks
return function(tx)
  return stacks.write(tx)
end
