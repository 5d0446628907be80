-- Resuming from a point: nodes that run again get a next run, in whose joins the nodes that count as done have
-- arrived.
--- @requires addresses, cancellation, events, joins, ledger, locks/locks, programs, records, steps/items
--- @requires steps/shares, steps/skips, children, turn_records, turns
local resume = {}

-- Opens the root of a session that has failed.
function resume.reopen_root(tx)
  local root = records.load(tx, 'turns', '')
  root.state, root.verdict, root.reason, root.ended = 'open', nil, nil, nil
  records.save(tx, 'turns', '')
  redis.call('ZADD', tx.keys.open, 0, '')
end

-- Closes a turn because another run takes its place.
function resume.supersede(tx, id, turn)
  local reason = {code = 'superseded', at = id, text = 'the session was resumed from an earlier point'}
  turn.id = id
  cancellation.cancel_below(tx, turn)
  children.abort_below(tx, turn)
  local low, high = addresses.range_below(turn)
  cancellation.close_below(tx, id, low, high, 'cancelled', reason)
  if not turn.each and turn.state == 'open' then ledger.append(tx, id, turn.iteration, 'cancelled', reason) end
  if turn.state == 'open' then turn.verdict, turn.reason = 'cancelled', reason end
  turn.state, turn.ended, turn.id = 'closed', tx.now, nil
  shares.close(tx, id, turn)
  records.save(tx, 'turns', id)
  redis.call('ZREM', tx.keys.open, id)
  locks.release_turn(tx, id)
  redis.call('ZREMRANGEBYLEX', tx.keys.arrived, addresses.range_of(id .. (turn.each and '#' or '[')))
  events.emit(tx, 'loop.closed', id, {verdict = turn.verdict, iterations = turn.iteration, reason = turn.reason})
end

-- Ends the newest run of an outermost node as it is. Returns whether it had started.
local function end_run(tx, name)
  local r, run = programs.route(tx, name), programs.run_of(tx, '', name)
  if r.kind == 'loop' or r.each then
    local id = addresses.turn_address('', name, run)
    local turn = records.load(tx, 'turns', id)
    if turn and turn.state ~= 'closed' then resume.supersede(tx, id, turn) end
    if turn then return true end
    if not r.each then return false end
  end
  local address = addresses.step_address('', name, run)
  local step = records.load(tx, 'steps', address)
  if step and (step.state == 'ready' or step.state == 'parked') then
    cancellation.cancel_step(tx, address, step)
    shares.cover(tx, '', r.weight)
    children.abort_below(tx, {id = address, sign = '<'})   -- a lost attempt may have left one
  end
  return step ~= nil
end

-- Removes the arrivals of nodes that run again; those that count as done arrive at the end of the block.
local function clear_joins(tx, block, nodes)
  for _, node in ipairs(nodes) do
    redis.call('ZREMRANGEBYLEX', tx.keys.arrived, addresses.range_of(joins.join_of(tx, block, node.name) .. '<'))
    for _, name in ipairs(node.name == '' and node.done or {}) do
      redis.call('ZADD', tx.keys.arrived, 0, block .. '$<' .. name)
    end
  end
end

-- Starts the nodes whose needs have all arrived.
local function start_nodes(tx, block, nodes, entered)
  for _, node in ipairs(nodes) do
    if node.name ~= '' and node.name ~= entered then
      local needs = programs.route_of(tx, addresses.within(block, node.name)).needs
      local full = needs == 0
      local join = joins.join_of(tx, block, node.name)
      for _, need in ipairs(node.done) do full = joins.arrive(tx, join, need, needs) end
      if full then turns.start(tx, block, node.name) end
    end
  end
end

-- Copies the items of a for_each whose list counts as done.
local function keep_width(tx, from, to)
  local width = redis.call('HGET', tx.keys.widths, from)
  if not width or from == to then return end
  redis.call('HSET', tx.keys.widths, to, width)
  for item = 1, tonumber(width) do
    redis.call('HSET', tx.keys.items, to .. '#' .. item, redis.call('HGET', tx.keys.items, from .. '#' .. item))
  end
end

-- Opens the next run of a loop at the iteration of an older run.
local function open_at(tx, block, level)
  local id = addresses.turn_address(block, level.node, programs.run_of(tx, block, level.node))
  local raised = turn_records.raised_limit(tx, id)
  local max = raised and raised + (level.recheck and 1 or 0) or level.max
  -- Steps start only in the iteration of the record: a limit that is below it ends the run after that iteration.
  turn_records.open(tx, id, {iteration = level.iteration, max = max, left = level.left, recheck = level.recheck,
    origin = {run = level.run, opened = level.iteration, kept = level.kept}})
  local label = programs.route_of(tx, id).label
  events.emit(tx, 'loop.opened', id, {iteration = level.iteration, max = max, label = label, from = level.run})
  local inside = id .. '[' .. level.iteration .. ']'
  for name, from in pairs(level.widths) do keep_width(tx, from, addresses.within(inside, name)) end
  for name, kept in pairs(level.keeps or {}) do items.keep(tx, addresses.within(inside, name), kept) end
  clear_joins(tx, inside, level.joins)
  return inside
end

-- Closes the innermost opened turn if its limit allows no such iteration.
local function close_if_over(tx, inside)
  local id = addresses.turn_of(inside)
  local turn = records.load(tx, 'turns', id)
  if turn.state ~= 'open' or addresses.iteration_of(inside) <= turn.max then return end
  turns.close(tx, id, 'max_iterations')
end

-- Sets each conversation back to where it was at the point.
local function restore_threads(tx, threads)
  redis.call('DEL', tx.keys.threads)
  for talk, kept in pairs(threads) do redis.call('HSET', tx.keys.threads, talk, kept) end
end

-- Runs nodes again. All runs are in place before the first node starts: what starts may end at once.
function resume.run_again(tx, nodes, levels, threads)
  if threads then restore_threads(tx, threads) end
  for _, node in ipairs(nodes) do
    if node.name ~= '' and end_run(tx, node.name) then
      programs.start_run(tx, '', node.name)
      local r = programs.route(tx, node.name)
      if r.kind == 'step' and not r.each then shares.expect(tx, '', r.weight) end
      if r.each then items.keep(tx, node.name, (tx.args.keeps or {})[node.name]) end
    end
  end
  clear_joins(tx, '', nodes)
  local inside, block = {}, ''
  for _, level in ipairs(levels) do
    block = open_at(tx, block, level)
    table.insert(inside, block)
  end
  if #inside > 0 then close_if_over(tx, block) end
  for _, skipped in ipairs(tx.args.skips or {}) do
    skips.mark(tx, addresses.within(block, skipped.name), skipped.reason, skipped.lists)
  end
  start_nodes(tx, '', nodes, levels[1] and levels[1].node)
  for i, opened in ipairs(inside) do start_nodes(tx, opened, levels[i].joins, levels[i + 1] and levels[i + 1].node) end
  -- A budget may have ended the session while its last steps ran, which then succeeded.
  if #nodes == 1 then turns.close(tx, '', 'accept', {code = 'done'}) end
end

return resume
