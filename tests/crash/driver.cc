// SPDX-License-Identifier: Apache-2.0
#include "crash/driver.h"

#include <fcntl.h>
#include <sys/prctl.h>
#include <sys/wait.h>
#include <unistd.h>

#include <algorithm>
#include <csignal>
#include <cstdio>
#include <cstring>
#include <filesystem>
#include <stdexcept>

#include "inductorfs/base/counters.h"

namespace inductorfs::testing {
namespace {

constexpr uint64_t kEverything = 1ULL << 40;
const std::string kTimings = "cache/" + std::string(64, 'a');

void must(const Result<void>& done, const std::string& what) {
  if (!done) throw std::runtime_error(what + ": " + done.error().to_string());
}
void must(bool done, const std::string& what) {
  if (!done) throw std::runtime_error(what);
}

std::string code_path(const std::string& seed) { return in_code_directory(code_name(seed) + ".py"); }
std::string key_directory(const std::string& seed) { return "triton/0/" + triton_key_of(seed); }

const std::string kOurKernel = "cache/kernel.ours.0123456789abcdef0123456789abcdef";
const std::string kTheirKernel = "cache/kernel.theirs.0123456789abcdef0123456789abcdef";
const std::string kEvictedKernel = "cache/kernel.evicted.0123456789abcdef0123456789abcdef";

/// DeepGEMM's protocol (tests/vfs/parcels_test.cc): a directory of its own, and a rename.
Result<void> make_parcel(Host& host, const std::string& directory, const std::string& writer) {
  const std::string staging = "tmp/" + writer + directory.substr(directory.rfind('/') + 1);
  INDUCTORFS_TRY(host.make_directories(staging));
  INDUCTORFS_TRY(host.make_directories("cache"));
  for (const char* name : {"kernel.cu", "kernel.cubin"}) {
    INDUCTORFS_TRY(host.create(staging + "/" + name, writer + " wrote " + name));
  }
  return host.rename(staging, directory);
}

const std::string kTheirIndex = "torch_compile_cache/0123456789/rank_0_0/backbone/vllm_compile_cache.py";
const std::string kTheirArtifact =
    "torch_compile_cache/0123456789/rank_0_0/backbone/artifact_compile_range_1_1_subgraph_0";

/// As vLLM writes it: the artefact by a rename, the index in place.
Result<void> make_index(Host& host) {
  const std::string name = kTheirArtifact.substr(kTheirArtifact.rfind('/') + 1);
  INDUCTORFS_TRY(host.make_directories(kTheirIndex.substr(0, kTheirIndex.rfind('/'))));
  INDUCTORFS_TRY(host.publish_file(kTheirArtifact, "their artefact"));
  return host.create(kTheirIndex,
                     "{((1, 1), 0, 'inductor_standalone'): ('" + name + "', '/mnt/cache/" + kTheirArtifact + "')}");
}

/// The name that the cluster has for a path: a parcel's is the directory's.
std::string entry_of(const std::string& path, const Ledger::Expected& expected) {
  return layout::canonical_path(expected.is_set ? path + "/k.ttir" : path);
}

/// The file by which a path is read.
std::string file_of(const std::string& path, const Ledger::Expected& expected) {
  if (expected.is_set) return path + "/k.ttir";
  return expected.is_parcel ? path + "/kernel.cubin" : path;
}

/// A ledger's line holds a word for the bytes.
std::string bytes_of(const std::string& value) {
  return value.starts_with("big") ? std::string(300'000, value.at(4)) + value.substr(5) : value;
}

std::string timings(const std::string& choices) {
  std::string text =
      R"({"system": {"hash": ")" + std::string(64, 'a') + R"("}, "cache": {"mm": {"inputs": {"highest": {)";
  for (const char choice : choices) {
    text += (text.ends_with('{') ? "\"choice-" : ", \"choice-") + std::string(1, choice) + "\": 0.5";
  }
  return text + "}}}}}";
}

/// What file_of() has for a value of the ledger.
std::string bytes_for(const std::string& value, const Ledger::Expected& expected) {
  if (expected.is_set) return value + " wrote k.ttir";
  return expected.is_parcel ? value + " wrote kernel.cubin" : bytes_of(value);
}

/// A writer that goes with this process, or when end() is called.
class Child {
 public:
  Child() : pid_(::fork()) {
    if (pid_ != 0) return;
    ::prctl(PR_SET_PDEATHSIG, SIGKILL);
    for (;;) (void)::pause();
  }
  [[nodiscard]] pid_t pid() const { return pid_; }
  void end() const {
    (void)::kill(pid_, SIGKILL);
    (void)::waitpid(pid_, nullptr, 0);
  }

 private:
  const pid_t pid_;
};

HostOptions options_of(const std::string& store, const std::string& redis_url, const std::shared_ptr<Fault>& fault) {
  HostOptions options;
  options.store = store;
  options.wrap_remote = [redis_url, fault](const remote::Remote&) {
    static Counters counters;
    remote::RemoteOptions given;
    given.url = redis_url;
    auto opened = remote::open_redis(given, counters);
    if (!opened) throw std::runtime_error(opened.error().to_string());
    return with_faults(std::move(*opened), fault);
  };
  return options;
}

}  // namespace

Driver::Driver(const std::string& store, const std::string& redis_url, const std::string& ledger)
    : store_(store), redis_url_(redis_url), ledger_file_(ledger), ledger_(ledger) {
  host_ = std::make_unique<Host>(remote::make_memory_cluster(), options_of(store_, redis_url_, fault_));
}

// --- steps --------------------------------------------------------------------------------------------------------

void Driver::own(const std::string& path, const std::string& value) {
  ledger_.tries("own", path, value);
  must(host_->create(path, bytes_of(value)), "create " + path);
  ledger_.did("own", path, value);
}

void Driver::put(const std::string& path, const std::string& value) {
  ledger_.tries("put", path, value);
  must(host_->publish_file(path, bytes_of(value)), "publish " + path);
  ledger_.did("put", path, value);
}

void Driver::mine(const std::string& path, const std::string& value) {
  ledger_.tries("mine", path, value + "+more");
  must(host_->append(path, "+more"), "append to " + path);
  ledger_.did("mine", path, value + "+more");
}

void Driver::drop(const std::string& path) {
  ledger_.tries("drop", path);
  must(host_->unlink(path), "unlink " + path);
  ledger_.did("drop", path);
}

void Driver::set(const std::string& directory, const std::string& writer) {
  ledger_.tries("set", directory, writer);
  must(host_->triton_compile(directory, writer, ::getpid()), "compile " + directory);
  ledger_.did("set", directory, writer);
}

void Driver::parcel(const std::string& directory, const std::string& writer) {
  ledger_.tries("parcel", directory, writer);
  must(make_parcel(*host_, directory, writer), "make " + directory);
  ledger_.did("parcel", directory, writer);
}

void Driver::leave(const std::string& path) { ledger_.tries("leave", path); }

/// What was changed here is for the old facts alone; the cluster's bytes may take its name.
void Driver::lose_changes(const std::string& path, const std::string& value) {
  ledger_.tries("mine", path, value);
  ledger_.tries("lose", path);
}

void Driver::sync() { must(host_->sync(), "sync"); }

// --- the workload -------------------------------------------------------------------------------------------------

void Driver::prepare() {
  for (const char* name : {"theirs", "lost"}) must(host_->publish_file(code_path(name), name), name);
  must(host_->publish_file(kTimings, timings("b")), "timings");
  must(make_parcel(*host_, kTheirKernel, "them"), "a kernel");
  must(make_index(*host_), "an index");
  sync();
}

void Driver::work() {
  write_private_files();
  write_shared_files();
  change_sealed_files();
  merge_timings();
  change_facts_with_a_queue();
  lose_an_entry();
  evict_everything();
  leave_unfinished_work();
  restart_with_other_facts();
  lose_the_catalog();
  drop_a_dead_writers_set();
  sync();
  host_->stop();
}

void Driver::write_private_files() {
  must(host_->make_directories("own/directory"), "mkdir");
  own("own/one", "first");
  own("own/two", "second");
  own("own/directory/inner", "inner");
  const auto parent = host_->look_up("own");
  const auto one = host_->look_up("own/one");
  must(parent && one, "look up");
  const vfs::Caller caller{::getuid(), ::getgid(), ::getpid()};
  must(host_->names().make_symlink(parent->node, "symlink", "one", caller).has_value(), "symlink");
  must(host_->names().link(one->node, parent->node, "linked", caller).has_value(), "link");
  ledger_.did("own", "own/linked", "first");
  // Both names may have either content until it is done.
  ledger_.tries("mine", "own/one", "second");
  ledger_.tries("mine", "own/two", "first");
  must(host_->rename("own/one", "own/two", 0, vfs::RenameMode::kExchange), "exchange");
  ledger_.did("mine", "own/one", "second");
  ledger_.did("mine", "own/two", "first");
  ledger_.tries("mine", "own/moved", "second");
  ledger_.tries("drop", "own/one");
  must(host_->rename("own/one", "own/moved"), "rename");
  ledger_.did("mine", "own/moved", "second");
  ledger_.did("drop", "own/one");
  ledger_.tries("mine", "own/other/inner", "inner");
  ledger_.tries("drop", "own/directory/inner");
  must(host_->rename("own/directory", "own/other"), "rename of a directory");
  ledger_.did("mine", "own/other/inner", "inner");
  ledger_.did("drop", "own/directory/inner");
  drop("own/two");
  must(host_->make_directory("own/gone"), "mkdir");
  must(host_->remove_directory("own/gone"), "rmdir");
}

void Driver::write_shared_files() {
  for (const char* name : {"one", "two", "three"}) put(code_path(name), name);
  put(code_path("large"), "big-l");
  put(code_path("vast"), "big-v");
  // With a second name it keeps its inode, and the store takes a copy, which is too large for a pack.
  const std::string twice = code_path("twice");
  must(host_->make_directories(twice.substr(0, 2)), "mkdir");
  must(host_->create(twice.substr(0, 2) + "/.4711.1.tmp", bytes_of("big-2")), "create");
  const auto file = host_->look_up(twice.substr(0, 2) + "/.4711.1.tmp");
  const auto own_directory = host_->look_up("own");
  must(file && own_directory, "look up");
  must(host_->names().link(file->node, own_directory->node, "twice", {}).has_value(), "link");
  ledger_.tries("put", twice, "big-2");
  must(host_->rename(twice.substr(0, 2) + "/.4711.1.tmp", twice), "rename");
  ledger_.did("put", twice, "big-2");
  set(key_directory("kernel"), "me");
  parcel(kOurKernel, "me");
  sync();
  must(host_->wait_for_entry(kTheirKernel), "another host's kernel");
  ledger_.tries("parcel", kTheirKernel, "them");
  must(host_->read(kTheirKernel + "/kernel.cu").value_or("absent") == "them wrote kernel.cu", "another host's kernel");
  ledger_.did("parcel", kTheirKernel, "them");
  must(host_->wait_for_entry(kTheirIndex), "another host's index");
  must(host_->make_directories(kTheirIndex.substr(0, kTheirIndex.rfind('/'))), "mkdir");
  must(host_->exists(kTheirIndex), "another host's index");
}

void Driver::change_sealed_files() {
  mine(code_path("one"), "one");
  mine(code_path("vast"), "big-v");
  must(host_->wait_for_entry(code_path("theirs")), "what another host published");
  ledger_.did("mine", code_path("theirs"), "theirs");
  mine(code_path("theirs"), "theirs");
  drop(code_path("two"));
}

void Driver::merge_timings() {
  must(host_->wait_for_entry(kTimings), "another host's timings");
  // Not written over what was read: the cluster has to merge.
  std::string choices = "a";
  for (char more = 'c'; host_->count("view.merged") == 0 && more < 'z'; ++more) {
    // One that is published before its file is marked as sealed stays as it is.
    must(host_->publish_file(kTimings, timings(choices)), "timings");
    sync();
    choices += more;
  }
  must(host_->count("view.merged") > 0, "no timings were merged");
}

void Driver::change_facts_with_a_queue() {
  fault_->refuse_publishes(true);
  put(code_path("queued"), "queued");
  must(eventually([&] { return host_->count("publish.retries") > 0; }), "no publish failed");
  for (const char* name : {"queued", "three", "large", "twice"}) leave(code_path(name));
  leave(key_directory("kernel"));
  for (const auto& kernel : {kOurKernel, kTheirKernel}) leave(kernel);
  for (const char* name : {"one", "theirs"}) lose_changes(code_path(name), name);
  lose_changes(code_path("vast"), "big-v");
  host_->change_facts("two");
  host_->change_facts("one");
  fault_->refuse_publishes(false);
  sync();
}

void Driver::lose_an_entry() {
  must(host_->wait_for_entry(code_path("lost")), "what another host published");
  const auto known = host_->catalog->find(code_path("lost"));
  must(known.has_value(), "the entry");
  host_->catalog->report_lost(*known);
  must(eventually([&] { return host_->counters->get("catalog.lost_reported").get() > 0; }), "nobody was told");
}

void Driver::evict_everything() {
  for (const char* name : {"four", "five"}) put(code_path(name), name);
  set(key_directory("evicted"), "me");
  parcel(kEvictedKernel, "me");
  sync();
  host_->restart();  // the kernel knows nothing now
  must(host_->store->free_space(kEverything) > 0, "nothing could be evicted");
  must(host_->read(code_path("four")).value_or("") == "four", "an evicted blob comes from the cluster");
}

void Driver::leave_unfinished_work() {
  const std::string stem = in_code_directory(code_name("library"));
  ledger_.tries("lose", stem + ".so");
  must(host_->make_directories(stem + "_CxxBuild"), "mkdir");
  must(host_->create(stem + ".so", "half a library"), "create");
  host_->stop();
  const std::string torn_set = store_ + "/files/view/" + key_directory("torn");
  std::filesystem::create_directories(torn_set);
  must(write_file_atomically(AT_FDCWD, torn_set + "/k.ttir", "half a set"), "write");
  host_->start();
}

void Driver::restart_with_other_facts() {
  put(code_path("six"), "six");
  sync();
  for (const char* name : {"four", "five", "six", "queued", "three", "large", "twice"}) leave(code_path(name));
  for (const char* name : {"kernel", "evicted"}) leave(key_directory(name));
  for (const auto& kernel : {kOurKernel, kTheirKernel, kEvictedKernel}) leave(kernel);
  host_->stop();
  host_->environment.set_facts("two");
  host_->start();
  host_->stop();
  host_->environment.set_facts("one");
  host_->start();
  must(eventually([&] { return host_->exists(code_path("six")); }), "the facts are back");
}

void Driver::lose_the_catalog() {
  fault_->refuse_publishes(true);
  put(code_path("seven"), "seven");
  must(eventually([&] { return host_->catalog->publish_state(code_path("seven")).has_value(); }), "it is not queued");
  host_->stop();
  fault_->refuse_publishes(false);
  // What was deleted here is deleted nowhere else: it shows again.
  lose_changes(code_path("two"), "two");
  const Fd file(::open((store_ + "/catalog.sqlite").c_str(), O_WRONLY | O_CLOEXEC));
  must(pwrite_full(file.get(), std::string(100, '?'), 0), "damage");
  host_->start();
  must(host_->count("catalog.damaged") == 1, "the damage was not seen");
}

void Driver::drop_a_dead_writers_set() {
  const Child writer;
  must(host_->triton_put(key_directory("dead"), "k.ttir", "half a set", writer.pid()), "put");
  writer.end();
  must(eventually([&] { return host_->count("triton.sets_kept") > 0; }), "a dead writer's set is pending for ever");
  must(host_->read(key_directory("dead") + "/k.ttir").value_or("") == "half a set", "what a dead writer has put");
}

// --- the promises -------------------------------------------------------------------------------------------------

void Driver::broken(const std::string& path, const std::string& what) {
  ++broken_;
  (void)std::printf("%s: %s\n", path.c_str(), what.c_str());
}

void Driver::check_set(const std::string& path, const Ledger::Expected& expected) {
  auto names = host_->list(path).value_or(std::vector<std::string>{});
  std::erase_if(names, [](const std::string& name) { return name.starts_with("tmp."); });  // of Triton's put
  // Without its group file nobody takes it for a set: its files are kept as on a local disk.
  const bool has_group = std::find(names.begin(), names.end(), "__grp__k.json") != names.end();
  if (!has_group && expected.may_be_absent) return;
  if (names.size() != 4) return broken(path, "a set of " + std::to_string(names.size()) + " files");
  const std::string text = host_->read(path + "/k.ttir").value_or("unreadable");
  const bool known = std::any_of(expected.values.begin(), expected.values.end(),
                                 [&](const std::string& writer) { return text == writer + " wrote k.ttir"; });
  if (!known) broken(path, "k.ttir is \"" + text + "\"");
  for (const auto& name : names) {
    if (!host_->read(path + "/" + name)) broken(path + "/" + name, "is listed and cannot be read");
  }
}

/// Both files by one writer, or no directory.
void Driver::check_parcel(const std::string& path, const Ledger::Expected& expected) {
  const auto names = host_->list(path);
  if (!names && names.error().code() == ErrorCode::kNotFound && expected.may_be_absent) return;
  if (!names) return broken(path, names.error().to_string());
  const bool known = std::any_of(expected.values.begin(), expected.values.end(), [&](const std::string& writer) {
    return std::all_of(names->begin(), names->end(), [&](const std::string& name) {
      return host_->read(path + "/" + name).value_or("unreadable") == writer + " wrote " + name;
    });
  });
  if (names->size() != 2 || !known) broken(path, "has " + std::to_string(names->size()) + " files, or a mix");
}

void Driver::check_locally(const std::string& path, const Ledger::Expected& expected) {
  if (expected.is_parcel) return check_parcel(path, expected);
  if (expected.is_set) return check_set(path, expected);
  const auto got = host_->read(path);
  if (!got && got.error().code() != ErrorCode::kNotFound) return broken(path, got.error().to_string());
  if (!got && !expected.may_be_absent) return broken(path, "is gone");
  if (!got) return;
  const bool known = std::any_of(expected.values.begin(), expected.values.end(),
                                 [&](const std::string& value) { return *got == bytes_of(value); });
  if (!known) broken(path, "has " + std::to_string(got->size()) + " bytes that nobody wrote: " + got->substr(0, 40));
}

void Driver::check_elsewhere(Host& other, const std::string& path, const Ledger::Expected& expected) {
  if (!expected.shared || (expected.may_be_absent && !expected.later) || expected.values.empty()) return;
  const std::string file = file_of(path, expected);
  if (!other.wait_for_entry(entry_of(path, expected))) return broken(file, "never came to the cluster");
  const std::string bytes = bytes_for(*expected.values.begin(), expected);
  if (other.read(file).value_or("absent") != bytes) broken(file, "the cluster has other bytes");
  if (host_->read(file).value_or("absent") != bytes) broken(file, "is not here after a sync");
}

void Driver::check_after_cut(Host& other, const std::string& path, const Ledger::Expected& expected) {
  Ledger::Expected now = expected;
  now.values = expected.ever;
  now.may_be_absent = true;
  const std::string file = file_of(path, now);
  const bool local = host_->read(file).has_value();
  check_locally(path, now);
  // What survived is not stranded here although the queue may have lost it.
  if (local && now.shared && !other.wait_for_entry(entry_of(path, now))) broken(file, "never came to the cluster");
  const auto there = other.read(file);
  const bool known = !there || std::any_of(now.values.begin(), now.values.end(),
                                           [&](const std::string& value) { return *there == bytes_for(value, now); });
  if (!known) broken(file, "the cluster has bytes that nobody wrote");
}

int Driver::verify_cut() {
  const auto expected = Ledger::read(ledger_file_);
  if (host_->count("catalog.damaged") > 0) broken("catalog.sqlite", "is damaged");
  if (const auto done = host_->sync(); !done) broken("sync", done.error().to_string());
  Host other(remote::make_memory_cluster(), options_of({}, redis_url_, std::make_shared<Fault>()));
  for (const auto& [path, what] : expected) {
    // Private files: a local disk promises no more than what their program synced.
    if (!path.starts_with("own/")) check_after_cut(other, path, what);
  }
  host_->stop();
  return broken_;
}

/// An index without what it names ends its program.
void Driver::check_index() {
  if (host_->exists(kTheirIndex) && host_->read(kTheirArtifact).value_or("absent") != "their artefact") {
    broken(kTheirIndex, "is there without its artefact");
  }
}

int Driver::verify() {
  const auto expected = Ledger::read(ledger_file_);
  check_index();
  for (const auto& [path, what] : expected) check_locally(path, what);
  if (const auto done = host_->sync(); !done) broken("sync", done.error().to_string());
  Host other(remote::make_memory_cluster(), options_of({}, redis_url_, std::make_shared<Fault>()));
  for (const auto& [path, what] : expected) check_elsewhere(other, path, what);
  host_->stop();
  return broken_;
}

}  // namespace inductorfs::testing

int main(int argc, char** argv) {
  using inductorfs::testing::Driver;
  if (argc != 5) return 2;
  const std::string verb = argv[1];
  try {
    Driver driver(argv[2], argv[3], argv[4]);
    if (verb == "prepare") driver.prepare();
    if (verb == "work") driver.work();
    if (verb == "verify-cut") return driver.verify_cut() == 0 ? 0 : 1;
    if (verb == "verify") return driver.verify() == 0 ? 0 : 1;
  } catch (const std::exception& problem) {
    (void)std::fprintf(stderr, "%s %s: %s\n", argv[0], verb.c_str(), problem.what());
    return 3;
  }
  return 0;
}
