-- How many entries a purge of the tenant would remove. ARGV: prefix.
local many = 0
for _, space in ipairs(redis.call('SMEMBERS', P .. 'spaces')) do
  many = many + redis.call('ZCARD', P .. 'u:' .. space)
end
return many
