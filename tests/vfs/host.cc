// SPDX-License-Identifier: Apache-2.0
#include "vfs/host.h"

#include <sys/stat.h>
#include <unistd.h>

#include <algorithm>
#include <array>
#include <chrono>
#include <future>

#include "support/patience.h"

namespace inductorfs::testing {
namespace {

constexpr std::chrono::seconds kPatience{20 * kSlowness};
constexpr std::chrono::milliseconds kStep{2};
/// Of a kernel, beside its group file.
constexpr std::array<const char*, 3> kChildren{"k.json", "k.ttir", "k.source"};

std::string parent_path(const std::string& path) {
  const size_t slash = path.rfind('/');
  return slash == std::string::npos ? std::string() : path.substr(0, slash);
}

std::string base_name(const std::string& path) { return path.substr(path.rfind('/') + 1); }

}  // namespace

void RecordingKernel::forget_name(vfs::NodeId parent, const std::string& name) {
  names_.with([&](auto& names) { names.insert(name); });
  if (on_name) on_name(parent, name);
}
void RecordingKernel::forget_content(vfs::NodeId node) {
  contents_.with([&](auto& contents) { contents.insert(node); });
}
bool RecordingKernel::told_name(const std::string& name) const {
  return names_.with([&](const auto& names) { return names.contains(name); });
}

bool eventually(const std::function<bool()>& condition, std::chrono::seconds patience) {
  const auto end = std::chrono::steady_clock::now() + patience * kSlowness;
  Guarded<bool> never(false);
  while (!condition()) {
    if (std::chrono::steady_clock::now() > end) return false;
    (void)never.wait_until(
        std::chrono::steady_clock::now() + kStep, [](bool now) { return now; }, [](bool now) { return now; });
  }
  return true;
}

std::string code_name(const std::string& seed, char prefix) { return prefix + codec::torch_hash(seed); }
std::string in_code_directory(const std::string& name) { return name.substr(1, 2) + "/" + name; }
std::string triton_key_of(const std::string& seed) {
  std::string key = codec::torch_hash(seed) + "a";
  std::transform(key.begin(), key.end(), key.begin(), [](char c) { return static_cast<char>(::toupper(c)); });
  return key;
}

Host::Host(std::shared_ptr<remote::MemoryCluster> cluster, HostOptions options)
    : directory(options.store), cluster_(std::move(cluster)), options_(std::move(options)) {
  environment.set_facts(options_.facts, options_.architectures);
  environment.set_writers(options_.writers);
  environment.set_check(options_.check);
  if (options_.part_users) environment.part_users();
  if (!options_.jobs.empty()) environment.learn(options_.jobs);
  start();
}

Host::~Host() { stop(); }

void Host::start(bool resume, bool requests_finished) {
  if (!resume) {
    auto region = takeover::Region::create(1);
    if (!region) throw std::runtime_error(region.error().to_string());
    region_.emplace(std::move(*region));
  }
  counters = std::make_unique<Counters>();
  remote = remote::open_memory(cluster_);
  if (options_.wrap_remote) remote = options_.wrap_remote(std::move(remote));
  auto opened = store::BlobStore::open(
      {options_.store.empty() ? directory / "store" : options_.store, options_.store_limit}, *counters);
  if (!opened) throw std::runtime_error(opened.error().to_string());
  store = std::move(*opened);
  catalog::CatalogOptions catalog_options;
  catalog_options.file = directory / "catalog.sqlite";
  catalog_options.origin = "host/" + directory.path();
  catalog_options.poll_interval = Milliseconds{5};
  catalog_options.scopes = environment.scopes();
  const auto accepts = [this](const remote::ScopeId& scope, std::string_view path) {
    return environment.accepts(scope, path);
  };
  auto opened_catalog =
      catalog::Catalog::open(catalog_options, *remote.blobs, *remote.index, *store, accepts, *counters);
  if (!opened_catalog) throw std::runtime_error(opened_catalog.error().to_string());
  catalog = std::move(*opened_catalog);
  vfs::FileSystemOptions vfs_options;
  vfs_options.directory = directory / (options_.store.empty() ? "local" : "files");
  vfs_options.mountpoint = options_.mountpoint;
  vfs_options.origin = catalog_options.origin;
  vfs_options.owner_uid = ::getuid();
  vfs_options.owner_gid = ::getgid();
  vfs_options.root_mode = options_.root_mode;
  vfs_options.further_places = options_.further_places;
  vfs_options.chown_to_caller = options_.chown_to_caller;
  vfs_options.user_bytes = options_.user_bytes;
  vfs_options.user_files = options_.user_files;
  vfs_options.quiet_time = options_.quiet_time;
  vfs_options.prefetch_bytes = options_.prefetch_bytes;
  vfs_options.fetch_threads = options_.fetch_threads;
  vfs_options.forget_wait = options_.forget_wait;
  vfs_options.compile_once = options_.compile_once;
  vfs_options.cluster_winners = options_.cluster_winners;
  vfs_options.who_writes = options_.who_writes;
  vfs_options.used = options_.used;
  vfs_options.quiet_is_complete = options_.quiet_is_complete;
  if (options_.views) {
    vfs_options.where_seen = [views = options_.views](pid_t thread, std::string_view path) {
      return views->path_for(thread, path);
    };
  }
  vfs_options.region = &*region_;
  vfs_options.resume = resume;
  auto opened_fs =
      vfs::FileSystem::open(vfs_options, environment, *catalog, *store, *remote.blobs, *remote.leases, *counters);
  if (!opened_fs) throw std::runtime_error(opened_fs.error().to_string());
  file_system = std::move(*opened_fs);
  file_system->start(kernel);
  if (requests_finished) file_system->requests_finished();
  catalog->start([this](const auto& paths) { file_system->on_catalog_change(paths); },
                 [this](const auto& report) { file_system->on_published(report); });
  (void)catalog->wait_synced(Deadline::after(options_.sync_patience));
}

void Host::change_facts(const std::string& facts, const std::string& architectures) {
  environment.set_facts(facts, architectures);
  if (!file_system) return;
  file_system->host_changed();
}

void Host::stop() {
  if (catalog) catalog->stop();
  if (file_system) file_system->stop();
  file_system.reset();
  catalog.reset();
  store.reset();
  remote = {};
}

vfs::Caller Host::caller(pid_t process) const {
  for (const pid_t pid : {process, acting_, options_.process}) {
    if (pid != 0) return {user, ::getgid(), pid};
  }
  return {user, ::getgid(), own_pid()};
}

Result<vfs::Found> Host::walk(const std::string& path, pid_t process) {
  vfs::Found found;
  found.node = vfs::kRootNode;
  std::string_view rest = path;
  while (!rest.empty()) {
    const size_t slash = rest.find('/');
    std::promise<vfs::LookupAnswer> promise;
    names().lookup(found.node, rest.substr(0, slash), caller(process),
                   [&](vfs::LookupAnswer answer) { promise.set_value(std::move(answer)); });
    auto answer = promise.get_future().get();
    if (!answer.found) return fail(answer.found.error());
    found = *answer.found;
    rest = slash == std::string_view::npos ? std::string_view{} : rest.substr(slash + 1);
  }
  return found;
}

Result<vfs::Found> Host::look_up(const std::string& path, pid_t process) { return walk(path, process); }

Result<vfs::NodeId> Host::parent_of(const std::string& path) {
  auto parent = walk(parent_path(path), 0);
  if (!parent) return fail(parent.error());
  return parent->node;
}

Result<void> Host::make_directory(const std::string& path, mode_t mode) {
  auto parent = parent_of(path);
  if (!parent) return fail(parent.error());
  auto made = names().make_directory(*parent, base_name(path), mode, caller(0));
  if (!made) return fail(made.error());
  return {};
}

Result<void> Host::make_directories(const std::string& path) {
  if (path.empty() || exists(path)) return {};
  INDUCTORFS_TRY(make_directories(parent_path(path)));
  return make_directory(path);
}

Result<void> Host::create(const std::string& path, const std::string& bytes, mode_t mode) {
  auto parent = parent_of(path);
  if (!parent) return fail(parent.error());
  auto made = names().create(*parent, base_name(path), mode, caller(0));
  if (!made) return fail(made.error());
  return bytes.empty() ? Result<void>{} : data().write(made->node, bytes, 0, caller(0));
}

Result<void> Host::append(const std::string& path, const std::string& bytes) {
  auto found = walk(path, 0);
  if (!found) return fail(found.error());
  return data().write(found->node, bytes, found->attributes.size, caller(0));
}

Result<void> Host::truncate(const std::string& path, uint64_t size) {
  auto found = walk(path, 0);
  if (!found) return fail(found.error());
  vfs::AttributeChange change;
  change.size = size;
  auto done = attributes().set_attributes(found->node, change, caller(0));
  if (!done) return fail(done.error());
  return {};
}

Result<std::string> Host::read(const std::string& path, pid_t process) {
  auto found = walk(path, process);
  if (!found) return fail(found.error());
  std::string bytes(found->attributes.size + 1, '\0');
  auto got = data().read(found->node, bytes.data(), bytes.size(), 0);
  if (!got) return fail(got.error());
  bytes.resize(*got);
  return bytes;
}

Result<void> Host::rename(const std::string& from, const std::string& to, pid_t process, vfs::RenameMode mode) {
  auto parent = parent_of(from);
  if (!parent) return fail(parent.error());
  auto new_parent = parent_of(to);
  if (!new_parent) return fail(new_parent.error());
  (void)walk(from, process);  // the kernel looks both names up first
  (void)walk(to, process);
  return names().rename(*parent, base_name(from), *new_parent, base_name(to), mode, caller(process));
}

Result<void> Host::unlink(const std::string& path) {
  auto parent = parent_of(path);
  if (!parent) return fail(parent.error());
  if (auto found = walk(path, 0); !found) return fail(found.error());
  return names().unlink(*parent, base_name(path), caller(0));
}

Result<void> Host::remove_directory(const std::string& path) {
  auto parent = parent_of(path);
  if (!parent) return fail(parent.error());
  if (auto found = walk(path, 0); !found) return fail(found.error());
  return names().remove_directory(*parent, base_name(path), caller(0));
}

Result<std::vector<std::string>> Host::list(const std::string& path) {
  auto found = walk(path, 0);
  if (!found) return fail(found.error());
  std::vector<std::string> items;
  INDUCTORFS_TRY(names().read_directory(found->node, 0, caller(0), [&](const vfs::DirectoryItem& item) {
    if (item.name != "." && item.name != "..") items.emplace_back(item.name);
    return true;
  }));
  std::sort(items.begin(), items.end());
  return items;
}

Result<std::future<void>> Host::open_directory(const std::string& path, pid_t process) {
  auto found = walk(path, process);
  if (!found) return fail(found.error());
  auto opened = std::make_shared<std::promise<void>>();
  names().open_directory(found->node, caller(process), [opened] { opened->set_value(); });
  return opened->get_future();
}

Result<void> Host::publish_file(const std::string& path, const std::string& bytes, mode_t mode) {
  INDUCTORFS_TRY(make_directories(parent_path(path)));
  const std::string above = parent_path(path);
  const std::string temporary = (above.empty() ? "" : above + "/") + ".4711.140000.tmp";
  INDUCTORFS_TRY(create(temporary, bytes, mode));
  return rename(temporary, path);
}

Result<void> Host::triton_put(const std::string& key_directory, const std::string& name, const std::string& bytes,
                              pid_t process) {
  INDUCTORFS_TRY(make_directories(key_directory));
  const std::string temporary =
      key_directory + "/tmp.pid_" + std::to_string(process) + "_01234567-89ab-cdef-0123-456789abcdef";
  INDUCTORFS_TRY(make_directory(temporary));
  INDUCTORFS_TRY(create(temporary + "/" + name, bytes));
  INDUCTORFS_TRY(rename(temporary + "/" + name, key_directory + "/" + name, process));
  INDUCTORFS_TRY(remove_directory(temporary));
  for (std::string up = key_directory; !up.empty(); up = parent_path(up)) {
    if (!remove_directory(up)) break;  // os.removedirs goes up until one fails
  }
  return {};
}

Result<void> Host::triton_compile(const std::string& key_directory, const std::string& writer, pid_t process,
                                  int architecture) {
  std::string metadata = "{\"writer\": \"" + writer + "\"";
  if (architecture != 0) {
    metadata += ", \"target\": {\"backend\": \"cuda\", \"arch\": " + std::to_string(architecture) + "}";
  }
  metadata += "}";
  for (const char* name : kChildren) {
    const bool is_metadata = std::string(name) == "k.json";
    INDUCTORFS_TRY(triton_put(key_directory, name, is_metadata ? metadata : writer + " wrote " + name, process));
  }
  return triton_group(key_directory, process);
}

Result<void> Host::triton_group(const std::string& key_directory, pid_t process) {
  std::string children;
  const std::string seen =
      options_.views ? options_.views->path_for(process, key_directory) : options_.mountpoint + "/" + key_directory;
  for (const char* name : kChildren) {
    if (!children.empty()) children += ", ";
    children += "\"" + std::string(name) + "\": \"" + seen + "/" + name + "\"";
  }
  return triton_put(key_directory, "__grp__k.json", "{\"child_paths\": {" + children + "}}", process);
}

Result<void> Host::sync() { return file_system->sync(Deadline::after(kPatience)); }

bool Host::wait_for_entry(const std::string& canonical) {
  return eventually([&] { return catalog->find(canonical).has_value(); });
}
bool Host::wait_until_gone(const std::string& canonical) {
  return eventually([&] { return !catalog->find(canonical).has_value(); });
}

}  // namespace inductorfs::testing
