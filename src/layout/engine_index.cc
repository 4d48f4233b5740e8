// SPDX-License-Identifier: Apache-2.0
// What the index of a serving engine names: vLLM's.
#include <algorithm>
#include <cstddef>
#include <string>
#include <string_view>
#include <utility>
#include <vector>

#include "engine_families.h"
#include "inductorfs/codec/entry.h"
#include "inductorfs/codec/parcel.h"
#include "inductorfs/layout/index_name.h"
#include "inductorfs/layout/layout.h"
#include "python_literal.h"

namespace inductorfs::layout {
namespace {

using Kind = PythonValue::Kind;

/// A name and a path take some 300 bytes each.
constexpr PythonLimits kIndexLimits{.bytes = size_t{8} << 20U, .depth = 6, .values = size_t{1} << 17U};
/// The index itself is an item of its parcel too.
constexpr size_t kMemberLimit = codec::kParcelItemLimit - 1;

struct Named {
  std::vector<std::string> names;
  std::string directory;
};

tl::unexpected<Error> corrupt_index(std::string_view why) {
  return fail(ErrorCode::kCorrupt, std::string(kVllmIndexName) + ": " + std::string(why));
}
tl::unexpected<Error> unfit_index(std::string_view why) {
  return fail(ErrorCode::kNotSupported, std::string(kVllmIndexName) + ": " + std::string(why));
}

/// (range or shape, number or hash of the graph, name of the compiler): backends.py, CompilerManager.cache.
bool is_of_standalone_compiler(const PythonValue& key) {
  constexpr size_t kParts = 3;
  return key.is(Kind::kTuple) && key.values.size() == kParts && key.values.back().is(Kind::kString) &&
         key.values.back().text == "inductor_standalone";
}

/// (name, absolute path), in a dictionary with the cache's key of the graph since vLLM 0.19.
const PythonValue* handle_of(const PythonValue& value) {
  const PythonValue* handle = value.is(Kind::kDictionary) ? value.find("graph_handle") : &value;
  const bool fits = handle != nullptr && handle->is(Kind::kTuple) && handle->values.size() == 2 &&
                    handle->values[0].is(Kind::kString) && handle->values[1].is(Kind::kString);
  return fits ? handle : nullptr;
}

/// Which of the two vLLM opens depends on its release, so that both have to be the same file.
Result<void> enter(const PythonValue& handle, Named& named) {
  const std::string& name = handle.values[0].text;
  const std::string_view path = handle.values[1].text;
  if (!is_indexed_artefact(name)) return unfit_index("names something that is no artefact beside it");
  if (!path.starts_with('/') || !codec::is_clean_path(path.substr(1))) return unfit_index("names no absolute path");
  const size_t slash = path.rfind('/');
  if (path.substr(slash + 1) != name) return unfit_index("names a file by two names");
  if (slash == 0) return unfit_index("names a file of the root directory");
  const std::string_view directory = path.substr(0, slash);
  if (!named.names.empty() && directory != named.directory) return unfit_index("names files in several directories");
  named.directory = directory;
  named.names.push_back(name);
  return {};
}

Result<Named> read_index(Family family, std::string_view index) {
  if (family != Family::kVllmIndex) {
    return fail(ErrorCode::kNotSupported, std::string(rule_of(family).name) + ": has no index");
  }
  const auto cache = parse_python(index, kIndexLimits);
  if (!cache) {
    const bool is_damaged = cache.error().code() == ErrorCode::kCorrupt;
    return is_damaged ? corrupt_index(cache.error().what()) : unfit_index(cache.error().what());
  }
  if (!cache->is(Kind::kDictionary)) return corrupt_index("no dictionary");
  if (cache->values.size() > 2 * kMemberLimit) return unfit_index("names more files than a parcel holds");
  Named named;
  for (size_t i = 0; i + 1 < cache->values.size(); i += 2) {
    if (!is_of_standalone_compiler(cache->values[i]))
      return unfit_index("is of a compiler that stores its graphs elsewhere");
    const PythonValue* handle = handle_of(cache->values[i + 1]);
    if (handle == nullptr) return unfit_index("does not say where a graph is");
    INDUCTORFS_TRY(enter(*handle, named));
  }
  if (named.names.empty()) return unfit_index("names nothing");
  // Graphs that are equal have one artefact.
  std::sort(named.names.begin(), named.names.end());
  named.names.erase(std::unique(named.names.begin(), named.names.end()), named.names.end());
  return named;
}

}  // namespace

Result<std::vector<std::string>> index_members(Family family, std::string_view index) {
  INDUCTORFS_TRY_ASSIGN(auto named, read_index(family, index));
  return std::move(named.names);
}

bool is_cut_index(Family family, std::string_view index) {
  if (family != Family::kVllmIndex) return false;
  const bool is_zeros = index.find_first_not_of('\0') == std::string_view::npos;  // or empty
  if (is_zeros) return true;
  return index.front() == '{' && (index.find('\0') != std::string_view::npos || is_unclosed(index));
}

Result<std::string> index_directory(Family family, std::string_view index) {
  INDUCTORFS_TRY_ASSIGN(auto named, read_index(family, index));
  return std::move(named.directory);
}

Result<std::string> index_in_directory(Family family, std::string_view index, std::string_view directory) {
  INDUCTORFS_TRY_ASSIGN(const auto written_in, index_directory(family, index));
  for (const std::string_view text : {std::string_view(written_in), directory}) {
    const bool plain = text.starts_with('/') && codec::is_clean_path(text.substr(1)) &&
                       std::all_of(text.begin(), text.end(),
                                   [](char c) { return c >= ' ' && c <= '~' && c != '\'' && c != '"' && c != '\\'; });
    if (!plain) return unfit_index("is in a directory whose name Python would not print as it is");
  }
  const std::string from = written_in + "/";
  const std::string to = std::string(directory) + "/";
  std::string text;
  for (size_t at = 0;;) {
    const size_t found = index.find(from, at);
    text.append(index.substr(at, found == std::string_view::npos ? found : found - at));
    if (found == std::string_view::npos) break;
    text.append(to);
    // Here, and not only when it is read below: an index of 8 MiB may have millions of places.
    if (text.size() > kIndexLimits.bytes) return unfit_index("would become larger than an index may be");
    at = found + from.size();
  }
  // Whatever else was in the text: it names the same files, there.
  INDUCTORFS_TRY_ASSIGN(const auto now_in, index_directory(family, text));
  return now_in == directory ? Result<std::string>(std::move(text)) : unfit_index("cannot be moved");
}

std::string index_directory_of(std::string_view canonical_path) {
  return "/[INDUCTORFS]/" + std::string(canonical_path.substr(0, canonical_path.rfind('/')));
}

}  // namespace inductorfs::layout
