-- What every transition begins with: its arguments, the clock, the session, and rooms for what changes.
-- A server that keeps functions makes those below once and calls them often: nothing of one call is left to the next
-- but what `begin` sets anew.
-- KEYS: the session's base, the program, the base across sessions.
-- ARGV: now in ms (0: the server's own clock), arguments (JSON), outcome (JSON, kept as it is), ledger entry (the
-- same), records of the transcript (the same, any number)
local GRACE_MS = 10000        -- past its deadline, for the worker to kill and settle
local HINT_MS = 3000          -- until a hint that nobody took is sent again, doubled up to HINT_MAX_MS
local HINT_MAX_MS = 48000
local HINT_BUSY_MS = 300000   -- while its queue is long, a hint is not repeated before this
local LOST_MAX = 5            -- an attempt lost more often than this is poison
local EVENTS_MAX = 20000

local KEYS, ARGV, A, now
local BASE, PROGRAM, GLOBAL, K, G   -- the names of the keys: K of the session, G of all sessions
local S                       -- the session's own fields, read once
local answer
local released                -- addresses made ready by this transition, in order
local rooms
local freed                   -- queues and limited keys in whose window a slot came free
-- What has not come to rest.
local AT_WORK = {active = true, stopping = true, exiting = true, aborting = true}
local keep_s                  -- set when the session ends: how long its keys are kept
local reached                 -- the first budget that this transition reached: {what, used, limit}
local clock                   -- now, as a text: a number takes long to write, each time anew
local read_so_far = 0         -- routes, in all calls together
local paths, routes, runs     -- of addresses and nodes, asked for again and again in one transition

local begin, routes_kept
do   -- a script may have 200 locals: the others are seen here alone
local function names_of(base, parts)
  local names = {}
  for _, part in ipairs(parts) do names[part] = base .. part end
  return names
end

function begin(keys, argv)
  KEYS, ARGV = keys, argv
  BASE, PROGRAM = keys[1], keys[2]
  K = names_of(BASE, PARTS.session)
  if GLOBAL ~= keys[3] then GLOBAL, G = keys[3], names_of(keys[3], PARTS.all) end
  A = cjson.decode(argv[2])
  now = tonumber(argv[1])
  if now == 0 then
    local t = redis.call('TIME')
    now = t[1] * 1000 + math.floor(t[2] / 1000)
  end
  clock = string.format('%d', now)
  S, answer = {}, {hints = {}, grants = {}, abort = {}, called = {}}
  released, rooms, freed, keep_s, reached = {}, {steps = {}, turns = {}, limits = {}}, {}, nil, nil
  paths, routes, runs = {}, {}, {}
end

-- The routes of programs, the one thing that is left from call to call: what a program's hash was made with
-- never changes, and one that is made anew has another mark.
local kept = {}
local KEPT_MAX = 10000         -- routes, of a kilobyte or two each
function routes_kept(made)
  if read_so_far >= KEPT_MAX then kept, read_so_far = {}, 0 end
  kept[made] = kept[made] or {}
  return kept[made]
end
end

local function session()
  local names = {'status', 'place', 'window', 'program', 'retention', 'parent', 'exit_by', 'label', 'folder', 'priority',
    'rings', 'rung', 'budget', 'token', 'made', 'compare'}
  local values = redis.call('HMGET', K.session, unpack(names))
  for i, name in ipairs(names) do S[name] = values[i] or '' end
  -- Whoever remembers the program that it had before it took over another one looks again.
  if S.program ~= '' and KEYS[2] ~= GLOBAL .. 'program:' and KEYS[2] ~= GLOBAL .. 'program:' .. S.program then
    error('stale program', 0)
  end
  if S.made ~= '' and not A.adopts then routes = routes_kept(PROGRAM .. S.made) end
  return S.status ~= ''
end

local function load(room, address)
  local kept = rooms[room][address]
  if kept == nil then
    local text = redis.call('HGET', K[room], address)
    kept = {record = text and cjson.decode(text) or nil, dirty = false}
    rooms[room][address] = kept
  end
  return kept.record
end

local function store(room, address, record)
  rooms[room][address] = {record = record, dirty = true}
  return record
end

local function save(room, address)
  rooms[room][address].dirty = true
end

-- What is written of a session that has ended or was stopped goes when the rest of it goes.
local function keep_no_longer()
  local left = redis.call('PTTL', K.session)
  for _, key in pairs(left > 0 and K or {}) do
    if redis.call('PTTL', key) == -1 then redis.call('PEXPIRE', key, left) end
  end
end

-- What changed in a room, as fields and values; a call takes a few thousand values at most.
local MANY = 2000
local function write_room(room)
  local changed = {}
  for address, one in pairs(rooms[room]) do
    if one.dirty then
      changed[#changed + 1] = address
      changed[#changed + 1] = cjson.encode(one.record)
    end
  end
  for from = 1, #changed, MANY do
    redis.call('HSET', K[room], unpack(changed, from, math.min(from + MANY - 1, #changed)))
  end
end

local function flush()
  write_room('steps')
  write_room('turns')
  redis.call('HSET', K.session, 'updated', clock)
  if keep_s then
    for _, key in pairs(K) do redis.call('EXPIRE', key, keep_s) end
    redis.call('EXPIRE', GLOBAL .. 'id:' .. A.session, keep_s)
  elseif not AT_WORK[S.status] then
    keep_no_longer()
  end
end

local function reply(word)
  answer.word = word
  answer.now = now
  for _, list in ipairs({'hints', 'grants', 'abort', 'called'}) do
    if #answer[list] == 0 then answer[list] = nil end
  end
  return cjson.encode(answer)
end

local function emit(kind, address, fields)
  redis.call('XADD', K.events, 'MAXLEN', '~', EVENTS_MAX, '*',
    't', kind, 'at', clock, 'a', address or '', 'd', fields and cjson.encode(fields) or '')
end

local function count(name, by)
  return redis.call('HINCRBY', K.session, name, by or 1)
end

local function member(address)
  return A.member .. address
end

-- What this session owes a child of its tree; kept until it is done, or taken back.
local TAKES_BACK = {stop = 'resume', resume = 'stop'}
local function owe(verb, child)
  local whom = '|' .. child .. A.member:match('|.*$')
  if TAKES_BACK[verb] then redis.call('ZREM', G.errands, TAKES_BACK[verb] .. whom) end
  redis.call('ZADD', G.errands, now, verb .. whom)
end

-- Whether a child session is still at work: what a parent says of itself holds for the whole tree.
local function status_of(child)
  return redis.call('HGET', BASE:sub(1, -#A.session - 2) .. child .. ':session', 'status')
end

local function children_at_work()
  for _, child in ipairs(redis.call('SMEMBERS', K.children)) do
    if AT_WORK[status_of(child)] then return true end
  end
  return false
end

local function owe_children(verb)
  for _, child in ipairs(redis.call('SMEMBERS', K.children)) do owe(verb, child) end
end

-- Everything that begins with `prefix`, in a zset ordered by name: from prefix up to the next character.
local function range_of(prefix)
  local last = prefix:byte(-1)
  return '[' .. prefix, '(' .. prefix:sub(1, -2) .. string.char(last + 1)
end
