-- Records what a worker did with the folder that a session has to itself: made it, applied its work, removed it.
-- Or reserves it: until then, or until it is released, the session is not resumed.
-- Arguments: facts (name -> value; false or an empty text removes an earlier fact of that name);
--   instead: hold_ms and from (statuses in which the folder can be reserved), or release; or base (the state of the
--   working folder, whosever it is, when the run `loop` of a loop began: only the first one counts); or taken (the
--   protected files that count as they are now for the step `at`, which had recorded them); or work (the state to
--   judge, with its time, that no doer has made: of a merge or a fork)
-- Returns: recorded | repeated | reserved | released | refused(status) | gone
--- @requires transaction, work_diffs
local function reserve(tx)
  for _, status in ipairs(tx.args.from) do
    if status == tx.session.status then
      redis.call('HSET', tx.keys.session, 'folder_reserved', tx.now + tx.args.hold_ms)
      return transaction.reply(tx, 'reserved')
    end
  end
  tx.reply.status = tx.session.status
  return transaction.reply(tx, 'refused')
end

return function(tx)
  if not transaction.read_session(tx) then return transaction.reply(tx, 'gone') end
  if tx.args.hold_ms then return reserve(tx) end
  if tx.args.release then
    redis.call('HDEL', tx.keys.session, 'folder_reserved')
    return transaction.reply(tx, 'released')
  end
  if tx.args.base then
    local is_new = redis.call('HSETNX', tx.keys.session, 'base|' .. tx.args.loop, tx.args.base) == 1
    return transaction.reply(tx, is_new and 'recorded' or 'repeated')
  end
  if tx.args.work then
    work_diffs.keep_work(tx, tx.args.work)
    return transaction.reply(tx, 'recorded')
  end
  if tx.args.taken then
    redis.call('HSET', tx.keys.session, 'taken|' .. tx.args.at, tx.args.taken)
    redis.call('HDEL', tx.keys.session, 'resumed')
    return transaction.reply(tx, 'recorded')
  end
  local text = redis.call('HGET', tx.keys.session, 'own_folder')
  local known, changed = cjson.decode(text and text ~= '' and text or '{}'), false
  for name, value in pairs(tx.args.facts) do
    if value == false or value == '' then value = nil end
    if known[name] ~= value then known[name], changed = value, true end
  end
  if not changed then return transaction.reply(tx, 'repeated') end
  redis.call('HSET', tx.keys.session, 'own_folder', cjson.encode(known))
  transaction.flush(tx)
  return transaction.reply(tx, 'recorded')
end
