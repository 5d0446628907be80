-- The audit looks at sessions that an index names: whether they are there, and what it says of them.
-- A: list (sessions, owed, status, users, owned), of (a status, program or token), lines, repair
-- Returns: looked(found)
local key = A.of and GLOBAL .. A.list .. ':' .. A.of or GLOBAL .. A.list
local sound = {}
function sound.sessions() return true end
function sound.owed() return true end
function sound.status(status) return status == A.of end
function sound.owned(status) return AT_WORK[status] end
function sound.users(_, id, root) return redis.call('HGET', base_of(id, root) .. 'session', 'program') == A.of end

local HAS, TAKES = {owed = 'HEXISTS', users = 'SISMEMBER', owned = 'SISMEMBER'},
  {owed = 'HDEL', users = 'SREM', owned = 'SREM'}
local function listed(id)
  if HAS[A.list] then return redis.call(HAS[A.list], key, id) == 1 end
  return redis.call('ZSCORE', key, id)
end
for _, id in ipairs(A.lines) do
  local status, root = session_named(id)
  if listed(id) and not (status and sound[A.list](status, id, root)) then
    local name = A.of and A.list .. ' ' .. A.of or A.list
    found('index_stray', id, 'it is ' .. (status or 'gone') .. ', and listed under ' .. name, function()
      redis.call(TAKES[A.list] or 'ZREM', key, id)
    end)
  end
end
return reply('looked')
