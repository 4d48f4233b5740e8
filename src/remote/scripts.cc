// SPDX-License-Identifier: Apache-2.0
#include "scripts.h"

namespace inductorfs::remote {
namespace {

// advance(): one more generation, and its record in the log.
//  - %.0f: a number becomes an argument with 14 digits only.
//  - An index without meta (an eviction policy took it, or an operator): a reader that stands at {0, ""} must not take
//    the first record for the whole history, so the chain starts with a nonce that nobody has.
//  - XADD refuses an id that is not larger than the last: a log that outlived its meta. It has lost its meaning then.
constexpr const char* kCommon = R"lua(#!lua
local meta, idx, cnt, own, log = KEYS[1], KEYS[2], KEYS[3], KEYS[4], KEYS[5]

local function generation()
  return tonumber(redis.call('HGET', meta, 'gen') or '0')
end

local function advance(nonce, length, record)
  local prev = redis.call('HGET', meta, 'nonce')
  if not prev then
    prev = redis.call('EXISTS', idx) == 1 and 'lost' or ''
  end
  local gen = redis.call('HINCRBY', meta, 'gen', 1)
  redis.call('HSET', meta, 'nonce', nonce, 'fmt', '1')
  local id = string.format('%.0f-0', gen)
  local added = redis.pcall('XADD', log, 'MAXLEN', '~', length, id, 'p', prev, 'n', nonce, 'r', record)
  if type(added) == 'table' and added.err then
    redis.call('DEL', log)
    redis.call('XADD', log, 'MAXLEN', '~', length, id, 'p', prev, 'n', nonce, 'r', record)
  end
  return gen
end

local function digest_in(value)
  return string.sub(value, 2, 33)
end
)lua";

constexpr const char* kPublish = R"lua(
local nonce, length, limit, record = ARGV[1], ARGV[2], tonumber(ARGV[3]), ARGV[4]
local contest, most, expect, mode = ARGV[5], tonumber(ARGV[6]), ARGV[7], ARGV[8]
local first = 9

local same, held_all, new = true, true, 0
for i = first, #ARGV, 2 do
  local held = redis.call('HGET', idx, ARGV[i])
  if held ~= ARGV[i + 1] then same = false end
  if not held or digest_in(held) ~= digest_in(ARGV[i + 1]) then held_all = false end
  if not held then new = new + 1 end
end
if held_all and mode == 'repair' then
  local gen = advance(nonce, length, record)
  for i = first, #ARGV, 2 do redis.call('HSET', idx, ARGV[i], ARGV[i + 1]) end
  return {'PUBLISHED', gen}
end
if held_all then return {same and 'SAME' or 'HELD', generation()} end
if contest ~= '' and tonumber(redis.call('HGET', cnt, contest) or '0') > most then
  return {'SUPERSEDED', generation()}
end
if expect ~= '' then
  local held = redis.call('HGET', idx, ARGV[first])
  local is = held and '=' .. digest_in(held) or '-'
  if is ~= expect then return {'CONFLICT', generation()} end
end
if new > 0 and redis.call('HLEN', idx) + new > limit then return {'FULL', generation()} end

local gen = advance(nonce, length, record)
for i = first, #ARGV, 2 do
  redis.call('HSET', idx, ARGV[i], ARGV[i + 1])
  if contest ~= '' then
    redis.call('HSET', own, ARGV[i], nonce)
  else
    redis.call('HDEL', own, ARGV[i])
  end
end
if contest ~= '' then
  redis.call('HSET', own, '/' .. nonce, contest)
  redis.call('HINCRBY', cnt, contest, 1)
end
return {'PUBLISHED', gen}
)lua";

// A group that has lost one file is of no use to anybody (a Triton key directory is complete or absent), so its first
// lost path gives its place in the contest back: else nobody in the cluster could ever publish that key again.
constexpr const char* kReportLost = R"lua(
local nonce, length, record, path, digest = ARGV[1], ARGV[2], ARGV[3], ARGV[4], ARGV[5]
local held = redis.call('HGET', idx, path)
if not held or digest_in(held) ~= digest then return {'OTHER', generation()} end

local gen = advance(nonce, length, record)
redis.call('HDEL', idx, path)
local group = redis.call('HGET', own, path)
if group then
  redis.call('HDEL', own, path)
  local contest = redis.call('HGET', own, '/' .. group)
  if contest then
    redis.call('HDEL', own, '/' .. group)
    if redis.call('HINCRBY', cnt, contest, -1) <= 0 then redis.call('HDEL', cnt, contest) end
  end
end
return {'REMOVED', gen}
)lua";

constexpr const char* kRegisterScope = R"lua(#!lua
local registry, scope, lifetime, most = KEYS[1], ARGV[1], tonumber(ARGV[2]), tonumber(ARGV[3])
local time = redis.call('TIME')
local now = tonumber(time[1]) * 1000 + math.floor(tonumber(time[2]) / 1000)
redis.call('ZADD', registry, string.format('%.0f', now), scope)
redis.call('ZREMRANGEBYSCORE', registry, '-inf', string.format('%.0f', now - lifetime))
redis.call('ZREMRANGEBYRANK', registry, 0, -1 - most)
return 'OK'
)lua";

}  // namespace

const std::string& publish_script() {
  static const std::string script = std::string(kCommon) + kPublish;
  return script;
}

const std::string& report_lost_script() {
  static const std::string script = std::string(kCommon) + kReportLost;
  return script;
}

const std::string& register_scope_script() {
  static const std::string script = kRegisterScope;
  return script;
}

}  // namespace inductorfs::remote
