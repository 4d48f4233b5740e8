// SPDX-License-Identifier: Apache-2.0
#include <string_view>
#include <utility>

#include "inductorfs/base/number.h"
#include "inductorfs/base/text.h"
#include "remote/operations/redis_operations.h"

namespace inductorfs::remote {
namespace {

constexpr int kOldestMajor = 7;  // "#!lua" scripts; Valkey says 7.2.4 for ever

void add_warnings(ServerFacts& facts) {
  const std::string& policy = facts.eviction_policy;
  if (facts.memory_limit == 0) return;  // nothing is ever evicted
  if (policy.starts_with("allkeys-")) {
    facts.warnings.push_back("maxmemory-policy is " + policy +
                             ": the server may throw away the index and its log; set maxmemory-policy to volatile-ttl");
  } else if (policy == "noeviction") {
    facts.warnings.push_back(
        "maxmemory-policy is noeviction with maxmemory set: publishing fails when the memory is full; set "
        "maxmemory-policy to volatile-ttl");
  }
}

}  // namespace

void add_info(std::string_view text, InfoFields& fields) {
  while (!text.empty() && fields.size() < kInfoFieldsLimit) {
    const std::string_view line = trimmed(take_part(text, '\n'));
    const size_t colon = line.find(':');
    if (colon != std::string_view::npos) fields.emplace(line.substr(0, colon), line.substr(colon + 1));
  }
}

Result<ServerFacts> facts_from_info(const std::string& info, ServerMode mode) {
  InfoFields fields;
  add_info(info, fields);
  const auto field = [&](std::string_view name) {
    const auto found = fields.find(name);
    return found == fields.end() ? std::string() : found->second;
  };
  const std::string version = field("redis_version");
  if (version.empty())
    return fail(ErrorCode::kInvalid, "this is no Redis server: INFO has no redis_version; check host and port");
  if (leading_number<uint64_t>(version) < kOldestMajor) {
    return fail(ErrorCode::kNotSupported, "the server is Redis " + version + "; use Redis 7.0 or later");
  }
  if (field("redis_mode") == "cluster" && mode == ServerMode::kAlone) {
    return fail(ErrorCode::kNotSupported,
                "the server is part of a Redis Cluster: write redis+cluster://HOST:PORT in --remote (rediss+cluster:// "
                "for TLS)");
  }
  ServerFacts facts;
  const std::string valkey = field("valkey_version");
  facts.version = valkey.empty() ? version : "valkey " + valkey;
  facts.eviction_policy = field("maxmemory_policy");
  facts.memory_limit = leading_number<uint64_t>(field("maxmemory"));
  facts.memory_used = leading_number<uint64_t>(field("used_memory"));
  facts.evicted = leading_number<uint64_t>(field("evicted_keys"));
  add_warnings(facts);
  return facts;
}

namespace {

/// What one server has told of itself. `facts` are empty when this user may not ask.
struct Answer {
  std::string address;
  Result<ServerFacts> facts;
};

Result<ServerFacts> ask_server(RedisClient& session, const std::function<Result<void>(const RedisClient::Talk&)>& run) {
  std::string info;
  bool hidden = false;
  auto outcome = run([&](Conversation& channel) -> Result<void> {
    INDUCTORFS_TRY_ASSIGN(auto replies, channel.call_all({{"INFO", "server"}, {"INFO", "memory"}, {"INFO", "stats"}}));
    info.clear();
    for (const redis::Reply& reply : replies) {
      if (reply.kind != redis::Reply::Kind::kString) {
        Error error = redis::to_error(reply);
        // A user with nothing but the rights to read may not ask what server this is, and can use it all the same.
        hidden =
            session.options().read_only && error.code() == ErrorCode::kNotPermitted && reply.text.starts_with("NOPERM");
        if (hidden) return {};
        return fail(std::move(error));
      }
      info += reply.text + "\n";
    }
    return {};
  });
  if (outcome && hidden) return ServerFacts{};
  if (outcome) return facts_from_info(info, session.shards() != nullptr ? ServerMode::kShard : ServerMode::kAlone);
  return fail(std::move(outcome).error());
}

void add_word(std::string& words, const std::string& word) {
  if (word.empty() || words == word || words.starts_with(word + ", ") || words.ends_with(", " + word)) return;
  if (words.find(", " + word + ", ") != std::string::npos) return;
  words += (words.empty() ? "" : ", ") + word;
}

bool is_away(const Error& error) {
  return error.code() == ErrorCode::kUnavailable || error.code() == ErrorCode::kTimedOut;
}

// Of a cluster: masters that differ, and each warning with the address that it is about.
Result<ServerFacts> merged(const std::vector<Answer>& answers, size_t uncovered) {
  ServerFacts all;
  bool answered = false;
  bool unlimited = false;
  for (const Answer& one : answers) {
    if (!one.facts && !is_away(one.facts.error())) {
      return fail(one.facts.error().code(), one.address + ": " + one.facts.error().what());
    }
    if (!one.facts) {
      all.warnings.push_back(one.address + " does not answer: what it holds is misses (" + one.facts.error().what() +
                             "); start it, or its replica");
      continue;
    }
    answered = true;
    add_word(all.version, one.facts->version);
    add_word(all.eviction_policy, one.facts->eviction_policy);
    unlimited = unlimited || one.facts->memory_limit == 0;
    all.memory_limit += one.facts->memory_limit;
    all.memory_used += one.facts->memory_used;
    all.evicted += one.facts->evicted;
    for (const std::string& warning : one.facts->warnings) all.warnings.push_back(one.address + ": " + warning);
  }
  if (!answered && !answers.empty()) return fail(answers.front().facts.error());
  if (unlimited) all.memory_limit = 0;
  if (uncovered > 0) {
    all.warnings.push_back(std::to_string(uncovered) + " of " + std::to_string(kSlots) +
                           " slots of the Redis Cluster have no server: see CLUSTER INFO");
  }
  return all;
}

}  // namespace

Result<ServerFacts> RedisRemote::probe(Deadline deadline) {
  std::vector<Answer> answers;
  auto asked = session_.for_each_server(Use::kControl, deadline, [&](const std::string& address, const auto& run) {
    answers.push_back({address, ask_server(session_, run)});
  });
  Result<ServerFacts> facts = fail(ErrorCode::kUnavailable);
  if (!asked) {
    facts = fail(std::move(asked).error());
  } else if (session_.shards() != nullptr) {
    facts = merged(answers, session_.shards()->uncovered());
  } else {
    facts = std::move(answers.front().facts);
  }
  if (!facts && facts.error().code() == ErrorCode::kCorrupt)
    return fail(ErrorCode::kInvalid, facts.error().what() + "; check host and port");
  return facts;
}

}  // namespace inductorfs::remote
