-- Labels: one that a user gave belongs to one session at work. Its key names the holder and the holder's base: a
-- session that has ended or was deleted holds no label, even if the key is left.
--- @requires transaction
local labels = {}

local function key_of(tx, label)
  return tx.prefix .. 'label:' .. label
end

-- The label that the session claims for itself; '' if it has none.
local function own_label(tx)
  return redis.call('HGET', tx.keys.session, 'unique_label') or ''
end

-- The other session at work that holds a label; nil if it is free.
function labels.find_holder(tx, label)
  local by = label ~= '' and redis.call('GET', key_of(tx, label))
  if not by then return nil end
  local id, base = by:match('^(.-)|(.*)$')
  if id == tx.args.session then return nil end
  return transaction.AT_WORK[redis.call('HGET', base .. 'session', 'status') or ''] and id or nil
end

-- The other session at work that holds the session's own label.
function labels.find_holder_of_own(tx)
  return labels.find_holder(tx, own_label(tx))
end

-- Takes the session's own label, if no other session holds it.
function labels.hold(tx)
  local label = own_label(tx)
  if label == '' or labels.find_holder(tx, label) then return end
  redis.call('SET', key_of(tx, label), tx.args.session .. '|' .. tx.base)
end

-- Releases the session's own label.
function labels.release(tx)
  local label = own_label(tx)
  local by = label ~= '' and redis.call('GET', key_of(tx, label))
  if by == tx.args.session .. '|' .. tx.base then redis.call('DEL', key_of(tx, label)) end
end

return labels
