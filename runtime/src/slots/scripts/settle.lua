-- settle: removes members whose fate is committed from store, prepare and body alike, and moves positions.
--   KEYS, ARGV  as common.lua, then: jpos ('' = unchanged), due_pos ('' = unchanged), 1 if this ends a cold take-over,
--     number of members, and for each: topic index, member.
--   Answer  head. Members that are not there are passed over: the same fate may be settled again.
--   Cost  O(log n) per member; 1 call per member and 3 per topic.
local refusal = open()
if refusal then return refusal end

local jpos, due_pos, rebuilt, n = ARGV[arg0 + 1], ARGV[arg0 + 2], ARGV[arg0 + 3], tonumber(ARGV[arg0 + 4])
assert(n <= 500, 'too many members')
assert(#ARGV == arg0 + 4 + 2 * n, 'arguments do not match members')

local by_topic, seen = {}, {}
for k = 0, n - 1 do
  local i, member = tonumber(ARGV[arg0 + 5 + 2 * k]), ARGV[arg0 + 6 + 2 * k]
  assert(#member == 12 and i >= 1 and i <= n_topics, 'bad member')
  by_topic[i] = by_topic[i] or {}
  table.insert(by_topic[i], member)
  if not seen[member] then
    seen[member] = true
    counts.bytes = counts.bytes - redis.call('HSTRLEN', body_key, member)
  end
end
for i, members in pairs(by_topic) do
  local from_store = redis.call('ZREM', store_key(i), unpack(members))
  count(i, -from_store, -redis.call('ZREM', prepare_key(i), unpack(members)))
  counts.bodies = counts.bodies - redis.call('HDEL', body_key, unpack(members))
  if from_store > 0 then refresh(i) end
end

local set = {}
if jpos ~= '' then set = { 'jpos', jpos } end
if due_pos ~= '' then
  set[#set + 1] = 'due_pos'
  set[#set + 1] = due_pos
end
if rebuilt == '1' then redis.call('HDEL', meta_key, 'cold') end
return close(set)
