-- Lets each row take the place of its key unless what is there is greater; says how many have it now.
-- The bytes 2 to 29 of a row are its stamp, and sort like it. They are compared one by one, since
-- Lua compares strings by the rules of the server's language.
local placed = 0
for place, key in ipairs(KEYS) do
  local row = ARGV[place]
  local there = redis.call('GETRANGE', key, 0, 28)
  local order = 1
  if #there == 29 then
    order = 0
    for at = 2, 29 do
      order = string.byte(row, at) - string.byte(there, at)
      if order ~= 0 then
        break
      end
    end
  end
  if order > 0 then
    redis.call('SET', key, row)
  end
  if order >= 0 then
    placed = placed + 1
  end
end
return placed
