-- Audits single keys: their types, or what each belongs to and its TTL.
-- Arguments: keys (key, kind, type?: that it should have, session?, needs?: the key that it belongs to), newer (whether
--   a newer version of this program is at work), types (whether to look at the types), repair
-- Returns: looked(found)
--- @requires audit/findings, transaction
local DAY_S = 24 * 3600
local TTL_S = {idem = 7 * DAY_S, spent = 2 * DAY_S, ['token-key'] = 7 * DAY_S, unknown = 7 * DAY_S}

-- Where a key of a wrong type is moved.
local function moved(tx, key)
  return tx.prefix .. 'damaged:' .. key:sub(#tx.prefix + 1)
end

-- Whether the key's owner exists. A session has a status: any other field was written after it was deleted. One whose
-- record is damaged exists, also after that was moved, until it expires.
local function has_owner(tx, one)
  if redis.call('EXISTS', moved(tx, one.needs)) == 1 then return true end
  if one.session then return redis.pcall('HEXISTS', one.needs, 'status') ~= 0 end
  return redis.call('EXISTS', one.needs) == 1
end

local function is_stray(tx, one)
  if one.kind == 'id' then
    local root = redis.pcall('GET', one.key)
    one.needs = type(root) == 'string' and findings.base_of(tx, one.session, root) .. 'session'
  end
  return one.needs and not has_owner(tx, one)
end

-- Whether a newer version may have written the key: then it is left alone.
local function is_newer(tx, one)
  return one.kind == 'unknown' and (tx.args.newer or one.needs and has_owner(tx, one))
end

-- The type of the key if it should have another one.
local function wrong_type(tx, one)
  local found = one.type and redis.call('TYPE', one.key).ok
  if found and found ~= one.type and found ~= 'none' and not is_stray(tx, one) then return found end
end

-- Names a key of a wrong type; it is moved away, and kept for some days.
local function check_type(tx, one)
  local found = wrong_type(tx, one)
  if not found then return end
  findings.add(tx, 'key_type', one.session, one.key .. ' is a ' .. found .. ', not a ' .. one.type, function()
    redis.call('RENAME', one.key, moved(tx, one.key))
    redis.call('EXPIRE', moved(tx, one.key), TTL_S.unknown)
  end)
end

local function check_owner(tx, one)
  if one.kind == 'list' or wrong_type(tx, one) then return end
  if redis.call('PTTL', one.key) ~= -1 then return end
  local is_unknown = one.kind == 'unknown'
  if is_newer(tx, one) then
    findings.add(tx, 'key_newer', one.session, one.key .. ' is unknown; a newer version may have written it')
  elseif TTL_S[one.kind] then
    local what = one.key .. (is_unknown and ' is an unknown key' or ' never expires')
    findings.add(tx, is_unknown and 'key_unknown' or 'deadline_missing', nil, what,
      function() redis.call('EXPIRE', one.key, TTL_S[one.kind]) end)
  elseif is_stray(tx, one) then
    local kind = one.kind == 'program' and 'program_unused' or 'key_stray'
    findings.add(tx, kind, one.session, one.key .. ' belongs to a record that does not exist',
      function() redis.call('DEL', one.key) end)
  end
end

return function(tx)
  findings.begin(tx)
  for _, one in ipairs(tx.args.keys) do
    if tx.args.types then check_type(tx, one) else check_owner(tx, one) end
  end
  return transaction.reply(tx, 'looked')
end
