-- The session's events and warnings.
--- @requires addresses
local events = {}

local EVENTS_MAX = 20000

-- Appends an event to the session's stream.
function events.emit(tx, kind, address, fields)
  redis.call('XADD', tx.keys.events, 'MAXLEN', '~', EVENTS_MAX, '*',
    't', kind, 'at', tx.clock, 'a', address or '', 'd', fields and cjson.encode(fields) or '')
end

-- Adds a warning: a problem that did not end the session. The last 100 are kept.
function events.warn(tx, text)
  redis.call('RPUSH', tx.keys.warnings, text)
  redis.call('LTRIM', tx.keys.warnings, 0, 99)
end

-- Adds a warning about a node that failed or was skipped: its label, its address in a loop, and why.
function events.warn_about(tx, address, r, how, why)
  local where = addresses.block_of(address) ~= '' and ' (' .. address .. ')' or ''
  events.warn(tx, r.label .. where .. how .. (why and why ~= '' and ': ' .. why or ''))
end

return events
