-- preload: puts due records into store, and withdraw intents into prepare.
--   KEYS, ARGV  as common.lua, then: largest fence of the records ('' = none), due_pos ('' = unchanged),
--     number of records, and for each: topic index, member, due ms, body (first byte D or W).
--   Answer  head, then one letter per record: S stored, D duplicate, I intent placed, A intent already there.
--   A member has a body exactly while it is in store or prepare, so HSETNX on the body decides whether it is new.
--   The only script without allow-oom: at maxmemory it is refused before it starts, so that the others can drain.
--   Cost  O(log n) per record; about 3 calls per record.
local refusal = open()
if refusal then return refusal end

local fence, due_pos, n = ARGV[arg0 + 1], ARGV[arg0 + 2], tonumber(ARGV[arg0 + 3])
assert(n <= 500, 'too many members')
assert(#ARGV == arg0 + 3 + 4 * n, 'arguments do not match records')

-- Decimal strings without sign or leading zeros.
local function greater(a, b) return #a > #b or (#a == #b and a > b) end

local waiting = {}
local function flush(i)
  local adds = waiting[i]
  if adds and #adds > 0 then
    count(i, redis.call('ZADD', store_key(i), 'NX', unpack(adds)), 0)
    waiting[i] = {}
  end
end

local outcome = {}
for k = 0, n - 1 do
  local at = arg0 + 4 + 4 * k
  local i, member, due, body = tonumber(ARGV[at]), ARGV[at + 1], ARGV[at + 2], ARGV[at + 3]
  assert(#member == 12 and i >= 1 and i <= n_topics, 'bad record')
  waiting[i] = waiting[i] or {}
  if string.byte(body) == 68 then
    if redis.call('HSETNX', body_key, member, body) == 1 then
      counts.bodies = counts.bodies + 1
      counts.bytes = counts.bytes + #body
      local adds = waiting[i]
      adds[#adds + 1] = due
      adds[#adds + 1] = member
      outcome[#outcome + 1] = 'S'
    else
      outcome[#outcome + 1] = 'D'
    end
  else
    assert(string.byte(body) == 87 and #body <= 1024, 'bad intent')
    local already, length = is_intent(member)
    if already then
      outcome[#outcome + 1] = 'A'
    else
      flush(i)
      counts.bodies = counts.bodies + redis.call('HSET', body_key, member, body)
      counts.bytes = counts.bytes + #body - length
      count(i, -redis.call('ZREM', store_key(i), member), redis.call('ZADD', prepare_key(i), due, member))
      outcome[#outcome + 1] = 'I'
    end
  end
end

for i in pairs(waiting) do
  flush(i)
  -- Also for topics of which everything was there already: a wrong score in `topics` heals here.
  refresh(i)
end

local set = {}
local known = redis.call('HGET', meta_key, 'fence')
if fence ~= '' and greater(fence, known or '') then set = { 'fence', fence } end
if due_pos ~= '' then
  set[#set + 1] = 'due_pos'
  set[#set + 1] = due_pos
end
local answer = close(set)
answer[7] = table.concat(outcome)
return answer
