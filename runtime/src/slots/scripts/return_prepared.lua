-- return_prepared: for a take-over, puts what an earlier owner had claimed in one topic back into store.
--   KEYS, ARGV  as common.lua with one topic, then: rank to start from, number of members to look at.
--   Answer  head, then rank to go on from ('' = all seen), number returned, intents {member, score, body, ...}.
--   Withdraw intents stay in prepare and are told. Scores stay. Members without a body are removed.
--   Cost  O(log n) per member looked at; up to 2 calls per member.
local refusal = open()
if refusal then return refusal end

assert(n_topics == 1 and #ARGV == arg0 + 2, 'one topic at a time')
local start, limit = tonumber(ARGV[arg0 + 1]), tonumber(ARGV[arg0 + 2])
assert(limit <= 500, 'too many members')

local found = redis.call('ZRANGE', prepare_key(1), start, start + limit - 1, 'WITHSCORES')
local removes, adds, intents = {}, {}, {}
for k = 1, #found, 2 do
  local member, score = found[k], found[k + 1]
  local intent, length = is_intent(member)
  if intent then
    local c = #intents
    intents[c + 1], intents[c + 2], intents[c + 3] = member, score, redis.call('HGET', body_key, member)
  else
    removes[#removes + 1] = member
    if length > 0 then
      adds[#adds + 1] = score
      adds[#adds + 1] = member
    end
  end
end
if #removes > 0 then count(1, 0, -redis.call('ZREM', prepare_key(1), unpack(removes))) end
local returned = 0
if #adds > 0 then
  returned = redis.call('ZADD', store_key(1), 'NX', unpack(adds))
  count(1, returned, 0)
end
refresh(1)

local answer = close()
answer[7] = #found == 2 * limit and text(start + #intents / 3) or ''
answer[8], answer[9] = text(returned), intents
return answer
