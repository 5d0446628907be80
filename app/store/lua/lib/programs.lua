-- Programs: the routes of their nodes, and the run that each node of this session is at.
--- @requires addresses
local programs = {}

-- Routes by program, the only data that lives from call to call. A program's hash never changes once it is written;
-- `made` marks when it was written, so a program that was deleted and written again has routes of its own.
local kept = {}
local KEPT_MAX = 10000   -- routes, of one or two kilobytes each
local read_so_far = 0    -- routes, in all calls together

-- The table of routes that calls for the same program share.
function programs.shared_routes(made)
  if read_so_far >= KEPT_MAX then kept, read_so_far = {}, 0 end
  kept[made] = kept[made] or {}
  return kept[made]
end

-- The route of a node by its path; nil if the program has no such node.
function programs.route(tx, path)
  local found = tx.routes[path]
  if not found then
    local text = redis.call('HGET', tx.program, '/' .. path)
    found = text and cjson.decode(text)
    tx.routes[path] = found or nil
    read_so_far = read_so_far + 1
  end
  return found
end

-- The route of the node that an address belongs to.
function programs.route_of(tx, address)
  local path = tx.paths[address]
  return path and tx.routes[path] or programs.route(tx, addresses.path_of(tx, address))
end

-- The number of a node's newest run.
function programs.run_of(tx, block, name)
  local node = addresses.within(block, name)
  if not tx.runs[node] then tx.runs[node] = tonumber(redis.call('HGET', tx.keys.runs, node) or 1) end
  return tx.runs[node]
end

-- Makes the node's next run its newest, and returns the number.
function programs.start_run(tx, block, name)
  local run = programs.run_of(tx, block, name) + 1
  tx.runs[addresses.within(block, name)] = run
  redis.call('HSET', tx.keys.runs, addresses.within(block, name), run)
  return run
end

-- Makes the session a user of a program, which is written if it is not stored yet.
function programs.attach(tx, name, document, of_nodes)
  if redis.call('EXISTS', tx.program) == 0 then
    local time = redis.call('TIME')
    local made = '<' .. time[1] .. '.' .. time[2] .. '<' .. tx.args.session
    redis.call('HSET', tx.program, 'document', document, 'made', made)
    for path, text in pairs(of_nodes) do redis.call('HSET', tx.program, '/' .. path, text) end
  end
  redis.call('SADD', tx.prefix .. 'users:' .. name, tx.args.session)
  redis.call('HSET', tx.keys.session, 'made', redis.call('HGET', tx.program, 'made') or '')
end

return programs
