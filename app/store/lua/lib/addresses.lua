-- Addresses of steps and turns: name~run[iteration]#item, joined by '/'. Also the ranges of names in sorted sets
-- that are ordered by name.
local addresses = {}

-- The node that an address belongs to: its path without runs, iterations and items.
function addresses.path_of(tx, address)
  local path = tx.paths[address]
  if not path then
    path = address:gsub('[~%[#]%d+%]?', '')   -- runs, iterations and items
    tx.paths[address] = path
  end
  return path
end

-- The path of a node in a block.
function addresses.within(block, name)
  return block == '' and name or block .. '/' .. name
end

-- The block instance around an address: outer~1[1]/ask -> outer~1[1]; fetch~1#17 -> fetch~1
function addresses.block_of(address)
  local each = address:match('^(.*)#%d+$')
  return each or address:match('^(.*)/[^/]*$') or ''
end

-- The name of an address in its block: outer~1[1]/ask~2 -> ask
function addresses.name_of(tx, address)
  return addresses.path_of(tx, address:match('[^/]*$'))
end

-- The turn of a block instance: green~1[2] -> green~1; fetch~1 and '' are their own turns.
function addresses.turn_of(block)
  return (block:gsub('%[%d+%]$', ''))
end

-- The iteration that a block instance is, 0 if it is none.
function addresses.iteration_of(block)
  return tonumber(block:match('%[(%d+)%]$') or 0)
end

-- The turns around a block instance, innermost first, each with the iteration that contains the block.
function addresses.turns_around(block)
  local found = {}
  while block ~= '' do
    table.insert(found, {id = addresses.turn_of(block), iteration = addresses.iteration_of(block)})
    block = addresses.block_of(addresses.turn_of(block))
  end
  table.insert(found, {id = '', iteration = 0})
  return found
end

-- The address of a node's run as a step.
function addresses.step_address(block, name, run)
  return run > 1 and addresses.within(block, name) .. '~' .. run or addresses.within(block, name)
end

-- The address of a node's run as a turn.
function addresses.turn_address(block, name, run)
  return addresses.within(block, name) .. '~' .. run
end

-- The name of an address in the lists across sessions: session|root|address.
function addresses.member(tx, address)
  return tx.args.member .. address
end

-- The bounds of all names that begin with a prefix: from the prefix up to the next character.
function addresses.range_of(prefix)
  local last = prefix:byte(-1)
  return '[' .. prefix, '(' .. prefix:sub(1, -2) .. string.char(last + 1)
end

-- The bounds of all addresses below a turn, or of the lines that begin with one (`sign` ends the turn's id).
function addresses.range_below(turn)
  if turn.id == '' then return '-', '+' end
  return addresses.range_of(turn.id .. (turn.sign or turn.each and '#' or '['))
end

return addresses
