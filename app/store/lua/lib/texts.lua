-- Texts that are cut to a number of bytes.
local texts = {}

-- The beginning of a text, at most so many bytes, in whole characters.
function texts.beginning(text, most)
  if #text <= most then return text end
  local last = most
  while last > 0 and text:byte(last + 1) >= 128 and text:byte(last + 1) < 192 do last = last - 1 end
  return text:sub(1, last)
end

return texts
