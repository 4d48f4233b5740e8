// SPDX-License-Identifier: Apache-2.0
#include "inductorfs/host/learn.h"

#include <fcntl.h>
#include <sys/stat.h>
#include <unistd.h>

#include <algorithm>
#include <cstdlib>
#include <filesystem>
#include <set>

#include "inductorfs/base/fd.h"
#include "inductorfs/base/text.h"
#include "inductorfs/config/json.h"
#include "inductorfs/fingerprint/libstdcxx.h"
#include "inductorfs/fingerprint/variables.h"
#include "inductorfs/host/place_reader.h"
#include "libraries.h"

namespace inductorfs::host {

using config::Json;

namespace {

using fingerprint::Facet;
using fingerprint::Fact;
using fingerprint::Fingerprint;

constexpr uint64_t kFactsLimit = 4ULL << 20;
constexpr size_t kShownLimit = 300;
constexpr uint64_t kProcFileLimit = 64ULL << 10;
constexpr size_t kDirectoryLimit = 8192;
constexpr int kDepthLimit = 8;

bool names_environment(const std::string& text) {
  const Json root = config::from_text(text);
  if (!root.is_object() || !root.contains("facets")) return false;
  return root["facets"].is_object() && root["facets"].contains(fingerprint::to_string(Facet::kEnvironment));
}

fingerprint::ProbeOptions options_of(const FactsRequest& request) {
  fingerprint::ProbeOptions options;
  options.python = request.python;
  options.packages_of_jobs = request.packages_of_jobs;
  options.cache_file = request.cache_file;
  options.environment = request.environment;
  options.deadline = request.deadline;
  options.reader = request.reader;
  return options;
}

Result<Fingerprint> from_file(const FactsRequest& request) {
  const std::string& file = request.file;
  const Result<std::string> text = read_file(AT_FDCWD, file, kFactsLimit);
  if (!text) {
    const std::string why = text.error().what().empty() ? "it does not exist" : text.error().what();
    return fail(text.error().code(), "cannot read the fingerprint: " + file + ": " + why);
  }
  Result<Fingerprint> facts = Fingerprint::from_json(*text);
  if (!facts) {
    return fail(ErrorCode::kInvalid, "no fingerprint: " + file + ": " + facts.error().what() +
                                         ": make one with inductorfs fingerprint --json");
  }
  if (!facts->has(Facet::kEngine)) {
    const std::string why = file +
                            " does not say which serving engines there are: make it again with inductorfs "
                            "fingerprint --json of this release";
    facts->set(Facet::kEngine, {false, {}, file, why, {}});
  }
  if (request.environment.empty() && names_environment(*text)) return facts;
  Fact declared = fingerprint::environment_fact(options_of(request), *facts);
  if (declared.known) declared.source = "declared for this mount";
  facts->set(Facet::kEnvironment, std::move(declared));
  return facts;
}

/// What the libstdc++ that jobs load offers. In the details, so that a file of facts carries it to a daemon whose own
/// libstdc++ is another, and no scope depends on it: what a binary needs is asked of the binary.
void add_libstdcxx(Fingerprint& facts, const PlaceReader& reader) {
  const Result<LibraryPlaces> places = reader.library_places(facts);
  if (!places) return;
  Fact libc = facts.get(Facet::kLibc);
  for (const auto& [key, newest] :
       {std::pair{fingerprint::kGlibcxxKey, places->glibcxx}, std::pair{fingerprint::kCxxabiKey, places->cxxabi}}) {
    if (!newest.empty()) fingerprint::add_line(libc.details, key, newest);
  }
  facts.set(Facet::kLibc, std::move(libc));
}

std::string shown(const Fact& fact) { return fact.known ? fact.value : "not known: " + fact.problem; }

std::string shortened(std::string text) {
  if (text.size() > kShownLimit) text = text.substr(0, kShownLimit) + "...";
  return text;
}

/// The lines of one text that the other does not have, sorted.
std::string only_in(std::string_view one, std::string_view other) {
  const std::vector<std::string_view> others = fingerprint::lines_of(other);
  const std::vector<std::string_view> lines = fingerprint::lines_of(one);
  std::string text;
  for (const std::string_view line : std::set<std::string_view>(lines.begin(), lines.end())) {
    if (line.empty() || std::find(others.begin(), others.end(), line) != others.end()) continue;
    text.append(text.empty() ? "" : "; ").append(line);
  }
  return text;
}

std::string in_path(const std::string& program) {
  if (program.find('/') != std::string::npos) return program;
  const char* const search = std::getenv("PATH");
  std::string_view rest = search == nullptr ? std::string_view() : std::string_view(search);
  while (!rest.empty()) {
    std::string path = std::string(take_part(rest, ':')) + "/" + program;
    if (::access(path.c_str(), X_OK) == 0) return path;
  }
  return {};
}

void add_once(std::vector<std::string>& list, const std::string& item) {
  if (!item.empty() && std::find(list.begin(), list.end(), item) == list.end()) list.push_back(item);
}

/// Device, inode, size and time of a change: another file has another of these.
std::string identity_of(const std::string& path) {
  struct stat found {};
  if (::stat(path.c_str(), &found) != 0) return path + " absent\n";
  // Of a directory the size and the inode may change with the file system's moods; its time says what counts.
  std::string text = path + " " + std::to_string(found.st_ino) + " " + std::to_string(found.st_mtim.tv_sec) + "." +
                     std::to_string(found.st_mtim.tv_nsec);
  if (S_ISREG(found.st_mode)) text += " " + std::to_string(found.st_size);
  return text + "\n";
}

/// Paths of what is in a directory, sorted; none when it is not there: without a driver or a package that is so.
std::vector<std::string> listing(const std::string& directory) {
  std::error_code error;
  std::vector<std::string> paths;
  for (std::filesystem::directory_iterator at(directory, error), end; !error && at != end; at.increment(error)) {
    paths.push_back(at->path().string());
  }
  std::sort(paths.begin(), paths.end());
  return paths;
}

bool is_there(const std::string& path) { return ::access(path.c_str(), F_OK) == 0; }

bool is_folder(const std::string& path) {
  struct stat found {};
  return ::lstat(path.c_str(), &found) == 0 && S_ISDIR(found.st_mode);
}

/// Names of everything below a directory of /proc, which has no times worth looking at.
void add_names(const std::string& directory, int depth, std::string& text) {
  for (const std::string& path : listing(directory)) {
    text.append(path).append("\n");
    if (depth < kDepthLimit && is_folder(path)) add_names(path, depth + 1, text);
  }
}

/// Times of the folders of a package's code: a file that is installed, or saved by rename, changes that of its folder.
void add_folders(const std::string& directory, int depth, size_t& left, std::string& text) {
  constexpr std::string_view kNoCode[] = {"__pycache__", "include", "lib", "share", "test", "testing", "bin"};
  if (left == 0) return;
  --left;
  text += identity_of(directory);
  for (const std::string& path : listing(directory)) {
    const std::string_view name = std::string_view(path).substr(directory.size() + 1);
    const bool code = std::find(std::begin(kNoCode), std::end(kNoCode), name) == std::end(kNoCode);
    if (code && depth < kDepthLimit && is_folder(path)) add_folders(path, depth + 1, left, text);
  }
}

}  // namespace

Result<Fingerprint> learn_facts(const FactsRequest& request) {
  if (!request.file.empty()) return from_file(request);
  Fingerprint facts = fingerprint::probe(options_of(request));
  add_libstdcxx(facts, PlaceReader(request.reader));
  return facts;
}

std::pair<std::string, std::string> differing_lines(std::string_view one, std::string_view other) {
  return {only_in(one, other), only_in(other, one)};
}

FactsChange change_of(const Fingerprint& before, const Fingerprint& now, bool keep) {
  FactsChange change;
  for (const Facet facet : fingerprint::kAllFacets) {
    const std::string name(fingerprint::to_string(facet));
    const Fact& was = before.get(facet);
    const Fact& is = now.get(facet);
    if (keep && was.known && !is.known) {
      change.facts.set(facet, was);
      change.kept.push_back(name + ": " + is.problem);
      continue;
    }
    change.facts.set(facet, is);
    if (was.known == is.known && was.value == is.value) continue;
    change.scopes = true;
    const auto [old_lines, new_lines] = differing_lines(shown(was), shown(is));
    change.texts.push_back(name + ": " + shortened(old_lines) + " -> " + shortened(new_lines));
  }
  return change;
}

std::string package_of(const Fact& fact) {
  return fact.source.starts_with('/') && is_there(fact.source + "/__init__.py") ? fact.source : std::string();
}

std::string interpreter_of(const Fingerprint& facts) {
  for (const Facet facet : {Facet::kPython, Facet::kTorch, Facet::kTriton}) {
    const Fact& fact = facts.get(facet);
    // A fact "no torch" was read from the interpreter too.
    const bool program = fact.source.starts_with('/') && ::access(fact.source.c_str(), X_OK) == 0;
    if (program && !is_there(fact.source + "/.")) return fact.source;
  }
  return {};
}

Places places_of(const Fingerprint& facts) {
  Places places;
  for (const Facet facet : {Facet::kTorch, Facet::kTriton}) {
    const std::string package = package_of(facts.get(facet));
    add_once(places.packages, package);
    add_once(places.sites, parent_of(package));
  }
  for (const std::string& folder :
       fingerprint::values_of(facts.get(Facet::kEngine).details, fingerprint::kEngineFolderKey)) {
    add_once(places.packages, folder);
    add_once(places.sites, parent_of(folder));
  }
  const std::string python = interpreter_of(facts);
  add_once(places.files, python);
  const char* const compiler = std::getenv("CXX");
  add_once(places.files, in_path(compiler == nullptr || *compiler == '\0' ? "g++" : compiler));
  const Fact& environment = facts.get(Facet::kEnvironment);
  for (const std::string& file : fingerprint::values_of(environment.details, fingerprint::kNamedFileKey)) {
    add_once(places.files, file);
  }
  // Written anew when a library is installed: what was unfit for lack of one may fit now.
  add_once(places.files, "/etc/ld.so.cache");
  if (python.empty()) return places;
  // Where torch would be installed when there is none yet.
  for (const std::string& library : listing(parent_of(parent_of(python)) + "/lib")) {
    if (library.find("/lib/python3") == std::string::npos) continue;
    for (const char* site : {"/site-packages", "/dist-packages"}) {
      if (is_folder(library + site)) add_once(places.sites, library + site);
    }
  }
  return places;
}

std::string traces_of(const Places& places, const std::string& proc) {
  // The driver's version, its devices, and the instances that MIG has made of them.
  std::string text = read_file(AT_FDCWD, proc + "/driver/nvidia/version", kProcFileLimit).value_or("no driver\n");
  add_names(proc + "/driver/nvidia/gpus", 0, text);
  add_names(proc + "/driver/nvidia/capabilities", 0, text);
  for (const std::string& file : places.files) text += identity_of(file);
  for (const std::string& site : places.sites) text += identity_of(site);
  size_t left = kDirectoryLimit;
  for (const std::string& package : places.packages) {
    // The directory of the libraries, not what is below it: a build from source may write nothing else anew.
    for (const char* file : {"/version.py", "/__init__.py", "/lib"}) text += identity_of(package + file);
    add_folders(package, 0, left, text);
  }
  return text;
}

}  // namespace inductorfs::host
