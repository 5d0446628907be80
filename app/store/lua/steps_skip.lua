-- Skips steps by the wish of a user: a ready or parked one is settled as skipped, one that has not started is skipped
-- when its turn comes. One that runs or has ended is refused, and nothing is skipped.
-- Arguments: steps (each with address, place, block, lists: the for_each nodes whose list it makes), from
--   (statuses in which this is allowed), reason, nonce, seen? (the state that the caller saw), by? and fence? (the step
--   that asks)
-- Returns: done (also if repeated) | refused(status) | changed(status) | begun(state, by: its address) | unknown
--- @requires checks, dispatch, locks/calls, outcomes, records, sessions, steps/skips, transaction
--- @requires children, turn_records

local DIRECT = {ready = true, parked = true}

-- The state of a step that can no longer be skipped; nil if it can. A skipped one stays as it is.
local function state_of(tx, asked)
  local step = records.load(tx, 'steps', asked.address)
  if step then return not DIRECT[step.state] and step.state ~= 'skipped' and step.state or nil end
  local turn = records.load(tx, 'turns', asked.address)
  if turn then return turn.verdict ~= 'skipped' and turn.state or nil end
  -- The block of a failed session's outermost steps is opened again by its resume.
  if asked.block ~= '' and not turn_records.all_open(tx, asked.block) then return 'cancelled' end
end

-- Settles a ready or parked step as skipped; the child that it waits for is aborted.
local function settle(tx, asked, step)
  if step.parked and step.parked.child then
    children.send(tx, 'abort', step.parked.child)
    table.insert(tx.reply.abort, step.parked.child)
  end
  children.abort_below(tx, {id = asked.address, sign = '<'})
  if step.waits then calls.give_up(tx, asked.address) end
  skips.forget_lists(tx, asked.place, asked.lists)
  outcomes.finish(tx, asked.address, step, 'skipped', nil, tx.args.reason)
end

local function refuse(tx, word, status)
  tx.reply.status = status
  return transaction.reply(tx, word)
end

return function(tx)
  local args = tx.args
  if not transaction.read_session(tx) then return transaction.reply(tx, 'unknown') end
  if checks.is_repeated(tx) then return refuse(tx, 'done', tx.session.status) end
  if not sessions.is_as_seen(tx) then return refuse(tx, 'changed', tx.session.status) end
  if not checks.allows(tx) then return refuse(tx, 'refused', tx.session.status) end
  if args.by and not checks.is_held(tx) then return refuse(tx, 'refused', 'superseded') end
  for _, asked in ipairs(args.steps) do
    tx.reply.state = state_of(tx, asked)
    if tx.reply.state then
      tx.reply.by = asked.address
      return transaction.reply(tx, 'begun')
    end
  end
  for _, asked in ipairs(args.steps) do
    local step = records.load(tx, 'steps', asked.address)
    if not step and not records.load(tx, 'turns', asked.address) then
      skips.mark(tx, asked.place, args.reason, asked.lists)
    end
  end
  for _, asked in ipairs(args.steps) do
    local step = records.load(tx, 'steps', asked.address)
    if step and DIRECT[step.state] then settle(tx, asked, step) end
  end
  checks.remember(tx)
  dispatch.run(tx)
  transaction.flush(tx)
  return refuse(tx, 'done', tx.session.status)
end
