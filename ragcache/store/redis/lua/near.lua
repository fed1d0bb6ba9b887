-- The nearest entries of one place that may be served, nearest first.
-- KEYS: clock, changed. ARGV: prefix, place, namespace, writer, now (us), how many, how many to
-- rank, how ("sets" or "search"), vector, dimensions, exactly up to.
local c, found = clock(), {}
if not c.sound then return found end
local place = ARGV[2] .. ':' .. plain(epoch(c, ARGV[3]))
local reach = tonumber(ARGV[7])

-- Up to some thousands every vector is looked at. Beyond, a graph is walked; where that runs dry
-- among entries that may not be served, every vector is looked at after all.
local function by_sets()
  local key = P .. 'v:' .. place
  local many = tonumber(redis.call('VCARD', key) or 0)
  if many == 0 then return {} end
  local filter = '.x > ' .. ARGV[5] .. ' and (.st == "live" or (.st == "waiting" and .p == "'
      .. ARGV[4] .. '"))'
  local exactly = many <= tonumber(ARGV[11])
  local ask = { 'VSIM', key, 'FP32', ARGV[9], 'WITHSCORES', 'COUNT', reach, 'FILTER', filter }
  if exactly then ask[#ask + 1] = 'TRUTH' end
  local rows = redis.call(unpack(ask))
  if not exactly and #rows < 2 * reach and many <= 10 * tonumber(ARGV[11]) then
    ask[#ask + 1] = 'TRUTH'
    rows = redis.call(unpack(ask))
  end
  local near = {}
  for at = 1, #rows, 2 do
    near[#near + 1] = { rows[at], 2 * tonumber(rows[at + 1]) - 1 }
  end
  return near
end

local function by_search()
  local filter = '(@place:{' .. string.gsub(place, ':', 'x') .. '} @until:[(' .. ARGV[5]
      .. ' +inf] ((@standing:{live})|(@standing:{waiting} @writer:{' .. ARGV[4] .. '})))'
  local rows = redis.pcall(
    'FT.SEARCH', P .. 'ix:' .. ARGV[10],
    filter .. '=>[KNN ' .. plain(reach) .. ' @vector' .. ARGV[10] .. ' $v AS d]',
    'PARAMS', 2, 'v', ARGV[9], 'RETURN', 1, 'd', 'LIMIT', 0, plain(reach), 'DIALECT', 2)
  if rows.err then
    local missing = string.find(rows.err, 'no such index', 1, true)
        or string.find(rows.err, 'Unknown index', 1, true)
        or string.find(rows.err, 'not found', 1, true)
    return missing and {} or error(rows)
  end
  local near = {}
  for at = 2, #rows, 2 do
    near[#near + 1] = { string.sub(rows[at], #P + 3), 1 - tonumber(rows[at + 1][2]) }
  end
  table.sort(near, function(one, other) return one[2] > other[2] end)
  return near
end

for _, row in ipairs(ARGV[8] == 'sets' and by_sets() or by_search()) do
  local id, similarity = row[1], row[2]
  local e = read(id)
  if not e then
    forget_vector(ARGV[8] == 'sets' and 'v:' .. place or '', id)
  elseif servable(e, ARGV[4]) and current(c, e) then
    found[#found + 1] = { id, e.body, e.state, string.format('%.9f', similarity) }
    if #found == tonumber(ARGV[6]) then break end
  end
end
return found
