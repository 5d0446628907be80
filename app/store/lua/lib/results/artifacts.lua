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

return artifacts
