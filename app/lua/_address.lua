-- Addresses: name~run[iteration]#item, joined by '/'; and the routes of the nodes that they name.
local function path_of(address)
  local path = paths[address]
  if not path then
    path = address:gsub('[~%[#]%d+%]?', '')   -- runs, iterations and items
    paths[address] = path
  end
  return path
end

local function within(block, name)
  return block == '' and name or block .. '/' .. name
end

-- The block instance that an address stands in: outer~1[1]/ask -> outer~1[1]; fetch~1#17 -> fetch~1
local function block_of(address)
  local each = address:match('^(.*)#%d+$')
  return each or address:match('^(.*)/[^/]*$') or ''
end

-- The name of an address in its block: outer~1[1]/ask~2 -> ask
local function name_of(address)
  return path_of(address:match('[^/]*$'))
end

-- The turn that a block belongs to: green~1[2] -> green~1; fetch~1 and '' are their own
local function turn_of(block)
  return (block:gsub('%[%d+%]$', ''))
end

local function iteration_of(block)
  return tonumber(block:match('%[(%d+)%]$') or 0)
end

-- The turns around a block instance, innermost first, each with the iteration that the block lies in.
local function turns_around(block)
  local found = {}
  while block ~= '' do
    table.insert(found, {id = turn_of(block), iteration = iteration_of(block)})
    block = block_of(turn_of(block))
  end
  table.insert(found, {id = '', iteration = 0})
  return found
end

local function route(path)
  local found = routes[path]
  if not found then
    local text = redis.call('HGET', PROGRAM, '/' .. path)
    found = text and cjson.decode(text)
    routes[path] = found or nil
    read_so_far = read_so_far + 1
  end
  return found
end

local function run_of(block, name)
  local node = within(block, name)
  if not runs[node] then runs[node] = tonumber(redis.call('HGET', K.runs, node) or 1) end
  return runs[node]
end

-- From now on the node's next run is meant.
local function count_run(block, name)
  local run = run_of(block, name) + 1
  runs[within(block, name)] = run
  redis.call('HSET', K.runs, within(block, name), run)
  return run
end

local function step_address(block, name, run)
  return run > 1 and within(block, name) .. '~' .. run or within(block, name)
end

local function turn_address(block, name, run)
  return within(block, name) .. '~' .. run
end

-- What lies below a turn begins with one of these.
local function below(turn)
  if turn.id == '' then return '-', '+' end
  return range_of(turn.id .. (turn.sign or turn.each and '#' or '['))
end
