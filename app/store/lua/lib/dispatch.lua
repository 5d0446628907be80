-- Dispatch: at the end of a transition, ready steps are granted to the caller or hinted to workers.
--- @requires addresses, attempts, hints, locks/locks, programs, records, steps/last, turns
--- @requires webhooks
local dispatch = {}

-- Whether a step may be granted to the worker that released it: it is quick, and holds its folder already.
local function may_go_along(tx, address)
  local r = programs.route_of(tx, address)
  return r.quick and locks.has_folder(tx, address, r)
end

-- Grants quick steps that wait in line for a slot of the caller's own queue, while the caller takes more: they have no
-- hint, so no other worker comes for them. Never the step that the caller settled: a repeated settle would
-- look like a new one.
local function take_from_line(tx, take)
  local queue = hints.queue_of(tx, programs.route_of(tx, tx.args.address))
  local low, high = addresses.range_of(queue .. '<')
  while #take > 0 do
    local line = redis.call('ZRANGEBYLEX', tx.keys.waiting, low, high, 'LIMIT', 0, 1)[1]
    local address = line and line:match('<%d+<(.*)$')
    if not address or address == tx.args.address or not may_go_along(tx, address) then return end
    redis.call('ZREM', tx.keys.waiting, line)
    if hints.is_next(tx, address, queue) then
      table.insert(tx.reply.grants, attempts.grant(tx, address, table.remove(take, 1)))
    end
  end
end

-- Hints the steps that run while the session ends or stops, each once.
local function offer_last(tx)
  for name in pairs(tx.freed) do hints.top_up(tx, name) end
  local offered = {}
  for _, address in ipairs(tx.released) do
    local step = records.load(tx, 'steps', address)
    if step.state == 'ready' and last.may_run(tx, step) and not offered[address] then
      offered[address] = true
      hints.offer(tx, address)
    end
  end
end

-- Grants the steps that this transition released while the caller takes quick ones, and hints the rest.
function dispatch.run(tx)
  turns.end_if_spent(tx)
  if tx.session.status ~= 'active' then return offer_last(tx) end
  for name in pairs(tx.freed) do hints.top_up(tx, name) end
  local take = tx.args.take or {}
  for _, address in ipairs(tx.released) do
    local step = records.load(tx, 'steps', address)
    if step.state == 'ready' then
      -- Not to the worker that settled it: a repeated settle would look like a new one.
      local theirs = address ~= tx.args.address and not hints.is_early(tx, step)
      if theirs and #take > 0 and may_go_along(tx, address) then
        local given = attempts.grant(tx, address, table.remove(take, 1))
        table.insert(tx.reply.grants, given)
      else
        hints.offer(tx, address)
      end
    end
  end
  if #take > 0 then take_from_line(tx, take) end
  webhooks.enqueue_if_waiting(tx)
end

return dispatch
