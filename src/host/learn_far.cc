// SPDX-License-Identifier: Apache-2.0
// Has the examiner of a mount learn the facts, and does so there.
#include <linux/capability.h>
#include <sys/stat.h>
#include <unistd.h>

#include <algorithm>
#include <exception>
#include <optional>
#include <utility>

#include "inductorfs/config/error_json.h"
#include "inductorfs/config/json.h"
#include "inductorfs/config/text.h"
#include "inductorfs/fingerprint/trust.h"
#include "inductorfs/host/learn.h"
#include "inductorfs/host/place_reader.h"

namespace inductorfs::host {
namespace {

using config::error_to_json;
using config::Json;
using config::to_line;
using fingerprint::ExaminerCall;
using fingerprint::Fingerprint;

/// Of what a mount gives its examiner; another one is another release's.
constexpr int kForm = 1;
/// Readers follow one another: packages, compiler, the files of variables, libraries.
constexpr int kReadersInTurn = 5;
constexpr Milliseconds kMostPatience{120'000};
constexpr Milliseconds kNoneAnswers{10'000};
constexpr Milliseconds kAskAgain{1'000};

Milliseconds patience_at(const Json& request, const char* name) {
  const uint64_t number = config::number_at(request, name);
  return Milliseconds(std::clamp<uint64_t>(number, 1, static_cast<uint64_t>(kMostPatience.count())));
}

/// In a child of the examiner. All that the worker says is how long it waits.
std::string answer_facts(FactsRequest request, const ExaminerCall& call) {
  const Json asked = config::from_text(call.request);
  if (!asked.is_object()) return to_line(error_to_json(Error(ErrorCode::kInvalid, "the request is no JSON object")));
  request.deadline = patience_at(asked, "command");
  request.reader.program = kThisProgram;
  request.reader.deadline = patience_at(asked, "reader");
  // Where the store has moved meanwhile nothing is made at its old place.
  struct stat status {};
  const std::string folder = request.cache_file.substr(0, request.cache_file.rfind('/'));
  if (::stat(folder.c_str(), &status) != 0) request.cache_file.clear();
  const Result<Fingerprint> facts = learn_facts(request);
  std::string text = to_line(facts ? Json{{"facts", facts->to_json()}} : error_to_json(facts.error()));
  if (text.size() <= fingerprint::kExaminerAnswer) return text;
  const std::string most = std::to_string(fingerprint::kExaminerAnswer);
  return to_line(
      error_to_json(Error(ErrorCode::kTooLarge, "the facts of this host have more than " + most + " bytes")));
}

/// What the worker takes for facts, or for a reason why there are none.
Result<Fingerprint> facts_from(const std::string& answer) {
  const Json json = config::from_text(answer);
  const auto text = json.is_object() ? json.find("facts") : json.end();
  if (json.is_object() && text != json.end() && text->is_string()) {
    auto facts = Fingerprint::from_json(text->get_ref<const std::string&>());
    if (facts) return facts;
  } else if (auto error = config::error_from_json(json)) {
    return fail(std::move(*error));
  }
  return fail(ErrorCode::kUnavailable, "the answer of the process that looks at this host is none");
}

}  // namespace

Result<Fingerprint> learn_facts(const AskedExaminer& examiner, Milliseconds command) {
  const std::string request = to_line({{"command", command.count()}, {"reader", examiner.deadline.count()}});
  const Deadline deadline = Deadline::after(kReadersInTurn * std::max(command, examiner.deadline));
  const auto answer = examiner.link->ask(kFactsTask, request, deadline, -1, 0, examiner.cancelled);
  if (answer) return facts_from(*answer);
  const bool is_late = answer.error().code() == ErrorCode::kTimedOut;
  return fail(is_late ? ErrorCode::kTimedOut : ErrorCode::kUnavailable,
              "the facts of this host: " + answer.error().what());
}

std::function<bool()> when_none_answers(std::shared_ptr<const fingerprint::ExaminerLink> examiner) {
  struct Heard {
    SteadyTime last = system_clock().now();
    SteadyTime again = system_clock().now() + kAskAgain;
  };
  return [examiner = std::move(examiner), heard = std::make_shared<Heard>()] {
    const SteadyTime now = system_clock().now();
    if (now - heard->last >= kNoneAnswers) return true;
    if (now < heard->again) return false;
    const auto signs = examiner->signs_of(::getpid());
    if (signs || signs.error().code() != ErrorCode::kTimedOut) heard->last = system_clock().now();
    heard->again = system_clock().now() + kAskAgain;
    return false;
  };
}

std::string to_bytes(const FactsRequest& request) {
  const Json json = {{"form", kForm},
                     {"file", request.file},
                     {"python", request.python},
                     {"packages_of_jobs", request.packages_of_jobs},
                     {"cache", request.cache_file},
                     {"environment", request.environment}};
  // Not as text: a path may have any byte.
  const std::vector<uint8_t> bytes = Json::to_cbor(json);
  return {bytes.begin(), bytes.end()};
}

Result<FactsRequest> facts_request_from(std::string_view bytes) {
  FactsRequest request;
  try {
    const Json json = Json::from_cbor(bytes);
    if (json.at("form").get<int>() != kForm) return fail(ErrorCode::kNotSupported, "facts of another version");
    json.at("file").get_to(request.file);
    json.at("python").get_to(request.python);
    json.at("packages_of_jobs").get_to(request.packages_of_jobs);
    json.at("cache").get_to(request.cache_file);
    json.at("environment").get_to(request.environment);
  } catch (const std::exception& problem) {
    return fail(ErrorCode::kInvalid, std::string("facts of another version: ") + problem.what());
  }
  return request;
}

fingerprint::ExaminerTask facts_task(FactsRequest request) {
  fingerprint::ExaminerTask task;
  // To read anybody's packages, and to keep their digests where the store is.
  task.capabilities = {CAP_DAC_OVERRIDE, CAP_DAC_READ_SEARCH};
  task.deadline = kReadersInTurn * kMostPatience;
  task.memory = 0;  // a driver maps what it likes; what reads packages does so in programs that have limits
  task.answer = [request = std::move(request)](const ExaminerCall& call) { return answer_facts(request, call); };
  return task;
}

}  // namespace inductorfs::host
