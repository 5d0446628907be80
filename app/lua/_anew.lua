-- What runs anew when a session is resumed: next runs of nodes, for which what counts as done has arrived.
local anew = {}
do   -- a script may have 200 locals: these are seen here alone

function anew.reopen_root()
  local root = load('turns', '')
  root.state, root.verdict, root.reason, root.ended = 'open', nil, nil, nil
  save('turns', '')
  redis.call('ZADD', K.open, 0, '')
end

-- A turn that goes no further, because another run takes its place.
function anew.supersede(id, turn)
  local reason = {code = 'superseded', at = id, text = 'the session was resumed from an earlier point'}
  turn.id = id
  cancel_below(turn)
  abort_children(turn)
  local low, high = below(turn)
  close_below(id, low, high, 'cancelled', reason)
  if not turn.each and turn.state == 'open' then record_iteration(id, turn.iteration, 'cancelled', reason) end
  if turn.state == 'open' then turn.verdict, turn.reason = 'cancelled', reason end
  turn.state, turn.ended, turn.id = 'closed', now, nil
  save('turns', id)
  redis.call('ZREM', K.open, id)
  free_locks_of_turn(id)
  redis.call('ZREMRANGEBYLEX', K.arrived, range_of(id .. (turn.each and '#' or '[')))
  emit('loop.closed', id, {verdict = turn.verdict, iterations = turn.iteration, reason = turn.reason})
end

-- The newest run of an outermost node ends as it stands; whether it had begun at all.
local function end_run(name)
  local r, run = route(name), run_of('', name)
  if r.kind == 'loop' or r.each then
    local id = turn_address('', name, run)
    local turn = load('turns', id)
    if turn and turn.state ~= 'closed' then anew.supersede(id, turn) end
    if turn then return true end
    if not r.each then return false end
  end
  local address = step_address('', name, run)
  local step = load('steps', address)
  if step and (step.state == 'ready' or step.state == 'parked') then
    cancel(address, step)
    abort_children({id = address, sign = '<'})   -- an attempt that was lost before may have left one
  end
  return step ~= nil
end

local function join_of(block, name)
  return name == '' and block .. '$' or turn_address(block, name, run_of(block, name))
end

-- Who had arrived and runs anew has not; who counts as done has.
local function clear_joins(block, joins)
  for _, node in ipairs(joins) do
    redis.call('ZREMRANGEBYLEX', K.arrived, range_of(join_of(block, node.name) .. '<'))
    for _, name in ipairs(node.name == '' and node.done or {}) do
      redis.call('ZADD', K.arrived, 0, block .. '$<' .. name)
    end
  end
end

local function begin(block, joins, entered)
  for _, node in ipairs(joins) do
    if node.name ~= '' and node.name ~= entered then
      local needs = route(path_of(within(block, node.name))).needs
      local full = needs == 0
      local join = join_of(block, node.name)
      for _, need in ipairs(node.done) do full = joined(join, need, needs) end
      if full then fire(block, node.name) end
    end
  end
end

-- The width of a for_each whose list counts as done, with its items.
local function keep_width(from, to)
  local width = redis.call('HGET', K.widths, from)
  if not width or from == to then return end
  redis.call('HSET', K.widths, to, width)
  for item = 1, tonumber(width) do
    redis.call('HSET', K.items, to .. '#' .. item, redis.call('HGET', K.items, from .. '#' .. item))
  end
end

-- The next run of a loop opens where an older run stood, and goes on from it.
local function open_at(block, level)
  local id = turn_address(block, level.node, run_of(block, level.node))
  local max = raised_ceiling(id) or level.max
  local iteration = math.min(level.iteration, max)
  open_turn(id, {iteration = iteration, max = max, left = level.left,
    origin = {run = level.run, opened = level.iteration, kept = level.kept}})
  emit('loop.opened', id, {iteration = iteration, max = max, label = route(path_of(id)).label, from = level.run})
  local inside = id .. '[' .. level.iteration .. ']'
  for name, from in pairs(level.widths) do keep_width(from, within(inside, name)) end
  clear_joins(inside, level.joins)
  return inside
end

-- The last of the opened turns may have no iteration left to open at.
local function close_if_over(inside)
  local id = turn_of(inside)
  local turn = load('turns', id)
  if turn.state ~= 'open' or iteration_of(inside) <= turn.max then return end
  close_turn(id, 'max_iterations')
end

-- What was said after the point is undone: each conversation goes on where it stood there.
local function talk_from(threads)
  redis.call('DEL', K.threads)
  for talk, kept in pairs(threads) do redis.call('HSET', K.threads, talk, kept) end
end

-- All of the runs are in place before the first of them begins: what begins may end at once.
function anew.go_on(joins, levels, threads)
  if threads then talk_from(threads) end
  for _, node in ipairs(joins) do
    if node.name ~= '' and end_run(node.name) then
      count_run('', node.name)
    end
  end
  clear_joins('', joins)
  local inside, block = {}, ''
  for _, level in ipairs(levels) do
    block = open_at(block, level)
    table.insert(inside, block)
  end
  if #inside > 0 then close_if_over(block) end
  begin('', joins, levels[1] and levels[1].node)
  for i, opened in ipairs(inside) do begin(opened, levels[i].joins, levels[i + 1] and levels[i + 1].node) end
  -- A budget can end a session whose last steps were under way, and then succeeded.
  if #joins == 1 then close_turn('', 'accept', {code = 'done'}) end
end
end
