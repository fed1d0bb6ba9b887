-- A new epoch: nothing stored before is served again. ARGV: prefix, namespace, notice.
running()
local number = tick()
redis.call('HSET', CLOCK, 'n:' .. ARGV[2], plain(number))
tell(ARGV[3])
return plain(number)
