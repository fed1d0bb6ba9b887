-- Keep a state in place of the version that was seen; return whether it is kept.
-- ARGV: prefix, state, value, until (us), lifetime (ms), version seen, now (us).
local key = P .. 's:' .. ARGV[2]
local kept, version = redis.call('HMGET', key, 'value', 'until'), 0
if kept[1] and tonumber(kept[2]) > tonumber(ARGV[7]) then
  local readable, value = pcall(cjson.decode, kept[1])
  version = readable and type(value) == 'table' and tonumber(value.version) or 0
end
if version ~= tonumber(ARGV[6]) then return 0 end
redis.call('HSET', key, 'value', ARGV[3], 'until', ARGV[4])
redis.call('PEXPIRE', key, ARGV[5])
return 1
