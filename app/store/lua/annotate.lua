-- Sets the title and the note that a person gives a session, and whether lists hide the session.
-- Arguments: title?, note? (an empty text removes it), archived? (a boolean; one that is at work can't be hidden)
-- Returns: done (also if nothing changes) | refused(status) | unknown
--- @requires events, changes, transaction

-- Stores or removes a field of the session; returns whether that changed it.
local function set(tx, name, value)
  if (redis.call('HGET', tx.keys.session, name) or '') == value then return false end
  if value == '' then
    redis.call('HDEL', tx.keys.session, name)
  else
    redis.call('HSET', tx.keys.session, name, value)
  end
  return true
end

return function(tx)
  local args = tx.args
  if not transaction.read_session(tx) then return transaction.reply(tx, 'unknown') end
  if args.archived and transaction.AT_WORK[tx.session.status] then
    tx.reply.status = tx.session.status
    return transaction.reply(tx, 'refused')
  end
  local changed = args.title ~= nil and set(tx, 'title', args.title)
  if args.note ~= nil then changed = set(tx, 'note', args.note) or changed end
  if args.archived ~= nil then changed = set(tx, 'archived', args.archived and '1' or '') or changed end
  if changed then
    events.emit(tx, 'session.annotated', '', {title = args.title, note = args.note, archived = args.archived})
    changes.add(tx, 'annotated')
    if args.archived == false and tx.session.status == 'failed' then changes.call_person(tx) end
    transaction.flush(tx)
  end
  return transaction.reply(tx, 'done')
end
