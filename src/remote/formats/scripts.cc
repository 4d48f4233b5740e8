// SPDX-License-Identifier: Apache-2.0
#include "remote/formats/scripts.h"

#include "inductorfs/codec/entry.h"

namespace inductorfs::remote {
namespace {

// digest_in(): '' for an entry of a newer release, which equals no digest. `known` is the version of this release.
// is_number(): false for what a flipped bit left, or more digits than a number of Lua holds. Such a generation counts
// as no meta, as in head_of(), and such a count as none: HINCRBY would refuse both for ever. advance(): one more
// generation, and its record in the log.
//  - %.0f: a number becomes an argument with 14 digits only.
//  - An index without meta (an eviction policy took it, or an operator): the last record of the log was written in one
//    step with it and tells the same, so the history goes on and nobody has to read the index anew.
//  - An index without both, or meta without an index: a reader that stands at {0, ""} must not take the first record
//    for the whole history, nor one at the head what it knows for the index, so the chain goes on from a nonce that
//    nobody has.
//  - XADD refuses an id that is not larger than the last: a log that outlived its meta. It has lost its meaning then.
// keep(): a lifetime for the keys that have none yet, or whose time is partly over. By pcall: a user who may not do
// that can still publish.
// drop_lone_contests(): counts whose index or owners are gone (evicted) would refuse their contests for ever.
constexpr const char* kCommon = R"lua(
local meta, idx, cnt, own, log = KEYS[1], KEYS[2], KEYS[3], KEYS[4], KEYS[5]

local function is_number(text)
  return #text <= 15 and string.match(text, '^%d+$') ~= nil
end

local function generation()
  local gen = redis.call('HGET', meta, 'gen')
  return gen and is_number(gen) and tonumber(gen) or 0
end

local function groups_of(contest)
  local count = redis.call('HGET', cnt, contest) or '0'
  if is_number(count) then return tonumber(count) end
  redis.call('HDEL', cnt, contest)
  return 0
end

local function restore_meta()
  local last = redis.pcall('XREVRANGE', log, '+', '-', 'COUNT', 1)
  if type(last) ~= 'table' or last.err or not last[1] then return nil end
  local fields = last[1][2]
  for i = 1, #fields, 2 do
    if fields[i] == 'n' then
      redis.call('HSET', meta, 'gen', string.match(last[1][1], '^%d+'), 'nonce', fields[i + 1])
      return fields[i + 1]
    end
  end
  return nil
end

local function advance(nonce, length, record)
  local known_gen = redis.call('HGET', meta, 'gen')
  if known_gen and not is_number(known_gen) then redis.call('HDEL', meta, 'gen', 'nonce') end
  local prev = redis.call('HGET', meta, 'nonce')
  local whole = redis.call('EXISTS', idx) == 1
  if not prev then
    prev = whole and (restore_meta() or 'lost') or ''
  elseif not whole then
    prev = 'lost'
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

local function is_newer(value)
  return (string.byte(value) or 0) > known
end

local function digest_in(value)
  return is_newer(value) and '' or string.sub(value, 2, 33)
end

local function keep(lifetime, renewal)
  for i = 1, 5 do
    local left = redis.pcall('PTTL', KEYS[i])
    if type(left) == 'number' and left ~= -2 and left < renewal + 0 then redis.pcall('PEXPIRE', KEYS[i], lifetime) end
  end
end

local function drop_lone_contests()
  local owners, counts = redis.call('EXISTS', own), redis.call('EXISTS', cnt)
  if owners + counts > 0 and (owners ~= counts or redis.call('EXISTS', idx) == 0) then redis.call('DEL', own, cnt) end
end
)lua";

// A group that has lost one file is of no use to anybody (a Triton key directory is complete or absent), so its first
// lost path gives its place in the contest back: else nobody in the cluster could ever publish that key again.
constexpr const char* kRemove = R"lua(
local function remove(path)
  redis.call('HDEL', idx, path)
  local group = redis.call('HGET', own, path)
  if not group then return end
  redis.call('HDEL', own, path)
  local contest = redis.call('HGET', own, '/' .. group)
  if not contest then return end
  redis.call('HDEL', own, '/' .. group)
  if groups_of(contest) <= 1 then redis.call('HDEL', cnt, contest) else redis.call('HINCRBY', cnt, contest, -1) end
end
)lua";

constexpr const char* kPublish = R"lua(
local nonce, length, limit, record = ARGV[1], ARGV[2], tonumber(ARGV[3]), ARGV[4]
local contest, most, expect, mode = ARGV[5], tonumber(ARGV[6]), ARGV[7], ARGV[8]
local lifetime, renewal = ARGV[9], ARGV[10]
local first = 11

local same, held_all, new = true, true, 0
for i = first, #ARGV, 2 do
  local held = redis.call('HGET', idx, ARGV[i])
  if held and is_newer(held) then return {'NEWER', generation()} end
  if held ~= ARGV[i + 1] then same = false end
  if not held or digest_in(held) ~= digest_in(ARGV[i + 1]) then held_all = false end
  if not held then new = new + 1 end
end
if held_all and mode == 'repair' then
  local gen = advance(nonce, length, record)
  for i = first, #ARGV, 2 do redis.call('HSET', idx, ARGV[i], ARGV[i + 1]) end
  keep(lifetime, renewal)
  return {'PUBLISHED', gen}
end
if held_all then return {same and 'SAME' or 'HELD', generation()} end
drop_lone_contests()
if contest ~= '' and groups_of(contest) > most then
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
keep(lifetime, renewal)
return {'PUBLISHED', gen}
)lua";

constexpr const char* kReportLost = R"lua(
local nonce, length, record, path, digest = ARGV[1], ARGV[2], ARGV[3], ARGV[4], ARGV[5]
local lifetime, renewal = ARGV[6], ARGV[7]
local held = redis.call('HGET', idx, path)
if not held or digest_in(held) ~= digest then return {'OTHER', generation()} end

local gen = advance(nonce, length, record)
remove(path)
keep(lifetime, renewal)
return {'REMOVED', gen}
)lua";

constexpr const char* kSweep = R"lua(
local sweeper, first = KEYS[6], 8
local nonce, length, record, token, lease = ARGV[1], ARGV[2], ARGV[3], ARGV[4], ARGV[5]
if redis.call('GET', sweeper) ~= token then return {'FENCED', 0} end
redis.call('PEXPIRE', sweeper, lease)
if #ARGV < first then return {'HELD', 0} end
for i = first, #ARGV, 2 do
  local held = redis.call('HGET', idx, ARGV[i])
  if not held or digest_in(held) ~= ARGV[i + 1] then return {'OTHER', generation()} end
end
local gen = advance(nonce, length, record)
for i = first, #ARGV, 2 do remove(ARGV[i]) end
keep(ARGV[6], ARGV[7])
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

constexpr const char* kHoldLease = R"lua(#!lua
local has = redis.call('GET', KEYS[1])
if has and has ~= ARGV[1] then return has end
if ARGV[2] == '0' then
  redis.call('DEL', KEYS[1])
  return ''
end
redis.call('SET', KEYS[1], ARGV[1], 'PX', ARGV[2])
return ARGV[1]
)lua";

constexpr const char* kUncover = R"lua(#!lua
if redis.call('EXISTS', KEYS[2]) == 1 or redis.call('HGET', KEYS[1], ARGV[1]) ~= ARGV[2] then return 0 end
return redis.call('HDEL', KEYS[1], ARGV[1])
)lua";

constexpr const char* kReplace = R"lua(#!lua
local held = redis.pcall('GET', KEYS[1])
if type(held) ~= 'string' or #held > tonumber(ARGV[4]) then held = '' end
if held ~= ARGV[1] then return 0 end
redis.call('SET', KEYS[1], ARGV[2], 'PX', ARGV[3])
return 1
)lua";

/// What the scripts that read or write entries begin with.
std::string common() { return "#!lua\nlocal known = " + std::to_string(codec::kEntryVersion) + kCommon; }

}  // namespace

const std::string& publish_script() {
  static const std::string script = common() + kPublish;
  return script;
}

const std::string& report_lost_script() {
  static const std::string script = common() + kRemove + kReportLost;
  return script;
}

const std::string& sweep_script() {
  static const std::string script = common() + kRemove + kSweep;
  return script;
}

const std::string& replace_script() {
  static const std::string script = kReplace;
  return script;
}

const std::string& hold_lease_script() {
  static const std::string script = kHoldLease;
  return script;
}

const std::string& uncover_script() {
  static const std::string script = kUncover;
  return script;
}

const std::string& register_scope_script() {
  static const std::string script = kRegisterScope;
  return script;
}

}  // namespace inductorfs::remote
