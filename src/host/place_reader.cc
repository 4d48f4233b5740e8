// SPDX-License-Identifier: Apache-2.0
#include "inductorfs/host/place_reader.h"

#include <fcntl.h>
#include <linux/capability.h>
#include <sys/inotify.h>
#include <unistd.h>

#include <algorithm>
#include <array>
#include <cerrno>
#include <climits>
#include <filesystem>
#include <utility>

#include "inductorfs/base/fd.h"
#include "inductorfs/codec/digest.h"
#include "inductorfs/config/json.h"
#include "inductorfs/config/text.h"
#include "inductorfs/fingerprint/trust.h"
#include "inductorfs/host/package_watch.h"
#include "libraries.h"

namespace inductorfs::host {

using config::Json;
using config::number_at;
using config::part_of;
using config::to_line;
namespace {

using fingerprint::Facet;
using fingerprint::Fingerprint;

/// The facets whose sources are places.
constexpr Facet kPlaced[] = {Facet::kTorch, Facet::kTriton, Facet::kPython};
/// The folders of the engine facet, which has several.
constexpr const char* kEngines = "engines";
/// A worker's: those of a mount ask for some ten places.
constexpr size_t kPlaceLimit = 512;
constexpr size_t kEntryLimit = 100'000;
/// HostWatch waits so long, a job's lookup much less: whoever has waited enough hangs up.
constexpr Milliseconds kMostPatience{120'000};
constexpr uint64_t kMemory = uint64_t{512} << 20;

Json to_json(const Fingerprint& facts) {
  Json sources = Json::object();
  for (const Facet facet : kPlaced) sources[std::string(fingerprint::to_string(facet))] = facts.get(facet).source;
  sources[kEngines] = fingerprint::values_of(facts.get(Facet::kEngine).details, fingerprint::kEngineFolderKey);
  return sources;
}

/// As it is: a path is not for people's eyes here.
std::string raw_at(const Json& object, const std::string& name) {
  const auto found = object.find(name);
  return found != object.end() && found->is_string() ? found->get<std::string>() : std::string();
}

std::vector<std::string> texts_at(const Json& object, const char* name) {
  std::vector<std::string> texts;
  for (const Json& item : part_of(object, name)) {
    if (texts.size() == kPlaceLimit) break;
    if (item.is_string()) texts.push_back(item.get<std::string>());
  }
  return texts;
}

Fingerprint facts_at(const Json& request) {
  Fingerprint facts;
  const Json& sources = part_of(request, "sources");
  for (const Facet facet : kPlaced) {
    facts.set(facet, {false, {}, raw_at(sources, std::string(fingerprint::to_string(facet))), {}, {}});
  }
  fingerprint::Fact engine;
  for (const std::string& folder : texts_at(sources, kEngines)) {
    fingerprint::add_line(engine.details, fingerprint::kEngineFolderKey, folder);
  }
  facts.set(Facet::kEngine, std::move(engine));
  return facts;
}

Json to_json(const Places& places) {
  return {{"packages", places.packages}, {"sites", places.sites}, {"files", places.files}};
}

Places to_places(const Json& json) {
  return {texts_at(json, "packages"), texts_at(json, "sites"), texts_at(json, "files")};
}

Json library_places_of(const Fingerprint& facts) {
  const std::string torch = package_of(facts.get(Facet::kTorch));
  const std::vector<std::string> directories = library_directories(torch, interpreter_of(facts));
  const Libraries libraries(directories);
  return {{"torch", torch},
          {"directories", directories},
          {"glibcxx", libraries.newest_of_libstdcxx(fingerprint::kGlibcxxPrefix)},
          {"cxxabi", libraries.newest_of_libstdcxx(fingerprint::kCxxabiPrefix)}};
}

bool has_code(int directory, const std::string& package = ".") {
  return ::faccessat(directory, (package + "/__init__.py").c_str(), F_OK, 0) == 0;
}

/// Who asks: a process as this one, or a worker, which is not believed.
enum class Asker { kOwn, kWorker };

/// A package, or where packages are installed or lie: what is made in any other directory is nobody's business.
bool is_of_packages(int directory, const std::string& at) {
  std::array<char, PATH_MAX> path{};
  const ssize_t size = ::readlink(at.c_str(), path.data(), path.size());
  const std::string_view real(path.data(), static_cast<size_t>(std::max<ssize_t>(size, 0)));
  const std::string_view name = real.substr(real.rfind('/') + 1);
  if (name == "site-packages" || name == "dist-packages" || has_code(directory)) return true;
  std::error_code error;
  size_t left = kEntryLimit;
  for (std::filesystem::directory_iterator entry(at, error), end; !error && entry != end; entry.increment(error)) {
    const std::string package = entry->path().filename();
    if (left-- == 0) return false;
    if (is_package_name(package) && has_code(directory, package)) return true;
  }
  return false;
}

int watch(int inotify, const std::string& directory, unsigned events, Asker asker) {
  const Fd place(::open(directory.c_str(), O_PATH | O_DIRECTORY | O_CLOEXEC));
  if (!place) return -errno;
  // The one that was looked at, whatever its name leads to by now.
  const std::string at = "/proc/self/fd/" + std::to_string(place.get());
  if (asker == Asker::kWorker && !is_of_packages(place.get(), at)) return -EPERM;
  const int made = ::inotify_add_watch(inotify, at.c_str(), events & kWatchable);
  return made >= 0 ? made : -errno;
}

Json watch(int inotify, const std::vector<std::string>& directories, unsigned events, Asker asker) {
  Json watches = Json::array();
  for (const std::string& directory : directories) watches.push_back(watch(inotify, directory, events, asker));
  return {{"watches", std::move(watches)}};
}

Result<Json> answer(const Json& request, int inotify, Asker asker) {
  if (!request.is_object()) return fail(ErrorCode::kInvalid, "the request is no JSON object");
  const std::string what = raw_at(request, "what");
  if (what == "places") return to_json(places_of(facts_at(request)));
  if (what == "traces") return Json{{"traces", codec::digest_of(traces_of(to_places(request), "/proc")).to_hex()}};
  if (what == "libraries") return library_places_of(facts_at(request));
  if (what == "library") {
    return Json{{"path", Libraries(texts_at(request, "directories")).find(raw_at(request, "soname"))}};
  }
  if (what == "watch") {
    const auto events = static_cast<unsigned>(number_at(request, "events"));
    return watch(inotify, texts_at(request, "directories"), events, asker);
  }
  return fail(ErrorCode::kInvalid, "unknown question: " + what);
}

std::string answer_text(const std::string& request, int inotify, Asker asker) {
  const Result<Json> found = answer(config::from_text(request), inotify, asker);
  return to_line(found ? *found : Json{{"error", found.error().what()}});
}

Result<Json> json_from(const Result<std::string>& answer) {
  if (!answer) return fail(answer.error());
  Json json = config::from_text(*answer);
  if (!json.is_object()) return fail(ErrorCode::kInternal, "the reader's answer is no JSON object");
  if (json.contains("error")) return fail(ErrorCode::kUnavailable, config::text_at(json, "error"));
  return json;
}

}  // namespace

Result<std::string> PlaceReader::ask(const std::string& request, int inotify) const {
  if (!examiner_ && options_.program.empty()) return answer_text(request, inotify, Asker::kOwn);
  if (!examiner_) return fingerprint::ask_reader(options_, "host-places", request, inotify);
  const Deadline deadline = Deadline::after(examiner_->deadline);
  return examiner_->link->ask(kPlacesTask, request, deadline, inotify, 0, examiner_->cancelled);
}

fingerprint::ExaminerTask places_task() {
  fingerprint::ExaminerTask task;
  task.capabilities = {CAP_DAC_OVERRIDE, CAP_DAC_READ_SEARCH};
  task.deadline = kMostPatience;
  task.memory = kMemory;
  task.only_reads = true;  // what it reads is what a worker has named, in a request of its own
  task.answer = [](const fingerprint::ExaminerCall& call) {
    return answer_text(call.request, call.descriptor, Asker::kWorker);
  };
  return task;
}

Result<Places> PlaceReader::places(const Fingerprint& facts) const {
  const Result<Json> found = json_from(ask(to_line({{"what", "places"}, {"sources", to_json(facts)}})));
  return found ? Result<Places>(to_places(*found)) : fail(found.error());
}

Result<std::string> PlaceReader::traces(const Places& places) const {
  Json request = to_json(places);
  request["what"] = "traces";
  const Result<Json> found = json_from(ask(to_line(request)));
  return found ? Result<std::string>(raw_at(*found, "traces")) : fail(found.error());
}

Result<LibraryPlaces> PlaceReader::library_places(const Fingerprint& facts) const {
  INDUCTORFS_TRY_ASSIGN(const auto found,
                        json_from(ask(to_line({{"what", "libraries"}, {"sources", to_json(facts)}}))));
  return LibraryPlaces{raw_at(found, "torch"), texts_at(found, "directories"), raw_at(found, "glibcxx"),
                       raw_at(found, "cxxabi")};
}

Result<std::string> PlaceReader::find_library(const std::vector<std::string>& directories,
                                              const std::string& soname) const {
  const Result<Json> found =
      json_from(ask(to_line({{"what", "library"}, {"directories", directories}, {"soname", soname}})));
  return found ? Result<std::string>(raw_at(*found, "path")) : fail(found.error());
}

Result<std::vector<int>> PlaceReader::watch(int inotify, const std::vector<std::string>& directories,
                                            unsigned events) const {
  INDUCTORFS_TRY_ASSIGN(
      const auto found,
      json_from(ask(to_line({{"what", "watch"}, {"directories", directories}, {"events", events}}), inotify)));
  std::vector<int> watches;
  for (const Json& item : part_of(found, "watches")) {
    if (item.is_number_integer()) watches.push_back(item.get<int>());
  }
  if (watches.size() != directories.size()) return fail(ErrorCode::kInternal, "the reader has not watched them all");
  return watches;
}

int run_place_reader() {
  const Result<std::string> text = fingerprint::reader_request();
  const Result<Json> found = text ? answer(config::from_text(*text), fingerprint::kReaderDescriptor, Asker::kOwn)
                                  : Result<Json>(fail(text.error()));
  return fingerprint::end_reader("host-places", found ? Result<std::string>(to_line(*found)) : fail(found.error()));
}

}  // namespace inductorfs::host
