-- Items of a for_each: opening a run of it, starting the next item, and copying those that a run keeps of an older one.
--- @requires addresses, conditions, hints, joins, programs, records, steps/shares, steps/skips, turn_records
local items = {}

-- The for_each of a turn in its block, without the run.
local function place_of(tx, id)
  return addresses.within(addresses.block_of(id), addresses.name_of(tx, id))
end

-- Stores what the next run of a for_each keeps: `kept` has items, by number, and their run. Without it the next list
-- may be another one, and the items that a user skips are forgotten.
function items.keep(tx, place, kept)
  if not kept then return skips.forget_items(tx, place) end
  if #kept.items > 0 then skips.store(tx, place .. '#keep', kept) end
end

-- Copies the items that a new run keeps. Their times and costs stay with the older run. Returns how many.
local function copy_kept(tx, id, width)
  local kept, r = skips.load(tx, place_of(tx, id) .. '#keep'), programs.route_of(tx, id)
  if not kept then return 0 end
  for _, item in ipairs(kept.items) do
    local from, to = kept.run .. '#' .. item, id .. '#' .. item
    local old = records.load(tx, 'steps', from)
    records.store(tx, 'steps', to,
      {state = old.state, verdict = old.verdict, reason = old.reason, ended = tx.now, kept = from})
    local outcome = redis.call('HGET', tx.keys.out, from)
    if outcome then redis.call('HSET', tx.keys.out, to, outcome) end
    joins.arrive(tx, id .. '#', string.format('%d', item), width)
    shares.cover(tx, id, r.weight)
  end
  return #kept.items
end

-- Opens a run. Returns its address and turn, and how many items start at once; nil if it was opened before.
function items.open(tx, block, name, r, run)
  local id = addresses.turn_address(block, name, run)
  if records.load(tx, 'turns', id) then return end
  local width = r.width
  if width < 0 then width = tonumber(redis.call('HGET', tx.keys.widths, place_of(tx, id)) or 0) end
  turn_records.open(tx, id, {each = true, width = width, begun = 0})
  local turn, kept = records.load(tx, 'turns', id), copy_kept(tx, id, width)
  turn.kept = kept > 0 and kept or nil
  return id, turn, math.min(width - kept, r.at_once or width)
end

-- The number of the next item to start; nil if there is none. An item that is kept has a record.
local function take(tx, id, turn)
  while turn.begun < turn.width do
    turn.begun = turn.begun + 1
    records.save(tx, 'turns', id)
    if not turn.kept or not records.load(tx, 'steps', id .. '#' .. turn.begun) then return turn.begun end
  end
end

-- Starts the next item, if there is one. Returns its number if a user skips it: then it has ended.
function items.start_next(tx, id, turn)
  local item = take(tx, id, turn)
  local why = item and skips.take(tx, place_of(tx, id) .. '#' .. item)
  if why then
    conditions.skip_step(tx, id .. '#' .. item, why, programs.route_of(tx, id).weight)
    return item
  end
  if item then hints.make_ready(tx, id .. '#' .. item, {}) end
end

return items
