// SPDX-License-Identifier: Apache-2.0
#include "look_messages.h"

#include <sys/socket.h>

#include <algorithm>
#include <array>
#include <cerrno>
#include <exception>
#include <nlohmann/json.hpp>
#include <utility>

#include "inductorfs/base/message.h"

namespace inductorfs::fingerprint {
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

/// What `take` throws, of a member that is missing or of another type, makes it nothing.
template <typename T, typename Take>
std::optional<T> read(std::string_view text, Take&& take) {
  T value;
  try {
    Json json = Json::parse(text, [](int depth, Json::parse_event_t, Json&) { return depth <= kDepth; });
    if (!json.is_object()) return std::nullopt;
    change_strings(json, bytes_of);
    take(std::as_const(json), value);
  } catch (const std::exception&) {
    return std::nullopt;
  }
  return value;
}

uint64_t unsigned_in(const Json& json, const char* name) {
  if (!json.at(name).is_number_unsigned()) throw std::exception();
  return json.at(name).get<uint64_t>();
}

Json json_of(const Package& package) {
  return {{"path", package.path}, {"replaced", package.replaced}, {"identity", package.identity}};
}

Package package_from(const Json& json) {
  return {json.at("path").get<std::string>(), json.at("replaced").get<bool>(), json.at("identity").get<std::string>()};
}

Json json_of(const std::vector<NamedFile>& files) {
  Json list = Json::array();
  for (const NamedFile& file : files) {
    list.push_back({{"variable", file.variable}, {"path", file.path}, {"identity", file.identity}});
  }
  return list;
}

std::vector<NamedFile> files_from(const Json& json) {
  std::vector<NamedFile> files;
  for (const Json& one : json) {
    files.push_back({one.at("variable").get<std::string>(), one.at("path").get<std::string>(),
                     one.at("identity").get<std::string>()});
  }
  return files;
}

Json json_of(const CompilerCall& compiler) {
  return {{"command", compiler.command}, {"search", compiler.search}, {"unfollowed", compiler.unfollowed}};
}

CompilerCall compiler_from(const Json& json) {
  return {json.at("command").get<std::string>(), json.at("search").get<std::string>(),
          json.at("unfollowed").get<std::vector<std::string>>()};
}

Json json_of(const FileUser& user) {
  return {{"user", user.user}, {"group", user.group}, {"groups", user.groups}, {"reads_all", user.reads_all}};
}

FileUser user_from(const Json& user) {
  return {user.at("user").get<uid_t>(), user.at("group").get<gid_t>(), user.at("groups").get<std::vector<gid_t>>(),
          user.at("reads_all").get<bool>()};
}

Json json_of(const ProcessIdentity& identity) { return {identity.start, identity.stack, identity.code}; }

ProcessIdentity identity_from(const Json& identity) {
  return {identity.at(0).get<uint64_t>(), identity.at(1).get<uint64_t>(), identity.at(2).get<uint64_t>()};
}

Json json_of(const Process& process) {
  Json engines = Json::array();
  for (const Package& engine : process.engines) engines.push_back(json_of(engine));
  return {{"pid", process.pid},
          {"identity", json_of(process.identity)},
          {"owner", process.owner},
          {"space", process.space},
          {"mounts", process.mounts},
          {"root", process.root},
          {"other_root", process.other_root},
          {"torch", json_of(process.torch)},
          {"triton", json_of(process.triton)},
          {"libc", json_of(process.libc)},
          {"libstdcxx", json_of(process.libstdcxx)},
          {"site", json_of(process.site)},
          {"engines", std::move(engines)},
          {"soabi", process.soabi},
          {"environ", process.environ_address},
          {"files", json_of(process.files)},
          {"compiler", json_of(process.compiler)},
          {"user", json_of(process.user)},
          {"whole", process.whole},
          {"shows_exec", process.shows_exec},
          {"forked", process.is_forked}};
}

void take(const Json& json, Process& process) {
  json.at("pid").get_to(process.pid);
  process.identity = identity_from(json.at("identity"));
  json.at("owner").get_to(process.owner);
  json.at("space").get_to(process.space);
  json.at("mounts").get_to(process.mounts);
  json.at("root").get_to(process.root);
  json.at("other_root").get_to(process.other_root);
  process.torch = package_from(json.at("torch"));
  process.triton = package_from(json.at("triton"));
  process.libc = package_from(json.at("libc"));
  process.libstdcxx = package_from(json.at("libstdcxx"));
  process.site = package_from(json.at("site"));
  for (const Json& engine : json.at("engines")) process.engines.push_back(package_from(engine));
  json.at("soabi").get_to(process.soabi);
  json.at("environ").get_to(process.environ_address);
  process.files = files_from(json.at("files"));
  process.compiler = compiler_from(json.at("compiler"));
  process.user = user_from(json.at("user"));
  json.at("whole").get_to(process.whole);
  json.at("shows_exec").get_to(process.shows_exec);
  json.at("forked").get_to(process.is_forked);
}

}  // namespace

std::string to_text(const Question& question) {
  const Process& process = question.process;
  Json told = Json::array();
  if (question.ask == Ask::kPackage) {
    told = {process.told.text, process.told.seal, process.named.text, process.named.seal};
  }
  return text_of({{"ask", static_cast<unsigned>(question.ask)},
                  {"process", {{"pid", process.pid}, {"identity", json_of(process.identity)}}},
                  {"told", std::move(told)},
                  {"facet", std::string(to_string(question.facet))},
                  {"held", question.held},
                  {"task", question.task},
                  {"request", question.request}});
}

std::optional<Question> question_from(std::string_view text) {
  auto question = read<Question>(text, [](const Json& json, Question& out) {
    const auto ask = json.at("ask").get<unsigned>();
    const auto facet = facet_from_string(json.at("facet").get<std::string>());
    if (ask > static_cast<unsigned>(Ask::kTask) || !facet) throw std::exception();
    out.ask = static_cast<Ask>(ask);
    out.facet = *facet;
    out.held = unsigned_in(json, "held");
    json.at("task").get_to(out.task);
    json.at("request").get_to(out.request);
    const Json& process = json.at("process");
    process.at("pid").get_to(out.process.pid);
    out.process.identity = identity_from(process.at("identity"));
    if (out.ask != Ask::kPackage) return;
    const Json& told = json.at("told");
    out.process.told = {told.at(0).get<std::string>(), told.at(1).get<std::string>()};
    out.process.named = {told.at(2).get<std::string>(), told.at(3).get<std::string>()};
  });
  if (question && (question->process.pid < 0 || (question->ask != Ask::kTask && question->process.pid == 0))) {
    return std::nullopt;
  }
  return question;
}

std::string to_text(const Taken& taken) {
  return text_of({{"owner", taken.owner}, {"user", json_of(taken.user)}, {"space", taken.space}, {"root", taken.root}});
}

std::optional<Taken> taken_from(std::string_view line) {
  return read<Taken>(line, [](const Json& json, Taken& taken) {
    json.at("owner").get_to(taken.owner);
    taken.user = user_from(json.at("user"));
    json.at("space").get_to(taken.space);
    json.at("root").get_to(taken.root);
  });
}

std::string to_text(const Process& process) { return text_of(json_of(process)); }

std::optional<Process> process_from(std::string_view line) {
  std::string_view text = line;
  std::string_view seal = take_last(text);
  if (text.empty()) std::swap(text, seal);  // nobody has sealed it
  auto process = read<Process>(text, [](const Json& json, Process& out) { take(json, out); });
  if (process && !seal.empty()) process->told = {std::string(text), std::string(seal)};
  return process;
}

std::string named_text(const std::vector<NamedFile>& files, const CompilerCall& compiler) {
  return text_of({{"files", json_of(files)}, {"compiler", json_of(compiler)}});
}

bool take_named(std::string_view text, Process& process) {
  const auto named = read<Process>(text, [](const Json& json, Process& out) {
    out.files = files_from(json.at("files"));
    out.compiler = compiler_from(json.at("compiler"));
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
  return text_of({{"values", variables.environment.values}, {"live", variables.environment.live}})
      .append(1, kParts)
      .append(named);
}

std::optional<Variables> variables_from(std::string_view line) {
  std::string_view rest = line;
  std::string_view seal = take_last(rest);
  std::string_view named = take_last(rest);
  if (rest.empty()) {  // nobody has sealed it
    rest = named;
    named = std::exchange(seal, {});
  }
  auto variables = read<Variables>(rest, [](const Json& json, Variables& out) {
    json.at("values").get_to(out.environment.values);
    json.at("live").get_to(out.environment.live);
  });
  Process process;
  if (!variables || !take_named(named, process)) return std::nullopt;
  variables->files = std::move(process.files);
  variables->named = {std::string(named), std::string(seal)};
  return variables;
}

std::string to_text(Facet facet, const Fact& fact) {
  Fingerprint facts;
  facts.set(facet, fact);
  return text_of({{"facts", facts.to_json()}});
}

std::optional<Fact> fact_from(Facet facet, std::string_view line) {
  const auto text = read<std::string>(line, [](const Json& json, std::string& out) { json.at("facts").get_to(out); });
  const auto facts = text ? Fingerprint::from_json(*text) : fail(ErrorCode::kInvalid);
  return facts && facts->has(facet) ? std::optional(facts->get(facet)) : std::nullopt;
}

std::string to_text(const ProcessSigns& signs) {
  return text_of({{"pid", signs.pid},
                  {"start", signs.start},
                  {"parent", signs.parent},
                  {"user", signs.user},
                  {"ended", signs.is_ended},
                  {"own", signs.is_own},
                  {"stack", signs.stack},
                  {"code", signs.code}});
}

std::optional<ProcessSigns> process_signs_from(std::string_view line) {
  return read<ProcessSigns>(line, [](const Json& json, ProcessSigns& signs) {
    json.at("pid").get_to(signs.pid);
    signs.start = unsigned_in(json, "start");
    json.at("parent").get_to(signs.parent);
    json.at("user").get_to(signs.user);
    json.at("ended").get_to(signs.is_ended);
    json.at("own").get_to(signs.is_own);
    signs.stack = unsigned_in(json, "stack");
    signs.code = unsigned_in(json, "code");
  });
}

std::string task_answer_text(const std::string& answer) { return text_of({{"answer", answer}}); }

std::optional<std::string> task_answer_from(std::string_view line) {
  return read<std::string>(line, [](const Json& json, std::string& answer) { json.at("answer").get_to(answer); });
}

std::string held_text(uint64_t number) { return text_of({{"held", number}}); }

std::optional<uint64_t> held_from(std::string_view line) {
  return read<uint64_t>(line, [](const Json& json, uint64_t& number) { number = unsigned_in(json, "held"); });
}

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
