// SPDX-License-Identifier: Apache-2.0
#include "reply_parser.h"

#include <hiredis.h>

#include <new>
#include <string>
#include <utility>

#include "inductorfs/base/handle.h"

namespace inductorfs::redis {
namespace {

// What one reply has cost so far; hiredis hands it to every callback as `privdata`.
struct Cost {
  ReplyLimits limits;
  size_t elements = 0;
  size_t bytes = 0;
  const char* exceeded = nullptr;  // names the limit; hiredis itself can only say "out of memory"
};

// Where the object of `task` belongs: a slot of its parent, which was sized when the parent was made, or a new root.
Reply* place_for(const redisReadTask* task) {
  if (task->parent == nullptr) return new (std::nothrow) Reply;
  auto* parent = static_cast<Reply*>(task->parent->obj);
  return &parent->items[static_cast<size_t>(task->idx)];
}

void* refuse(Cost& cost, const char* limit) {
  cost.exceeded = limit;
  return nullptr;
}

size_t depth_of(const redisReadTask* task) {
  size_t depth = 1;
  for (const redisReadTask* at = task->parent; at != nullptr; at = at->parent) ++depth;
  return depth;
}

// The callbacks are called from C: nothing may be thrown through it.
void* create_string(const redisReadTask* task, char* text, size_t size) noexcept try {
  auto& cost = *static_cast<Cost*>(task->privdata);
  cost.bytes += size;
  if (size > cost.limits.bulk_bytes) return refuse(cost, "a string is too long");
  if (cost.bytes > cost.limits.reply_bytes) return refuse(cost, "a reply is too long");
  Reply::Kind kind = Reply::Kind::kString;
  if (task->type == REDIS_REPLY_STATUS) {
    kind = Reply::Kind::kStatus;
  } else if (task->type == REDIS_REPLY_ERROR) {
    kind = Reply::Kind::kError;
  } else if (task->type != REDIS_REPLY_STRING) {
    return refuse(cost, "a type that RESP2 has not");
  }
  std::string copy(text, size);
  Reply* reply = place_for(task);
  if (reply == nullptr) return nullptr;
  reply->kind = kind;
  reply->text = std::move(copy);
  return reply;
} catch (const std::bad_alloc&) {
  return nullptr;
}

// `Count` is int in hiredis 0.14 and size_t from 1.0 on.
template <typename Count>
void* create_array(const redisReadTask* task, Count count) noexcept try {
  auto& cost = *static_cast<Cost*>(task->privdata);
  if (task->type != REDIS_REPLY_ARRAY) return refuse(cost, "a type that RESP2 has not");
  if (std::cmp_less(count, 0)) return refuse(cost, "an array of negative length");
  if (depth_of(task) > cost.limits.depth) return refuse(cost, "arrays are nested too deeply");
  const size_t elements = static_cast<size_t>(count);
  if (elements > cost.limits.elements - cost.elements) return refuse(cost, "a reply has too many elements");
  cost.elements += elements;
  std::vector<Reply> items(elements);
  Reply* reply = place_for(task);
  if (reply == nullptr) return nullptr;
  reply->kind = Reply::Kind::kArray;
  reply->items = std::move(items);
  return reply;
} catch (const std::bad_alloc&) {
  return nullptr;
}

void* create_integer(const redisReadTask* task, long long value) noexcept {
  Reply* reply = place_for(task);
  if (reply == nullptr) return nullptr;
  reply->kind = Reply::Kind::kInteger;
  reply->integer = value;
  return reply;
}

void* create_nil(const redisReadTask* task) noexcept {
  Reply* reply = place_for(task);
  if (reply != nullptr) reply->kind = Reply::Kind::kNil;
  return reply;
}

void free_reply(void* reply) noexcept { delete static_cast<Reply*>(reply); }

// RESP3's types, which hiredis knows from 1.0 on. Left unset, their "objects" would be small integers in the guise of
// pointers. A template, so that the fields may be absent.
template <typename Functions>
void refuse_resp3(Functions& functions) {
  if constexpr (requires { functions.createDouble; }) {
    functions.createDouble = [](const redisReadTask*, double, char*, size_t) -> void* { return nullptr; };
    functions.createBool = [](const redisReadTask*, int) -> void* { return nullptr; };
  }
}

redisReplyObjectFunctions* reply_functions() {
  static redisReplyObjectFunctions functions = [] {
    redisReplyObjectFunctions made{};
    made.createString = &create_string;
    made.createArray = &create_array;
    made.createInteger = &create_integer;
    made.createNil = &create_nil;
    made.freeObject = &free_reply;
    refuse_resp3(made);
    return made;
  }();
  return &functions;
}

}  // namespace

struct ReplyParser::State {
  Cost cost;
  Handle<redisReader, redisReaderFree> reader;
};

ReplyParser::ReplyParser(ReplyLimits limits) : state_(std::make_unique<State>()) {
  state_->cost.limits = limits;
  state_->reader.reset(redisReaderCreateWithFunctions(reply_functions()));
  INDUCTORFS_CHECK(state_->reader != nullptr);
  state_->reader->privdata = &state_->cost;
  // Keep the buffer: the default of 16 KiB frees and grows it anew for every large reply.
  state_->reader->maxbuf = 0;
}

ReplyParser::~ReplyParser() = default;

Result<void> ReplyParser::feed(std::string_view bytes) {
  redisReader& reader = *state_->reader;
  // Of a string within its limit, at most this is buffered while it is not whole: its length line and line ends more.
  constexpr size_t kLengthLine = 64;
  if (reader.len - reader.pos > state_->cost.limits.bulk_bytes + kLengthLine) {
    return fail(ErrorCode::kCorrupt, "reply of the server: a string is too long");
  }
  if (redisReaderFeed(&reader, bytes.data(), bytes.size()) != REDIS_OK) {
    return fail(ErrorCode::kCorrupt, "reply of the server: the parser has given up before");
  }
  return {};
}

Result<std::optional<Reply>> ReplyParser::next() {
  void* object = nullptr;
  if (redisReaderGetReply(state_->reader.get(), &object) != REDIS_OK) {
    const char* limit = state_->cost.exceeded;
    return fail(ErrorCode::kCorrupt,
                std::string("reply of the server: ") + (limit != nullptr ? limit : "not the Redis protocol"));
  }
  if (object == nullptr) return std::optional<Reply>();
  state_->cost.elements = 0;
  state_->cost.bytes = 0;
  const std::unique_ptr<Reply> reply(static_cast<Reply*>(object));
  return std::optional<Reply>(std::move(*reply));
}

bool ReplyParser::drained() const {
  // An array that is not whole has used up its bytes, but is there as the root.
  return state_->reader->pos == state_->reader->len && state_->reader->reply == nullptr;
}

Result<void> append_command(const Command& command, std::string& out) {
  std::vector<const char*> texts;
  std::vector<size_t> sizes;
  size_t total = 0;
  for (const std::string_view argument : command) {
    texts.push_back(argument.data() == nullptr ? "" : argument.data());
    sizes.push_back(argument.size());
    total += argument.size();
  }
  if (total > kCommandBytesLimit) return fail(ErrorCode::kTooLarge, "command of " + std::to_string(total) + " bytes");
  char* raw = nullptr;
  const int size = redisFormatCommandArgv(&raw, static_cast<int>(texts.size()), texts.data(), sizes.data());
  const Handle<char, redisFreeCommand> text(raw);
  if (size < 0) return fail(ErrorCode::kInternal, "no memory for a command");
  out.append(text.get(), static_cast<size_t>(size));
  return {};
}

}  // namespace inductorfs::redis
