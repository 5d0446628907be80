-- References of outcomes to artifacts: long results and outputs that are files named by their digest.
local artifacts = {}

-- Records the references of the outcome of a step. They are written with the outcome itself, so no session names an
-- artifact that the sweep of artifacts may remove.
function artifacts.refer(tx, address)
  for _, one in ipairs(tx.args.artifacts or {}) do
    one.at = tx.now
    redis.call('HSET', tx.keys.artifacts, address .. '|' .. one.name, cjson.encode(one),
      one.digest, one.size .. '|' .. one.media_type)
    redis.call('ZADD', tx.shared.artifacts, 0, one.digest .. '|' .. tx.args.member:sub(1, -2))
  end
end

-- Refers to the artifacts that copied outcomes name, so that they stay as long as this session.
function artifacts.refer_again(tx)
  for _, name in ipairs(redis.call('HKEYS', tx.keys.artifacts)) do
    if not name:find('|', 1, true) then
      redis.call('ZADD', tx.shared.artifacts, 0, name .. '|' .. tx.args.member:sub(1, -2))
    end
  end
end

return artifacts
