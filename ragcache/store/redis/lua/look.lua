-- Entries as they lie there, for an operator. ARGV: prefix, ids (JSON).
local found = {}
for _, id in ipairs(cjson.decode(ARGV[2])) do
  local e = read(id)
  if e then found[#found + 1] = { id, e.body, e.state } end
end
return found
