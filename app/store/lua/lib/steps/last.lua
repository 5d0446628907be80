-- Last steps: those of the outermost block that run although the session ends early or stops, as the joins `always` and
-- `ended` say. They start once nothing else runs, in the order in which they need each other. The record of one has
-- `last`: true if it was started so, before all that it waits for had ended; `kept` if it had been started before.
--- @requires addresses, hints, joins, programs, records, steps/skips, children
local last = {}

local ENDED = {succeeded = true, failed = true, skipped = true, cancelled = true}

-- The names and rules of the last steps of the program.
local function all_of(tx)
  local route = programs.route(tx, '')
  return route and route.last or {}
end

-- The record of a node's newest run, and its address.
local function newest(tx, name)
  local address = addresses.step_address('', name, programs.run_of(tx, '', name))
  return records.load(tx, 'steps', address), address
end

-- Whether a node of the outermost block has ended. A for_each or a loop has a turn.
local function has_ended(tx, name)
  local step = newest(tx, name)
  if step then return ENDED[step.state] end
  local turn = records.load(tx, 'turns', addresses.turn_address('', name, programs.run_of(tx, '', name)))
  return turn and turn.state == 'closed'
end

-- Whether the end of the session lets this step run: an abort lets none.
function last.may_run(tx, step)
  if not step.last then return false end
  local root = records.load(tx, 'turns', '')
  return root.state ~= 'closed' and root.verdict ~= 'abort'
end

-- Whether a child continues with the last step that has started it, which is at work.
function last.has_child(tx, child)
  local parent = redis.call('HGET', children.key_of(tx, child), 'parent') or ''
  local step = parent ~= '' and records.load(tx, 'steps', cjson.decode(parent).address)
  return step and not ENDED[step.state] and last.may_run(tx, step)
end

-- Whether the outermost turn ends because a step has failed, and not because of a limit.
function last.is_failure(root)
  return root.verdict == 'terminate' and root.reason.code ~= 'budget'
end

-- Keeps a step that has started and runs at the end of the session: it is not cancelled with the others. Returns
-- whether it is one.
function last.keep(tx, address, step, root)
  if root.id ~= '' or root.verdict == 'abort' or addresses.block_of(address) ~= '' then return false end
  local rule = not address:find('#', 1, true) and all_of(tx)[addresses.name_of(tx, address)]
  if not rule or rule.join ~= 'always' and not last.is_failure(root) then return false end
  step.last = step.last or 'kept'
  records.save(tx, 'steps', address)
  return true
end

-- Whether a node may start now. `failed`: whether a step has failed for good, so that those with the join `ended` run.
local function is_due(tx, name, rule, failed)
  local step = newest(tx, name)
  if skips.is_marked(tx, name) then return false end
  if step and step.state ~= 'cancelled' and not (step.state == 'ready' and not step.last) then return false end
  if rule.join ~= 'always' and not failed then return false end
  for _, need in ipairs(rule.needs) do
    local other = all_of(tx)[need]
    if rule.join ~= 'always' and not has_ended(tx, need) then return false end
    if other and other.join == 'always' and not has_ended(tx, need) then return false end
  end
  return true
end

local function start(tx, name)
  local step, address = newest(tx, name)
  if step and step.state == 'cancelled' then
    programs.start_run(tx, '', name)
    step, address = newest(tx, name)
  end
  if not step then
    hints.make_ready(tx, address, {last = true})
    return
  end
  step.last = 'kept'   -- all that it waits for has ended
  records.save(tx, 'steps', address)
  table.insert(tx.released, address)
end

-- Whether a last step is at work.
function last.any_at_work(tx)
  for name in pairs(all_of(tx)) do
    local step = newest(tx, name)
    if step and step.last and not ENDED[step.state] then return true end
  end
  return false
end

-- Starts the last steps that are due. Returns whether any is at work.
function last.run(tx, failed)
  if last.any_at_work(tx) then return true end
  local due = {}
  for name, rule in pairs(all_of(tx)) do
    if is_due(tx, name, rule, failed) then table.insert(due, name) end
  end
  table.sort(due)
  for _, name in ipairs(due) do start(tx, name) end
  return #due > 0
end

-- Lets the steps that ran at a stop run again: what they come after continues.
function last.reset(tx)
  for name in pairs(all_of(tx)) do
    local step, address = newest(tx, name)
    if step and step.last == true then
      local from = joins.join_of(tx, '', name)
      programs.start_run(tx, '', name)
      local to = joins.join_of(tx, '', name)
      for _, member in ipairs(redis.call('ZRANGEBYLEX', tx.keys.arrived, addresses.range_of(from .. '<'))) do
        redis.call('ZREM', tx.keys.arrived, member)
        redis.call('ZADD', tx.keys.arrived, 0, to .. member:sub(#from + 1))
      end
    end
  end
end

return last
