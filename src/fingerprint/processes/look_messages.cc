// SPDX-License-Identifier: Apache-2.0
#include "fingerprint/processes/look_messages.h"

#include <sys/socket.h>

#include <algorithm>
#include <array>
#include <cerrno>
#include <exception>
#include <nlohmann/json.hpp>
#include <utility>

#include "inductorfs/base/message.h"

namespace inductorfs::fingerprint {

NLOHMANN_DEFINE_TYPE_NON_INTRUSIVE(Package, path, replaced, identity)
NLOHMANN_DEFINE_TYPE_NON_INTRUSIVE(NamedFile, variable, path, identity)
NLOHMANN_DEFINE_TYPE_NON_INTRUSIVE(CompilerCall, command, search, unfollowed)
NLOHMANN_DEFINE_TYPE_NON_INTRUSIVE(FileUser, user, group, groups, reads_all)
NLOHMANN_DEFINE_TYPE_NON_INTRUSIVE(ProcessIdentity, start, stack, code)
NLOHMANN_DEFINE_TYPE_NON_INTRUSIVE(Told, text, seal)
NLOHMANN_DEFINE_TYPE_NON_INTRUSIVE(Process, pid, identity, owner, space, mounts, root, other_root, torch, triton, libc,
                                   libstdcxx, site, engines, soabi, environ_address, files, compiler, user, whole,
                                   shows_exec, is_forked)
NLOHMANN_DEFINE_TYPE_NON_INTRUSIVE(Taken, owner, user, space, root)
NLOHMANN_DEFINE_TYPE_NON_INTRUSIVE(LiveEnvironment, values, live)
NLOHMANN_DEFINE_TYPE_NON_INTRUSIVE(ProcessSigns, pid, start, parent, user, is_ended, is_own, stack, code)

namespace {

using Json = nlohmann::json;

/// Deeper than any of these messages.
constexpr int kDepth = 6;
/// Between the parts of a line; JSON has no such byte.
constexpr char kParts = '\x1f';

/// Takes the last part off a line; the whole line where it has one part alone.
std::string_view take_last(std::string_view& line) {
  const size_t at = line.rfind(kParts);
  const std::string_view last = line.substr(at == std::string_view::npos ? 0 : at + 1);
  line.remove_suffix(at == std::string_view::npos ? line.size() : line.size() - at);
  return last;
}

/// JSON has no strings but those of UTF-8, and names of files are of any bytes: each byte is a character, U+0000 to
/// U+00FF.
std::string characters_of(const std::string& bytes) {
  constexpr unsigned char kAscii = 0x80;
  std::string text;
  for (const char byte : bytes) {
    const auto number = static_cast<unsigned char>(byte);
    if (number < kAscii) {
      text += byte;
    } else {
      text += static_cast<char>(0xC0 | number >> 6U);
      text += static_cast<char>(kAscii | (number & 0x3FU));
    }
  }
  return text;
}

std::string bytes_of(const std::string& characters) {
  constexpr unsigned char kLead = 0xC3;
  std::string bytes;
  for (size_t at = 0; at < characters.size(); ++at) {
    const auto lead = static_cast<unsigned char>(characters.at(at));
    if (lead == 0 || lead > kLead) throw std::exception();
    if (lead < 0x80) {
      bytes += characters.at(at);
    } else {
      bytes += static_cast<char>((lead & 3U) << 6U | (static_cast<unsigned char>(characters.at(++at)) & 0x3FU));
    }
  }
  return bytes;
}

void change_strings(Json& json, std::string (*change)(const std::string&)) {
  if (json.is_string()) json = change(json.get_ref<const std::string&>());
  if (!json.is_structured()) return;
  for (auto& item : json) change_strings(item, change);
}

std::string text_of(Json json) {
  change_strings(json, characters_of);
  return json.dump();
}

/// No number here is negative; a member of an unsigned type would take it.
bool takes(int depth, Json::parse_event_t, const Json& json) {
  if (json.is_number() && !json.is_number_unsigned()) throw std::exception();
  return depth <= kDepth;
}

/// What `take` throws, of a member that is missing or of another type, makes it nothing.
template <typename T, typename Take>
std::optional<T> read(std::string_view text, Take&& take) {
  T value;
  try {
    Json json = Json::parse(text, takes);
    if (!json.is_object()) return std::nullopt;
    change_strings(json, bytes_of);
    take(std::as_const(json), value);
  } catch (const std::exception&) {
    return std::nullopt;
  }
  return value;
}

template <typename T>
std::optional<T> read(std::string_view text) {
  return read<T>(text, [](const Json& json, T& value) { json.get_to(value); });
}

template <typename T>
std::optional<T> read_member(std::string_view text, const char* name) {
  return read<T>(text, [name](const Json& json, T& value) { json.at(name).get_to(value); });
}

}  // namespace

std::string to_text(const Question& question) {
  const Process& process = question.process;
  Json json = {{"ask", static_cast<unsigned>(question.ask)},
               {"pid", process.pid},
               {"identity", process.identity},
               {"facet", std::string(to_string(question.facet))},
               {"held", question.held},
               {"task", question.task},
               {"request", question.request}};
  if (question.ask == Ask::kPackage) {
    json["told"] = process.told;
    json["named"] = process.named;
  }
  return text_of(std::move(json));
}

std::optional<Question> question_from(std::string_view text) {
  auto question = read<Question>(text, [](const Json& json, Question& out) {
    const auto ask = json.at("ask").get<unsigned>();
    const auto facet = facet_from_string(json.at("facet").get<std::string>());
    if (ask > static_cast<unsigned>(Ask::kTask) || !facet) throw std::exception();
    out.ask = static_cast<Ask>(ask);
    out.facet = *facet;
    json.at("held").get_to(out.held);
    json.at("task").get_to(out.task);
    json.at("request").get_to(out.request);
    json.at("pid").get_to(out.process.pid);
    json.at("identity").get_to(out.process.identity);
    if (out.ask != Ask::kPackage) return;
    json.at("told").get_to(out.process.told);
    json.at("named").get_to(out.process.named);
  });
  if (question && (question->process.pid < 0 || (question->ask != Ask::kTask && question->process.pid == 0))) {
    return std::nullopt;
  }
  return question;
}

std::string to_text(const Taken& taken) { return text_of(taken); }

std::optional<Taken> taken_from(std::string_view line) { return read<Taken>(line); }

std::string to_text(const Process& process) { return text_of(process); }

std::optional<Process> process_from(std::string_view line) {
  std::string_view text = line;
  std::string_view seal = take_last(text);
  if (text.empty()) std::swap(text, seal);  // nobody has sealed it
  auto process = read<Process>(text);
  if (process && !seal.empty()) process->told = {std::string(text), std::string(seal)};
  return process;
}

std::string named_text(const std::vector<NamedFile>& files, const CompilerCall& compiler) {
  return text_of({{"files", files}, {"compiler", compiler}});
}

bool take_named(std::string_view text, Process& process) {
  const auto named = read<Process>(text, [](const Json& json, Process& out) {
    json.at("files").get_to(out.files);
    json.at("compiler").get_to(out.compiler);
  });
  if (!named) return false;
  process.files = named->files;
  process.compiler = named->compiler;
  return true;
}

std::string sealed(std::string line, const std::string& key, std::string_view what) {
  std::string_view rest = line;
  const std::string seal = seal_of(key, what, take_last(rest));
  return line.append(1, kParts).append(seal);
}

std::string to_text(const Variables& variables) {
  const std::string named = named_text(variables.files, compiler_call(variables.environment.values));
  return text_of(variables.environment).append(1, kParts).append(named);
}

std::optional<Variables> variables_from(std::string_view line) {
  std::string_view rest = line;
  std::string_view seal = take_last(rest);
  std::string_view named = take_last(rest);
  if (rest.empty()) {  // nobody has sealed it
    rest = named;
    named = std::exchange(seal, {});
  }
  auto environment = read<LiveEnvironment>(rest);
  Process process;
  if (!environment || !take_named(named, process)) return std::nullopt;
  return Variables{std::move(*environment), std::move(process.files), {std::string(named), std::string(seal)}};
}

std::string to_text(Facet facet, const Fact& fact) {
  Fingerprint facts;
  facts.set(facet, fact);
  return text_of({{"facts", facts.to_json()}});
}

std::optional<Fact> fact_from(Facet facet, std::string_view line) {
  const auto text = read_member<std::string>(line, "facts");
  const auto facts = text ? Fingerprint::from_json(*text) : fail(ErrorCode::kInvalid);
  return facts && facts->has(facet) ? std::optional(facts->get(facet)) : std::nullopt;
}

std::string to_text(const ProcessSigns& signs) { return text_of(signs); }

std::optional<ProcessSigns> process_signs_from(std::string_view line) { return read<ProcessSigns>(line); }

std::string task_answer_text(const std::string& answer) { return text_of({{"answer", answer}}); }

std::optional<std::string> task_answer_from(std::string_view line) { return read_member<std::string>(line, "answer"); }

std::string held_text(uint64_t number) { return text_of({{"held", number}}); }

std::optional<uint64_t> held_from(std::string_view line) { return read_member<uint64_t>(line, "held"); }

bool send_question(int socket, std::string_view text, int connection, int further) {
  return send_message(socket, text, std::array{connection, further}, MSG_DONTWAIT);
}

Received receive_question(int socket, Question& question, Fd& connection, Fd& further) {
  std::string text(kQuestionLimit, '\0');
  std::array<Fd, kMostDescriptors> descriptors;
  const ReceivedMessage received = receive_message(socket, text, descriptors, MSG_DONTWAIT);
  connection = std::move(descriptors[0]);
  further = std::move(descriptors[1]);
  if (received.size < 0) {
    const bool is_over = errno == ECONNRESET || errno == EBADF || errno == ENOTSOCK;
    return is_over ? Received::kEnded : Received::kNoQuestion;
  }
  if (received.is_end) return Received::kEnded;
  text.resize(static_cast<size_t>(received.size));
  auto asked = received.whole && connection ? question_from(text) : std::nullopt;
  if (!asked) return Received::kNoQuestion;
  question = std::move(*asked);
  return Received::kQuestion;
}

}  // namespace inductorfs::fingerprint
