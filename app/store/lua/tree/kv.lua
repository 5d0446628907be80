-- Sets or deletes a value of the session's tree. The values belong to the tree's root session.
-- Arguments: key, by, deletes?, seen? (the version that the caller saw; 0: no value),
--   nonce (a repeated call is found by it)
-- Document: the value (JSON).
-- Returns: set(version) | deleted | changed(version: 0 if there is none) | full | long | gone (the root is deleted) |
--   ended(status) | unknown
--- @requires transaction
local KEYS_MAX, BYTES_MAX = 1000, 65536
local FINAL = {completed = true, exited = true, aborted = true}

-- Version and nonce of a stored value; 0 if there is none.
local function head_of(key, name)
  local text = redis.call('HGET', key, name)
  local head = text and cjson.decode(text:match('^[^\n]*'))
  return head and head.version or 0, head and head.nonce
end

local function is_full(key)
  return redis.call('HLEN', key) - redis.call('HEXISTS', key, '#version') - redis.call('HEXISTS', key, '#deleted')
    >= KEYS_MAX
end

-- Stores the value under the next version of the tree; a version is never used twice.
local function set(tx, key, base)
  local version = redis.call('HINCRBY', key, '#version', 1)
  local head = string.format('{"version":%d,"at_ms":%s,"nonce":%s,"by":%s}', version, tx.clock,
    cjson.encode(tx.args.nonce), cjson.encode(tx.args.by))
  redis.call('HSET', key, tx.args.key, head .. '\n' .. tx.document)
  local left = redis.call('PTTL', base .. 'session')
  if left > 0 then redis.call('PEXPIRE', key, left) end
  return version
end

return function(tx)
  local args, reply = tx.args, transaction.reply
  if not transaction.read_session(tx) then return reply(tx, 'unknown') end
  local root = args.member:match('|(.*)|$')
  local base = tx.base:sub(1, -#args.session - 2) .. root .. ':'
  local key = base .. 'kv'
  tx.reply.status = tx.session.status
  if FINAL[tx.session.status] then return reply(tx, 'ended') end
  if redis.call('HEXISTS', base .. 'session', 'status') == 0 then return reply(tx, 'gone') end
  if #tx.document > BYTES_MAX then return reply(tx, 'long') end
  local version, nonce = head_of(key, args.key)
  tx.reply.version = version
  if args.deletes then
    if redis.call('HGET', key, '#deleted') == args.nonce then return reply(tx, 'deleted') end
    if args.seen and args.seen ~= version then return reply(tx, 'changed') end
    if version > 0 then
      redis.call('HDEL', key, args.key)
      redis.call('HSET', key, '#deleted', args.nonce)
    end
    return reply(tx, 'deleted')
  end
  if nonce == args.nonce then return reply(tx, 'set') end
  if args.seen and args.seen ~= version then return reply(tx, 'changed') end
  if version == 0 and is_full(key) then return reply(tx, 'full') end
  tx.reply.version = set(tx, key, base)
  return reply(tx, 'set')
end
