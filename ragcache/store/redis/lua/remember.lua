-- Keep a state until then. ARGV: prefix, state, value, until (us), lifetime (ms), writer.
local key = P .. 's:' .. ARGV[2]
redis.call('HSET', key, 'value', ARGV[3], 'until', ARGV[4])
redis.call('PEXPIRE', key, ARGV[5])
if ARGV[6] ~= '' then
  redis.call('SADD', P .. 'w:' .. ARGV[6], 's:' .. ARGV[2])
  keep(P .. 'w:' .. ARGV[6], tonumber(ARGV[5]))
end
return 1
