-- The transcript of the session, and where its conversations continue.
--- @requires events, programs, records, texts
local transcript = {}

local RECORDS_MAX = 5000   -- the last records that a session keeps

-- Appends a record and returns its number. The dropped ones are counted, so that numbers never repeat.
local function append(tx, entry)
  local length = redis.call('RPUSH', tx.keys.transcript, entry)
  local dropped = tonumber(redis.call('HGET', tx.keys.session, 'unsaid') or 0)
  if length > RECORDS_MAX then
    redis.call('LTRIM', tx.keys.transcript, length - RECORDS_MAX, -1)
    records.count(tx, 'unsaid', length - RECORDS_MAX)
  end
  return dropped + length
end

-- Appends the records of this call, with their time.
function transcript.write(tx, address)
  for n = 5, #tx.argv do
    local entry = tx.argv[n]:sub(1, -2) .. string.format(',"at_ms":%d}', tx.now)
    local said = cjson.decode(entry)
    events.emit(tx, 'transcript.added', address, {seq = append(tx, entry), role = said.role,
      label = said.label, agent = said.agent, identifier = said.identifier, text = texts.beginning(said.text, 200)})
  end
end

-- Stores where the step's conversation continues; an empty thread forgets it.
function transcript.keep_thread(tx, address)
  local talk = programs.route_of(tx, address).talk
  if not talk or not tx.args.thread then return end
  if tx.args.thread.kept then
    redis.call('HSET', tx.keys.threads, talk, tx.args.thread.kept)
  else
    redis.call('HDEL', tx.keys.threads, talk)
  end
end

return transcript
