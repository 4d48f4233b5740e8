// SPDX-License-Identifier: Apache-2.0
#include "inductorfs/host/place_reader.h"

#include <sys/inotify.h>

#include <cerrno>
#include <utility>

#include "inductorfs/codec/digest.h"
#include "inductorfs/config/json.h"
#include "inductorfs/config/text.h"
#include "inductorfs/host/host.h"
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

Json watch(int inotify, const std::vector<std::string>& directories, unsigned events) {
  Json watches = Json::array();
  for (const std::string& directory : directories) {
    const int made = ::inotify_add_watch(inotify, directory.c_str(), events);
    watches.push_back(made >= 0 ? made : -errno);
  }
  return {{"watches", std::move(watches)}};
}

Result<Json> answer(const Json& request, int inotify) {
  if (!request.is_object()) return fail(ErrorCode::kInvalid, "the request is no JSON object");
  const std::string what = raw_at(request, "what");
  if (what == "places") return to_json(places_of(facts_at(request)));
  if (what == "traces") return Json{{"traces", codec::digest_of(traces_of(to_places(request), "/proc")).to_hex()}};
  if (what == "libraries") return library_places_of(facts_at(request));
  if (what == "library") {
    return Json{{"path", Libraries(texts_at(request, "directories")).find(raw_at(request, "soname"))}};
  }
  if (what == "watch") {
    return watch(inotify, texts_at(request, "directories"), static_cast<unsigned>(number_at(request, "events")));
  }
  return fail(ErrorCode::kInvalid, "unknown question: " + what);
}

Result<Json> ask(const fingerprint::ReaderOptions& options, const Json& request, int inotify = -1) {
  if (options.program.empty()) return answer(request, inotify);
  INDUCTORFS_TRY_ASSIGN(const auto text, fingerprint::ask_reader(options, "host-places", to_line(request), inotify));
  Json json = Json::parse(text, nullptr, false);
  if (!json.is_object()) return fail(ErrorCode::kInternal, "the reader's answer is no JSON object");
  return json;
}

}  // namespace

Result<Places> PlaceReader::places(const Fingerprint& facts) const {
  const Result<Json> found = ask(options_, {{"what", "places"}, {"sources", to_json(facts)}});
  return found ? Result<Places>(to_places(*found)) : fail(found.error());
}

Result<std::string> PlaceReader::traces(const Places& places) const {
  Json request = to_json(places);
  request["what"] = "traces";
  const Result<Json> found = ask(options_, request);
  return found ? Result<std::string>(raw_at(*found, "traces")) : fail(found.error());
}

Result<LibraryPlaces> PlaceReader::library_places(const Fingerprint& facts) const {
  INDUCTORFS_TRY_ASSIGN(const auto found, ask(options_, {{"what", "libraries"}, {"sources", to_json(facts)}}));
  return LibraryPlaces{raw_at(found, "torch"), texts_at(found, "directories"), raw_at(found, "glibcxx"),
                       raw_at(found, "cxxabi")};
}

Result<std::string> PlaceReader::find_library(const std::vector<std::string>& directories,
                                              const std::string& soname) const {
  const Result<Json> found = ask(options_, {{"what", "library"}, {"directories", directories}, {"soname", soname}});
  return found ? Result<std::string>(raw_at(*found, "path")) : fail(found.error());
}

Result<std::vector<int>> PlaceReader::watch(int inotify, const std::vector<std::string>& directories,
                                            unsigned events) const {
  INDUCTORFS_TRY_ASSIGN(const auto found,
                        ask(options_, {{"what", "watch"}, {"directories", directories}, {"events", events}}, inotify));
  std::vector<int> watches;
  for (const Json& item : part_of(found, "watches")) {
    if (item.is_number_integer()) watches.push_back(item.get<int>());
  }
  if (watches.size() != directories.size()) return fail(ErrorCode::kInternal, "the reader has not watched them all");
  return watches;
}

int run_place_reader() {
  const Result<std::string> text = fingerprint::reader_request();
  const Result<Json> found = text ? answer(Json::parse(*text, nullptr, false), fingerprint::kReaderDescriptor)
                                  : Result<Json>(fail(text.error()));
  return fingerprint::end_reader("host-places", found ? Result<std::string>(to_line(*found)) : fail(found.error()));
}

}  // namespace inductorfs::host
