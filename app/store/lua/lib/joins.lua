-- Joins: a node starts when all that it needs have arrived. A join is a set of names, so repeats do not count.
--- @requires addresses, programs
local joins = {}

-- The name of a node's join in a block; the join at the end of the block for the name ''.
function joins.join_of(tx, block, name)
  return name == '' and block .. '$' or addresses.turn_address(block, name, programs.run_of(tx, block, name))
end

-- Adds an arrival. Returns true for the one that completes the join.
function joins.arrive(tx, join, name, needed)
  if needed <= 1 then return true end
  if redis.call('ZADD', tx.keys.arrived, 'NX', 0, join .. '<' .. name) == 0 then return false end
  local low, high = addresses.range_of(join .. '<')
  if redis.call('ZLEXCOUNT', tx.keys.arrived, low, high) < needed then return false end
  redis.call('ZREMRANGEBYLEX', tx.keys.arrived, low, high)
  return true
end

return joins
