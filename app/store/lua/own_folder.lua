-- Records what a worker did with the folder that a session has to itself: made it, applied its work, removed it.
-- Arguments: facts (name -> value; false or an empty text removes an earlier fact of that name)
-- Returns: recorded | repeated | gone
--- @requires transaction
return function(tx)
  if not transaction.read_session(tx) then return transaction.reply(tx, 'gone') end
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
