-- Note a hit: never extends a lifetime. ARGV: prefix, id, now (us).
local space = redis.call('HGET', P .. 'e:' .. ARGV[2], 'space')
if not space then return 0 end
redis.call('HINCRBY', P .. 'e:' .. ARGV[2], 'hits', 1)
return redis.call('ZADD', P .. 'u:' .. space, 'XX', 'GT', ARGV[3], ARGV[2])
