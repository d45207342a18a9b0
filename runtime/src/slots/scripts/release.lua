-- release: puts claimed members back from prepare into store.
--   KEYS, ARGV  as common.lua, then: delay ms, number of members, and for each: topic index, member.
--   Answer  head. Intents stay in prepare; members that are not in prepare are passed over.
--   Their scores stay, or with a delay become at least Redis TIME + delay: later than due, never earlier.
--   Cost  O(log n) per member; up to 2 calls per member and 4 per topic.
local refusal = open()
if refusal then return refusal end

local delay, n = tonumber(ARGV[arg0 + 1]), tonumber(ARGV[arg0 + 2])
assert(n <= 500, 'too many members')
assert(#ARGV == arg0 + 2 + 2 * n, 'arguments do not match members')
local earliest = delay > 0 and started_ms + delay or 0

local by_topic = {}
for k = 0, n - 1 do
  local i, member = tonumber(ARGV[arg0 + 3 + 2 * k]), ARGV[arg0 + 4 + 2 * k]
  assert(#member == 12 and i >= 1 and i <= n_topics, 'bad member')
  by_topic[i] = by_topic[i] or {}
  table.insert(by_topic[i], member)
end
for i, members in pairs(by_topic) do
  local scores = redis.call('ZMSCORE', prepare_key(i), unpack(members))
  local removes, adds = {}, {}
  for k, member in ipairs(members) do
    local intent, length = is_intent(member)
    if scores[k] and not intent then
      removes[#removes + 1] = member
      if length > 0 then
        adds[#adds + 1] = text(math.max(tonumber(scores[k]), earliest))
        adds[#adds + 1] = member
      end
    end
  end
  if #removes > 0 then count(i, 0, -redis.call('ZREM', prepare_key(i), unpack(removes))) end
  if #adds > 0 then count(i, redis.call('ZADD', store_key(i), 'NX', unpack(adds)), 0) end
  refresh(i)
end
return close()
