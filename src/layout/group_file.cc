// SPDX-License-Identifier: Apache-2.0
#include <string>
#include <string_view>
#include <utility>
#include <vector>

#include "inductorfs/layout/layout.h"
#include "json_text.h"

/// Triton writes json.dumps({"child_paths": {name: path}}) (triton/runtime/cache.py: put_group), where the path begins
/// with TRITON_CACHE_DIR as the user typed it, and believes the paths when it reads. Only the text of those paths is
/// ever replaced; every other byte stays, so that canonical and rendered form are inverses and members that a later
/// Triton adds survive.
namespace inductorfs::layout {
namespace {

constexpr JsonLimits kGroupLimits{.bytes = size_t{1} << 20U, .depth = 16, .values = 4096};
constexpr size_t kChildLimit = 256;
constexpr size_t kNameLimit = 255;
constexpr std::string_view kPlaceholder = "[INDUCTORFS]";
constexpr std::string_view kGroupPrefix = "__grp__";
constexpr std::string_view kGroupSuffix = ".json";

/// One child, and where its path stands in the text, with the quotes.
struct Child {
  std::string name;
  size_t begin = 0;
  size_t end = 0;
};

tl::unexpected<Error> corrupt(std::string_view what) {
  return fail(ErrorCode::kCorrupt, "group file: " + std::string(what));
}

bool is_plain_name(std::string_view name) {
  return !name.empty() && name.size() <= kNameLimit && name != "." && name != ".." &&
         name.find('/') == std::string_view::npos && name.find('\0') == std::string_view::npos;
}

bool has_dots(std::string_view path) {
  const std::string closed = "/" + std::string(path) + "/";
  return closed.find("/../") != std::string::npos || closed.find("/./") != std::string::npos;
}

/// Whether `path` is where a child `name` must be: `<TRITON_CACHE_DIR>/<key>/<name>`. Nobody follows it: who is shown
/// the group reads another directory in its place.
bool is_writers_path(std::string_view path, std::string_view key, std::string_view name) {
  const std::string tail = "/" + std::string(key) + "/" + std::string(name);
  return path.ends_with(tail) && path.find('\0') == std::string_view::npos;
}

/// Whether it is `[INDUCTORFS]/<name>` of a canonical group.
bool is_canonical_child(std::string_view path, std::string_view name) {
  return path.starts_with(kPlaceholder) && path.substr(kPlaceholder.size()) == "/" + std::string(name);
}

/// All children, in the order of the file. `is_child_path(path, name)` says whether a path is in the form expected.
template <typename IsChildPath>
Result<std::vector<Child>> read_children(std::string_view text, const IsChildPath& is_child_path) {
  const auto document = parse_json(text, kGroupLimits);
  if (!document) return corrupt(document.error().what());
  const JsonValue* paths = document->find("child_paths");
  if (paths == nullptr || !paths->is_object()) return corrupt("no child_paths");
  // Without a child Triton takes it for a miss, and it would stand in the way of the key's real group.
  if (paths->values.empty() || paths->values.size() > kChildLimit) return corrupt("no child, or too many");
  std::vector<Child> children;
  for (size_t i = 0; i < paths->values.size(); ++i) {
    const JsonValue& value = paths->values[i];
    const auto name = path_from_text(paths->names[i]);
    if (!name || !is_plain_name(*name) || is_group_file(*name)) return corrupt("a child's name is no plain file name");
    if (!value.is_string()) return corrupt("the path of " + *name + " is no string");
    const auto path = path_from_text(value.text);
    if (!path || !is_child_path(*path, *name)) return corrupt(*name + " is not in the group's own directory");
    children.push_back({*name, value.begin, value.end});
  }
  return children;
}

/// The text with each child's path replaced by `directory`/<name>.
std::string with_directory(std::string_view text, const std::vector<Child>& children, std::string_view directory) {
  std::string out;
  size_t copied = 0;
  for (const Child& child : children) {
    out += text.substr(copied, child.begin - copied);
    out += python_string(text_from_path(std::string(directory) + "/" + child.name));
    copied = child.end;
  }
  out += text.substr(copied);
  return out;
}

Result<std::vector<Child>> read_written_group(std::string_view group_json, std::string_view key) {
  if (!is_plain_name(key)) return fail(ErrorCode::kInvalid, "a group's key is one plain name");
  return read_children(
      group_json, [key](std::string_view path, std::string_view name) { return is_writers_path(path, key, name); });
}

}  // namespace

bool is_group_file(std::string_view file_name) {
  return file_name.size() > kGroupPrefix.size() + kGroupSuffix.size() && file_name.starts_with(kGroupPrefix) &&
         file_name.ends_with(kGroupSuffix);
}

Result<std::vector<std::string>> group_children(std::string_view group_json, std::string_view key) {
  INDUCTORFS_TRY_ASSIGN(auto children, read_written_group(group_json, key));
  std::vector<std::string> names;
  names.reserve(children.size());
  for (Child& child : children) names.push_back(std::move(child.name));
  return names;
}

Result<std::string> group_directory(std::string_view group_json, std::string_view key) {
  if (!is_plain_name(key)) return fail(ErrorCode::kInvalid, "a group's key is one plain name");
  std::string directory;
  bool is_one = true;
  const auto takes = [&](std::string_view path, std::string_view name) {
    if (!is_writers_path(path, key, name)) return false;
    path.remove_suffix(name.size() + 1);
    if (directory.empty()) directory = path;
    is_one = is_one && directory == path;
    return true;
  };
  INDUCTORFS_TRY(read_children(group_json, takes));
  if (!is_one) return corrupt("its children are in several directories");
  return directory;
}

Result<std::string> canonical_group(std::string_view group_json, std::string_view key) {
  INDUCTORFS_TRY_ASSIGN(const auto children, read_written_group(group_json, key));
  return with_directory(group_json, children, kPlaceholder);
}

Result<std::string> render_group(std::string_view canonical_json, std::string_view key_directory) {
  const bool plain = key_directory.starts_with('/') && !key_directory.ends_with('/') && !has_dots(key_directory) &&
                     key_directory.find('\0') == std::string_view::npos;
  if (!plain) return fail(ErrorCode::kInvalid, "a key directory is a clean absolute path");
  INDUCTORFS_TRY_ASSIGN(const auto children, read_children(canonical_json, is_canonical_child));
  return with_directory(canonical_json, children, key_directory);
}

}  // namespace inductorfs::layout
