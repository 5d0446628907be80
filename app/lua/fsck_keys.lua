-- The audit looks at keys by themselves: what each is part of, and until when it is kept.
-- A: keys (each key, kind, needs?, or of an id its session), repair
-- Returns: looked(found)
local WEEK_S = 7 * 24 * 3600
local KEPT_S = {idem = WEEK_S, spent = 2 * 24 * 3600, ['token-key'] = WEEK_S, unknown = WEEK_S}

local function alone(one)
  local needs = one.needs
  if one.kind == 'id' then
    local root = redis.call('GET', one.key)
    needs = root and base_of(one.session, root) .. 'session'
  end
  return needs and redis.call('EXISTS', needs) == 0
end

for _, one in ipairs(A.keys) do
  local left = redis.call('PTTL', one.key)
  if left == -1 and KEPT_S[one.kind] then
    local what = one.kind == 'unknown' and ' is part of nothing' or ' is kept for ever'
    found(one.kind == 'unknown' and 'key_unknown' or 'deadline_missing', nil, one.key .. what,
      function() redis.call('EXPIRE', one.key, KEPT_S[one.kind]) end)
  elseif left == -1 and alone(one) then
    found(one.kind == 'program' and 'program_unused' or 'key_stray', one.session, one.key .. ' belongs to nothing that is there',
      function() redis.call('DEL', one.key) end)
  end
end
return reply('looked')
