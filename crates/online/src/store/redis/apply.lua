-- Lets each row take the place of its key if it is the greater one; says how many did.
-- The bytes 2 to 29 of a row are its stamp, and sort like it. They are compared one by one, since
-- Lua compares strings by the rules of the server's language.
local placed = 0
for place, key in ipairs(KEYS) do
  local row = ARGV[place]
  local there = redis.call('GETRANGE', key, 0, 28)
  local greater = #there < 29
  if not greater then
    for at = 2, 29 do
      local new, old = string.byte(row, at), string.byte(there, at)
      if new ~= old then
        greater = new > old
        break
      end
    end
  end
  if greater then
    redis.call('SET', key, row)
    placed = placed + 1
  end
end
return placed
