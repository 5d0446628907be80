-- Items of a for_each that its next run does not repeat: their outcomes are copied from an older run.
--- @requires addresses, joins, programs, records, steps/shares
local kept_items = {}

-- What is copied of a step's record. Its costs stay with the older run.
local FIELDS = {'state', 'verdict', 'reason', 'ready', 'since', 'ended'}

-- Stores what the next run of the for_each at a place keeps: the items with these numbers, of an older run.
function kept_items.plan(tx, block, kept)
  for name, one in pairs(kept or {}) do tx.keeps[addresses.within(block, name)] = one end
end

-- Copies the items that a new run of a for_each keeps. Returns how many.
function kept_items.copy(tx, id, width)
  local block, r = addresses.block_of(id), programs.route_of(tx, id)
  local kept = tx.keeps[addresses.within(block, addresses.name_of(tx, id))]
  if not kept then return 0 end
  for _, item in ipairs(kept.items) do
    local from, to = kept.run .. '#' .. item, id .. '#' .. item
    local old, copy = records.load(tx, 'steps', from), {kept = from}
    for _, field in ipairs(FIELDS) do copy[field] = old[field] end
    records.store(tx, 'steps', to, copy)
    local outcome = redis.call('HGET', tx.keys.out, from)
    if outcome then redis.call('HSET', tx.keys.out, to, outcome) end
    joins.arrive(tx, id .. '#', string.format('%d', item), width)
    shares.cover(tx, id, r.weight)
  end
  return #kept.items
end

return kept_items
