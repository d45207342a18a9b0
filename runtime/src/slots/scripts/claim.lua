-- claim: moves due members from store to prepare and gives their bodies.
--   KEYS, ARGV  as common.lua, then: local clock ms, largest number of body bytes, of members, of due topics to tell,
--     and one quota per topic.
--   Answer  head, then claimed {topic index, member, score, body, ...}, still due {topic, score, ...}, number dropped.
--   Due is score <= min(local clock, Redis TIME): never early, whichever clock is wrong (R38).
--   In order of (score, member) per topic; at least one member if any is due, however large its body.
--   Dropped from store: members without a body, and those that stand in prepare already (claimed and not settled, or an
--   intent): what is in prepare is never handed out again.
--   Cost  O(log n) per member; 5 calls per up to 32 members.
local refusal = open()
if refusal then return refusal end

local now = math.min(tonumber(ARGV[arg0 + 1]), started_ms)
local max_bytes, max_members = tonumber(ARGV[arg0 + 2]), tonumber(ARGV[arg0 + 3])
local due_limit = tonumber(ARGV[arg0 + 4])
assert(max_members <= 500, 'too many members')
assert(#ARGV == arg0 + 4 + n_topics, 'quotas do not match topics')

-- Members are looked at in groups that probably fit, so that a herd of large bodies is not read for nothing.
local mean = counts.bodies > 0 and math.max(counts.bytes / counts.bodies, 1) or 1
local claimed, taken, bytes, dropped, full = {}, 0, 0, 0, false

for i = 1, n_topics do
  local left = math.min(tonumber(ARGV[arg0 + 4 + i]), max_members - taken)
  while left > 0 and not full do
    local group = math.floor(math.max(1, math.min(32, left, (max_bytes - bytes) / mean)))
    local found = redis.call('ZRANGE', store_key(i), '-inf', text(now), 'BYSCORE', 'LIMIT', 0, group, 'WITHSCORES')
    if #found == 0 then break end
    local members, bad_bodies = {}, {}
    for k = 1, #found, 2 do members[#members + 1] = found[k] end
    local bodies = redis.call('HMGET', body_key, unpack(members))
    local prepared = redis.call('ZMSCORE', prepare_key(i), unpack(members))
    local removes, adds = {}, {}
    for k, member in ipairs(members) do
      local body = bodies[k]
      local kind = body and string.byte(body)
      if prepared[k] or (kind ~= 68 and kind ~= 87) then
        dropped = dropped + 1
        if body and not prepared[k] then
          bad_bodies[#bad_bodies + 1] = member
          counts.bytes = counts.bytes - #body
        end
      elseif taken > 0 and bytes + #body > max_bytes then
        full = true
        break
      else
        local score, c = found[2 * k], #claimed
        claimed[c + 1], claimed[c + 2], claimed[c + 3], claimed[c + 4] = text(i), member, score, body
        adds[#adds + 1] = score
        adds[#adds + 1] = member
        taken, left, bytes = taken + 1, left - 1, bytes + #body
      end
      removes[#removes + 1] = member
    end
    if #removes > 0 then count(i, -redis.call('ZREM', store_key(i), unpack(removes)), 0) end
    if #adds > 0 then count(i, 0, redis.call('ZADD', prepare_key(i), unpack(adds))) end
    if #bad_bodies > 0 then counts.bodies = counts.bodies - redis.call('HDEL', body_key, unpack(bad_bodies)) end
  end
  refresh(i)
end

local answer = close()
answer[7], answer[8], answer[9] = claimed, due_topics(now, due_limit), text(dropped)
return answer
