-- The audit looks at keys by themselves: what each is part of, and until when it is kept.
-- A: keys (each key, kind, needs?, or of an id its session), newer (whether a newer version is at work), repair
-- Returns: looked(found)
local DAY_S = 24 * 3600
local is = {kept_s = {idem = 7 * DAY_S, spent = 2 * DAY_S, ['token-key'] = 7 * DAY_S, unknown = 7 * DAY_S}}

-- A session is there that has a status: what else its hash may hold, somebody wrote after it was deleted.
function is.there(one)
  if one.session then return redis.call('HEXISTS', one.needs, 'status') == 1 end
  return redis.call('EXISTS', one.needs) == 1
end

function is.alone(one)
  if one.kind == 'id' then
    local root = redis.call('GET', one.key)
    one.needs = root and base_of(one.session, root) .. 'session'
  end
  return one.needs and not is.there(one)
end

-- What we do not know, a newer version may: it is left alone, as long as there may be one.
function is.newer(one)
  return one.kind == 'unknown' and (A.newer or one.needs and is.there(one))
end

for _, one in ipairs(A.keys) do
  local left = redis.call('PTTL', one.key)
  if left == -1 and is.newer(one) then
    found('key_newer', one.session, one.key .. ' is nothing that this version knows')
  elseif left == -1 and is.kept_s[one.kind] then
    local what = one.kind == 'unknown' and ' is part of nothing' or ' is kept for ever'
    found(one.kind == 'unknown' and 'key_unknown' or 'deadline_missing', nil, one.key .. what,
      function() redis.call('EXPIRE', one.key, is.kept_s[one.kind]) end)
  elseif left == -1 and is.alone(one) then
    found(one.kind == 'program' and 'program_unused' or 'key_stray', one.session, one.key .. ' belongs to nothing that is there',
      function() redis.call('DEL', one.key) end)
  end
end
return reply('looked')
