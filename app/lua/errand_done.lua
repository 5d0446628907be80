-- An errand has been seen to: it comes off the list, unless it was put there anew meanwhile.
-- KEYS: -, -, the base across sessions.   A: errand, seen (which time of it was seen)
-- Returns: done | anew
if tonumber(redis.call('ZSCORE', G.errands, A.errand) or -1) ~= A.seen then return reply('anew') end
redis.call('ZREM', G.errands, A.errand)
return reply('done')
