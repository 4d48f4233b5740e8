// SPDX-License-Identifier: Apache-2.0
#include <algorithm>
#include <nlohmann/json.hpp>
#include <utility>

#include "fingerprint/common/read_request.h"
#include "inductorfs/fingerprint/trust.h"

namespace inductorfs::fingerprint {
namespace {

using Json = nlohmann::json;

/// The name service has five seconds (trust.cc); what is left is for the child of the examiner.
constexpr Milliseconds kPatience{7'000};

/// A number and which of four questions: the worker says nothing else, so that it can have nothing else run.
struct NameRequest {
  Account kind = Account::kUser;
  id_t number = 0;
};

Result<NameRequest> request_from(const std::string& text) {
  return read_request<NameRequest>(text, [](const Json& json, NameRequest& request) -> Result<void> {
    const Json& kind = json.at("kind");
    const Json& number = json.at("number");
    if (!kind.is_number_unsigned() || kind.get<uint64_t>() > static_cast<uint64_t>(Account::kMembers) ||
        !number.is_number_unsigned() || number.get<uint64_t>() > static_cast<id_t>(-1)) {
      return fail(ErrorCode::kInvalid, "no such account");
    }
    request = {static_cast<Account>(kind.get<unsigned>()), number.get<id_t>()};
    return {};
  });
}

std::string answer_name(const ExaminerCall& call) {
  const auto request = request_from(call.request);
  const auto name = request ? ask_name_service(request->kind, request->number) : fail(request.error());
  const Json json = name ? Json{{"name", *name}} : Json{{"error", name.error().what()}};
  return json.dump(-1, ' ', true, Json::error_handler_t::replace);
}

/// Of any text that has one line; what no name can be, Trust replaces.
Result<std::string> name_from(const std::string& text) {
  const Json json = Json::parse(text, nullptr, false);
  const auto text_at = [&json](const char* name) {
    const auto found = json.find(name);
    return found != json.end() && found->is_string() ? found->get<std::string>() : std::string("\n");
  };
  const auto is_line = [](const std::string& line) {
    return std::none_of(line.begin(), line.end(), [](unsigned char c) { return c < ' ' || c == 0x7f; });
  };
  if (json.is_object() && is_line(text_at("name"))) return text_at("name");
  if (json.is_object() && is_line(text_at("error"))) return fail(ErrorCode::kUnavailable, text_at("error"));
  return fail(ErrorCode::kInternal, "the answer about a name is none");
}

}  // namespace

AskName ask_names_by(std::shared_ptr<const ExaminerLink> examiner) {
  return [examiner = std::move(examiner)](Account kind, id_t number) -> Result<std::string> {
    const Json request = {{"kind", static_cast<unsigned>(kind)}, {"number", number}};
    INDUCTORFS_TRY_ASSIGN(const auto answer, examiner->ask(kNamesTask, request.dump(), Deadline::after(kPatience)));
    return name_from(answer);
  };
}

ExaminerTask names_task() {
  ExaminerTask task;
  task.deadline = kPatience;
  task.memory = 0;  // the name service's libraries are the host's, and run in programs of their own
  task.answer = answer_name;
  return task;
}

}  // namespace inductorfs::fingerprint
