-- What every script begins with. KEYS[1] is the tenant's clock, KEYS[2] its changed documents;
-- ARGV[1] is the prefix of all its keys.
--
-- Everything that happens to a tenant takes the next number of its clock. An entry is current
-- while its own number is above the numbers of all that could have killed it: the floor (a purge),
-- its namespace's epoch, and the last change of each document it came from. Comparing is enough;
-- nothing has to be found and deleted before the answer to an invalidation is sent.
local P, CLOCK, CHANGED = ARGV[1], KEYS[1], KEYS[2]
-- A tenant that nobody has asked about for so long is forgotten, with all its entries.
local IDLE_MS = 30 * 24 * 3600 * 1000
-- Entries are kept a while after they expired, so that a miss can say so.
local GRACE_MS = 3600 * 1000

local function plain(n) return string.format('%.0f', n) end

local function keep(key, ms)
  redis.call('PEXPIRE', key, plain(ms), 'NX')
  redis.call('PEXPIRE', key, plain(ms), 'GT')
end

-- The documents outlive the clock, whose numbers mean nothing without them.
local function stay(ms)
  redis.call('PEXPIRE', CLOCK, plain(ms), 'GT')
  redis.call('PEXPIRE', CHANGED, plain(ms + GRACE_MS), 'GT')
end

-- A clock holds for one run of one server. After a restart, a failover or an eviction some of the
-- latest numbers may be missing, so that all that was stored before is no longer trusted.
local function clock()
  local run = string.match(redis.call('INFO', 'server'), 'run_id:(%w+)')
  local kept = redis.call('HMGET', CLOCK, 'run', 'last', 'floor', 'forgotten', 'changed')
  local sound = kept[1] == run and tonumber(kept[5]) == redis.call('ZCARD', CHANGED)
  return {
    run = run, sound = sound, last = tonumber(kept[2]) or 0,
    floor = tonumber(kept[3]), forgotten = tonumber(kept[4]),
  }
end

-- Begin again: every number is above every one that was ever given here.
local function renewed(c)
  local now = redis.call('TIME')
  local first = math.max(c.last + 1, tonumber(now[1]) * 1000000 + tonumber(now[2]))
  redis.call('UNLINK', CLOCK, CHANGED)
  redis.call('HSET', CLOCK, 'run', c.run, 'last', plain(first), 'floor', plain(first),
             'forgotten', plain(first), 'changed', 0)
  keep(CLOCK, IDLE_MS)
  return { run = c.run, sound = true, last = first, floor = first, forgotten = first }
end

local function running()
  local c = clock()
  if not c.sound then return renewed(c) end
  stay(IDLE_MS)
  return c
end

local function tick()
  return redis.call('HINCRBY', CLOCK, 'last', 1)
end

local function epoch(c, space)
  return math.max(c.floor, tonumber(redis.call('HGET', CLOCK, 'n:' .. space) or 0))
end

local function changed_at(c, name)
  return tonumber(redis.call('ZSCORE', CHANGED, name) or c.forgotten)
end

local FIELDS = {
  'body', 'state', 'reason', 'number', 'space', 'names', 'partition', 'writer', 'place', 'exact',
  'normal', 'until',
}

local function read(id)
  local values = redis.call('HMGET', P .. 'e:' .. id, unpack(FIELDS))
  if not values[1] or not values[4] then return nil end
  local e = { id = id }
  for at, field in ipairs(FIELDS) do e[field] = values[at] end
  return e
end

local function servable(e, writer)
  return e.state == 'live'
      or (e.state == 'quarantined' and e.reason == '' and e.writer == writer)
end

local function current(c, e)
  local number = tonumber(e.number)
  if not c.sound or number <= epoch(c, e.space) then return false end
  for _, name in ipairs(cjson.decode(e.names)) do
    if number <= changed_at(c, name) then return false end
  end
  return true
end

local function standing(state, reason)
  if state == 'live' then return 'live' end
  return (state == 'quarantined' and reason == '') and 'waiting' or 'held'
end

-- Written by hand: cjson keeps 14 digits of a number, and a moment has 16.
local function attributes(expires, writer, state, reason)
  return '{"x":' .. expires .. ',"p":"' .. writer .. '","st":"' .. standing(state, reason) .. '"}'
end

-- A vector set of which only this entry was left goes with it.
local function forget_vector(place, id)
  if place ~= '' and string.sub(place, 1, 1) == 'v' then
    redis.call('VREM', P .. place, id)
  end
end

local function remove(id, e)
  redis.call('UNLINK', P .. 'e:' .. id)
  redis.call('ZREM', P .. 'x:' .. e.exact, id)
  redis.call('ZREM', P .. 'm:' .. e.normal, id)
  redis.call('ZREM', P .. 'u:' .. e.space, id)
  redis.call('ZREM', P .. 't:' .. e.space, id)
  redis.call('SREM', P .. 'w:' .. e.writer, 'e:' .. id)
  for _, name in ipairs(cjson.decode(e.names)) do redis.call('SREM', P .. 'n:' .. name, id) end
  forget_vector(e.place, id)
end

local function audit(action, subject, reason, entries)
  redis.call('XADD', P .. 'audit', 'MAXLEN', '~', 10000, '*', 'action', action, 'subject', subject,
             'reason', reason, 'entries', plain(entries))
end

local function tell(payload)
  redis.call('PUBLISH', P .. 'notices', payload)
end
