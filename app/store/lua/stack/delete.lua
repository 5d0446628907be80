-- Writes a stack from which a workflow session is deleted, also on a server that has no memory left.
-- Arguments: as of write
-- Returns: as of write
--- @requires stacks
return function(tx)
  return stacks.write(tx)
end
