-- Rates of limited keys (`per_minute`): a key has one slot every 60000 / per_minute ms, taken by the attempt that
-- begins with it. A slot that is not taken in time passes: slots do not accumulate.
--- @requires locks/limits
local rates = {}

local LATE_MS = 3000   -- how late a slot may still be taken: sweeps are a second apart

-- How many slots of a key may be taken now, and when the next one is due or was due.
function rates.slots_of(tx, name)
  local limit = limits.limit_of(tx, name)
  if not (limit and limit.per_minute) then return math.huge, tx.now end
  local gap = 60000 / limit.per_minute
  local slot = tonumber(redis.call('HGET', tx.shared.rates, name) or 0)
  if slot > tx.now + gap + 1 then return 1, tx.now end   -- the clock stepped back
  if slot > tx.now then return 0, slot end
  if tx.now - slot > LATE_MS then return 1, tx.now end
  return math.floor((tx.now - slot) / gap) + 1, slot
end

-- Takes the next slot of a key.
function rates.take_slot(tx, name)
  local _, slot = rates.slots_of(tx, name)
  redis.call('HSET', tx.shared.rates, name, string.format('%.3f', slot + 60000 / limits.limit_of(tx, name).per_minute))
end

return rates
