-- The nearest entries of one place that may be served, nearest first.
-- KEYS: clock, changed. ARGV: prefix, place, namespace, writer, now (us), how many, how many to
-- rank, how ("sets" or "search"), vector, dimensions, exactly up to.
local c, found = clock(), {}
if not c.sound then return found end
local place = ARGV[2] .. ':' .. plain(epoch(c, ARGV[3]))
local reach = tonumber(ARGV[7])

local function ranked()
  if ARGV[8] == 'sets' then
    return ranked_by_sets(place, ARGV[9], reach, '.x > ' .. ARGV[5]
      .. ' and (.st == "live" or (.st == "waiting" and .p == "' .. ARGV[4] .. '"))',
      tonumber(ARGV[11]))
  end
  return ranked_by_search(place, ARGV[9], ARGV[10], reach, '@until:[(' .. ARGV[5]
    .. ' +inf] ((@standing:{live})|(@standing:{waiting} @writer:{' .. ARGV[4] .. '}))')
end

for _, row in ipairs(ranked()) do
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
