-- What scripts that rank by likeness share: each returns { id, similarity }, the nearest first.

-- Up to some thousands every vector is looked at. Beyond, a graph is walked; where that runs dry
-- among entries that the filter holds back, every vector is looked at after all.
local function ranked_by_sets(place, vector, reach, filter, exactly_up_to)
  local key = P .. 'v:' .. place
  local many = tonumber(redis.call('VCARD', key) or 0)
  if many == 0 then return {} end
  local exactly = many <= exactly_up_to
  local ask = { 'VSIM', key, 'FP32', vector, 'WITHSCORES', 'COUNT', reach, 'FILTER', filter }
  if exactly then ask[#ask + 1] = 'TRUTH' end
  local rows = redis.call(unpack(ask))
  if not exactly and #rows < 2 * reach and many <= 10 * exactly_up_to then
    ask[#ask + 1] = 'TRUTH'
    rows = redis.call(unpack(ask))
  end
  local near = {}
  for at = 1, #rows, 2 do
    near[#near + 1] = { rows[at], 2 * tonumber(rows[at + 1]) - 1 }
  end
  return near
end

local function ranked_by_search(place, vector, dimensions, reach, filter)
  local asked = '(@place:{' .. string.gsub(place, ':', 'x') .. '} ' .. filter .. ')'
  local rows = redis.pcall(
    'FT.SEARCH', P .. 'ix:' .. dimensions,
    asked .. '=>[KNN ' .. plain(reach) .. ' @vector' .. dimensions .. ' $v AS d]',
    'PARAMS', 2, 'v', vector, 'RETURN', 1, 'd', 'LIMIT', 0, plain(reach), 'DIALECT', 2)
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
